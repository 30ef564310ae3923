"""Shares by owner: the largest by name, the others together, and no amount lost on the way."""

import pytest

from autoscaler.page.drawings.cluster_drawing import MOST_BLOCKS, draw_cluster
from autoscaler.views.cluster.cluster_picture import cluster_picture
from autoscaler.views.cluster.owner_shares import largest_holdings, shares_of
from autoscaler.views.cluster.pod_view import Use
from autoscaler.views.documents import ClusterDocuments
from tests.harness.page_cluster import NOW_S, demo_documents, job, node, pod

JOBS = 60


def crowd():
    """Jobs of different sizes and two web services, on nodes enough for all."""
    jobs = tuple(job(f"job-{n:03}") for n in range(JOBS))
    pods = [
        pod(f"job-{n:03}-trainer-{at}", on=f"node-{n:03}", job=f"job-{n:03}", ordinal=at, cpu=f"{100 + n}m", tier=tier)
        for n in range(JOBS)
        for at, tier in enumerate(("core", "surplus"))
    ]
    pods += [pod(f"web{n}-abc-0", on="node-000", deployment=f"web{n}", cpu="10m") for n in range(3)]
    pods.append(pod("alone", on="node-001", cpu="5m"))
    nodes = tuple(node(f"node-{n:03}") for n in range(JOBS))
    return cluster_picture(ClusterDocuments(now_s=NOW_S, nodes=nodes, pods=tuple(pods), jobs=jobs))


@pytest.mark.parametrize("most", [0, 1, 5, 1_000])
def test_the_largest_are_named_and_every_amount_stays(most):
    picture = crowd()
    found = largest_holdings(picture.holdings, most=most)
    assert sum(one.amount for one in found) == sum(one.amount for one in picture.holdings)
    assert sum(one.pods for one in found) == sum(one.pods for one in picture.holdings)
    shares = shares_of(found)
    assert sum(one.amount for one in shares) == sum(one.amount for one in picture.holdings)
    assert sum(one.surplus for one in shares) == sum(one.amount for one in found if one.use is Use.SURPLUS)
    assert sum(one.owners for one in shares) == JOBS + 3 + 1 + 1, "jobs, services, pods without one, what is free"
    named = [one.owner for one in shares if one.use is Use.CORE and one.owners == 1]
    assert named == [f"team/job-{n:03}" for n in range(max(0, JOBS - most), JOBS)]


def test_one_that_is_left_keeps_its_name():
    """`1 more` of nameless jobs would tell less in as much room."""
    shares = shares_of(largest_holdings(crowd().holdings, most=JOBS - 1))
    assert {one.owner for one in shares if one.use is Use.CORE} == {f"team/job-{n:03}" for n in range(JOBS)}


def test_pods_without_a_deployment_are_not_free_capacity():
    documents = demo_documents()
    lonely = pod("alone", on="node-2", cpu="100m")
    picture = cluster_picture(ClusterDocuments(now_s=NOW_S, nodes=documents.nodes, pods=(*documents.pods, lonely)))
    shares = {(one.owner, one.use): one.amount for one in shares_of(picture.holdings)}
    assert shares["", Use.WEB] == 100
    assert shares["", Use.FREE] == sum(one.free for one in picture.nodes)


def test_a_few_nodes_with_too_many_pods_are_cells():
    """A link for each of thousands of pods would be no picture, and a page of megabytes."""
    pods = tuple(pod(f"p-{n}", on=f"node-{n % 20}", cpu="1m") for n in range(MOST_BLOCKS + 1))
    nodes = tuple(node(f"node-{n}") for n in range(20))
    drawing = draw_cluster(cluster_picture(ClusterDocuments(now_s=NOW_S, nodes=nodes, pods=pods)), {})
    assert ([len(pool.cells) for pool in drawing.pools], drawing.columns) == ([20], ())
