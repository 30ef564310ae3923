"""Views that are kept from one change to the next: what they would be if they were made anew, and no more work."""

import random
from dataclasses import replace

import pytest

from autoscaler.views.documents import EVERYTHING, ClusterDocuments, Rights
from autoscaler.views.history.samples import sample_of
from autoscaler.views.pages.now_view import now_view
from autoscaler.views.pages.waiting_view import waiting_view
from autoscaler.views.view_memo import ViewMemo
from tests.harness.page_cluster import NOW_S, demo_documents, deployment, job, node, pod

OF_TEAM = Rights(namespaces=frozenset({"team"}), can_read_nodes=True, can_plan=False)
WITHOUT_NODES = Rights(namespaces=None, can_read_nodes=False, can_plan=False)


def changed(documents: ClusterDocuments, rng: random.Random, number: int) -> ClusterDocuments:
    """The documents with one pod, job, node or Deployment more, another, or gone."""
    kind = rng.choice(("pods", "jobs", "nodes", "deployments"))
    namespace = rng.choice(("team", "rivals"))
    made = {
        "pods": lambda: pod(
            f"p{number}-trainer-0",
            on=rng.choice(("node-1", "node-2", "")),
            job=rng.choice(("digits-a", "")),
            tier=rng.choice(("core", "surplus")),
            namespace=namespace,
        ),
        "jobs": lambda: job(f"j{number}", namespace=namespace, age_s=rng.randrange(100)),
        "nodes": lambda: node(f"n{number}"),
        "deployments": lambda: deployment(f"d{number}", replicas=2, namespace=namespace),
    }[kind]()
    objects = list(getattr(documents, kind))
    at = rng.randrange(len(objects) + 1)
    match rng.choice(("new", "other", "gone")):
        case "new":
            objects.append(made)
        case "other" if at < len(objects):
            objects[at] = {**objects[at], "spec": {**objects[at]["spec"], "x": number}}
        case _ if at < len(objects):
            del objects[at]
    objects.sort(key=lambda one: (one["metadata"].get("namespace", ""), one["metadata"]["name"]))
    return replace(documents, **{kind: tuple(objects)})


@pytest.mark.parametrize("seed", range(5))
def test_kept_views_are_those_that_would_be_made_anew(seed):
    """After each of many changes, for viewers of all, of a namespace, and without nodes, in turns."""
    rng, memo, documents = random.Random(seed), ViewMemo(), demo_documents()
    for number in range(40):
        documents = changed(documents, rng, number)
        for rights in (EVERYTHING, OF_TEAM, WITHOUT_NODES):
            kept = replace(documents, memo=memo).readable(rights)
            anew = replace(documents, memo=ViewMemo()).readable(rights)
            assert now_view(kept) == now_view(anew)
            assert waiting_view(kept) == waiting_view(anew)
            assert sample_of(kept) == sample_of(anew)


def test_what_did_not_change_is_not_made_again():
    """A job's new status leaves the picture, and one of another namespace leaves everything."""
    documents = replace(demo_documents(), memo=ViewMemo())
    before, own = now_view(documents), now_view(documents.readable(OF_TEAM))
    jobs = (job("digits-a", message="another", ready=3, age_s=700), *documents.jobs[1:])
    after = now_view(replace(documents, jobs=jobs))
    assert after.picture is before.picture
    assert after.deployments is before.deployments
    assert after.jobs[1] is before.jobs[1]
    elsewhere = replace(documents, pods=(pod("x", namespace="rivals"), *documents.pods))
    seen = elsewhere.readable(OF_TEAM)
    assert seen.pods is documents.readable(OF_TEAM).pods
    assert now_view(seen).picture is own.picture


def test_a_pod_changes_its_own_node_alone():
    memo = ViewMemo()
    documents = replace(demo_documents(), memo=memo)
    before = now_view(documents).picture
    more = replace(documents, pods=(*documents.pods, pod("new", on="node-3", cpu="10m")))
    after = now_view(more).picture
    assert [one is other for one, other in zip(before.nodes, after.nodes, strict=True)] == [True, True, False]


def test_views_of_now_name_what_is_now():
    """The instant is no part of what is kept."""
    memo = ViewMemo()
    first, second = (sample_of(replace(demo_documents(), memo=memo, now_s=at)) for at in (NOW_S, NOW_S + 9))
    assert first is not None
    assert second == replace(first, at_s=NOW_S + 9)
