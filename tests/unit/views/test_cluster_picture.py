"""The picture of the cluster: who has how much of which node, and what is free."""

import pytest

from autoscaler.page.drawings.cluster_drawing import draw_bar, draw_cluster
from autoscaler.views.cluster.cluster_picture import cluster_picture, job_colours
from autoscaler.views.cluster.pod_view import NodeUnit, Use, all_pods
from autoscaler.views.documents import ClusterDocuments, Rights
from tests.harness.page_cluster import NOW_S, demo_documents, job, node, pod


def test_every_core_of_a_node_is_somebody_s_or_free():
    """Holdings of everybody, with what is free, are the capacity of all nodes."""
    picture = cluster_picture(demo_documents())
    held = sum(one.amount for one in picture.holdings)
    assert held == dict(picture.capacity)[NodeUnit.CORES] == 12_000


def test_a_pod_is_counted_once_by_tier_and_owner():
    found = {(one.owner, one.use): one.amount for one in cluster_picture(demo_documents()).holdings}
    assert found[("team/web", Use.WEB)] == 5_000
    assert found[("team/digits-a", Use.CORE)] == 2_000 + 500 + 250
    assert found[("team/digits-a", Use.SURPLUS)] == 1_000
    assert found[("", Use.FREE)] == 12_000 - sum(amount for (_, use), amount in found.items() if use is not Use.FREE)


def test_a_node_with_gpus_is_counted_in_gpus():
    documents = ClusterDocuments(
        now_s=NOW_S, nodes=(node("big", gpus=8),), pods=(pod("x-trainer-0", on="big", job="x", gpus=2),)
    )
    (one,) = cluster_picture(documents).nodes
    assert (one.unit, one.capacity, one.used, one.free) == (NodeUnit.GPUS, 8_000, 2_000, 6_000)


def test_pods_without_a_node_and_pods_that_ended_are_on_no_node():
    ended = pod("old", on="n")
    ended["status"]["phase"] = "Succeeded"
    picture = cluster_picture(ClusterDocuments(now_s=NOW_S, nodes=(node("n"),), pods=(ended, pod("waits"))))
    assert picture.nodes[0].pods == ()
    assert [one.name for one in picture.waiting] == ["waits"]


def test_a_new_job_changes_no_colour():
    """Colours go by age: what a viewer has learnt stays."""
    old = [job("a", age_s=50), job("b", age_s=40)]
    before = job_colours(old)
    after = job_colours([*old, job("0-first-by-name", age_s=1)])
    assert before.items() <= after.items()


def test_a_viewer_of_one_namespace_sees_nothing_of_another_s():
    """Neither names nor what is free: capacity of others is not told apart from free capacity."""
    documents = demo_documents()
    secret = pod("secret", on="node-1", namespace="rivals", deployment="hidden")
    full = ClusterDocuments(
        now_s=NOW_S,
        nodes=documents.nodes,
        pods=(*documents.pods, secret),
        jobs=(*documents.jobs, job("theirs", namespace="rivals")),
    )
    seen = full.readable(Rights(namespaces=frozenset({"team"}), can_read_nodes=True, can_plan=False))
    picture = cluster_picture(seen)
    assert not picture.is_complete
    assert {one.use for one in picture.holdings} == {Use.WEB, Use.CORE, Use.SURPLUS, Use.HIDDEN}
    assert "rivals" not in repr(picture)
    assert "secret" not in repr(picture)
    assert "theirs" not in repr(seen.jobs)


def test_a_pod_with_labels_of_no_sense_is_one_of_others():
    odd = pod("odd", on="n", job="x", role="emperor", ordinal=0)
    odd["metadata"]["labels"]["edl.dev/ordinal"] = "-1"
    (found,) = all_pods(ClusterDocuments(now_s=NOW_S, pods=(odd,)))
    assert (found.role.value, found.ordinal) == ("external", 0)


def test_what_is_left_of_a_node_that_takes_no_pods_is_not_free():
    """A cordoned node, or one that is not ready, offers nothing; what pods hold there they hold."""
    cordoned = node("cordoned")
    cordoned["spec"]["unschedulable"] = True
    nodes = (node("open"), cordoned, node("lost", ready=False))
    pods = (pod("x-trainer-0", on="cordoned", job="x"),)
    picture = cluster_picture(ClusterDocuments(now_s=NOW_S, nodes=nodes, pods=pods))
    assert {(one.use, one.amount) for one in picture.holdings} == {(Use.CORE, 1_000), (Use.FREE, 4_000)}
    drawn = [[block.style for block in column.blocks] for column in draw_cluster(picture, {}).columns]
    assert drawn == [["use-free"], ["use-core"], []]
    bar = draw_bar(picture.holdings, NodeUnit.CORES, dict(picture.capacity)[NodeUnit.CORES])
    assert sum(block.width for block in bar) == pytest.approx(1_000 * 5 / 12)
