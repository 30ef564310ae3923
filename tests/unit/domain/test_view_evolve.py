"""A view brought forward is the view that a new listing would give, and shares what did not change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import ClusterView, History, PodPhase, Role, Tier, Workload
from autoscaler.errors import InvalidViewError
from tests.unit.planner.setups import job, node, shape, web

names = st.sampled_from([f"w{number}" for number in range(100)])


def trainer(name, ordinal=0, owner="j"):
    return replace(web(name), role=Role.TRAINER, tier=Tier.CORE, job=owner, ordinal=ordinal)


@given(st.sets(names), st.dictionaries(names, st.integers(0, 9)), st.sets(names))
def test_evolved_view_equals_a_new_one(before, given_pods, gone):
    """Sorted, gone ones out, given ones in; by ones and by many."""
    old = ClusterView(revision=1, observed_at_s=0.0, pods=tuple(web(name) for name in before))
    new = old.evolve(
        revision=2, observed_at_s=1.0, pods=[web(name, cpu) for name, cpu in given_pods.items()], gone_pods=gone
    )
    pods = {name: web(name) for name in before - gone} | {name: web(name, cpu) for name, cpu in given_pods.items()}
    assert new == ClusterView(revision=2, observed_at_s=1.0, pods=tuple(pods.values()))


def test_what_did_not_change_is_the_same_object():
    """Identity is what the planner's memo goes by."""
    old = ClusterView(revision=1, observed_at_s=0.0, nodes=(node("a"), node("b")), jobs=(job("j"),), pods=(web("w"),))
    new = old.evolve(revision=2, nodes=[node("b", 9)], workloads=[Workload(name="x", shape=shape(1))])
    assert new.pods is old.pods
    assert new.jobs is old.jobs
    assert new.nodes[0] is old.nodes[0]
    assert new.nodes[1].allocatable.cpu_milli == 9
    assert [workload.name for workload in new.workloads] == ["x"]
    remembered = new.evolve(history=History(since_s=5.0))
    assert (remembered.history.since_s, remembered.revision, remembered.nodes) == (5.0, 2, new.nodes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": [node("a", -1)]}, "negative"),
        ({"pods": [web("w", -1)]}, "negative"),
        ({"pods": [web("w"), web("w")]}, "given twice"),
        ({"pods": [trainer("k", ordinal=3)]}, "trainer 3"),
        ({"pods": [trainer("t1", ordinal=3)]}, "trainer 3"),
        ({"pods": [replace(web("w"), phase=PodPhase.READY)]}, "without a node"),
        ({"jobs": [job("j", submitted_at_s=float("nan"))]}, "submitted at nan"),
    ],
)
def test_changes_that_contradict_are_refused(changes, words):
    """The door is as narrow as for a new view."""
    old = ClusterView(revision=1, observed_at_s=0.0, pods=(trainer("t1", 1), trainer("t3", 3), trainer("u3", 3, "k")))
    with pytest.raises(InvalidViewError, match=words):
        old.evolve(**changes)


def test_ordinal_is_free_again_once_its_pod_is_gone():
    """In one change too."""
    old = ClusterView(revision=1, observed_at_s=0.0, pods=(trainer("t1", 1), trainer("t3", 3)))
    new = old.evolve(pods=[trainer("t1", 3)], gone_pods=["t3"])
    assert [(pod.name, pod.ordinal) for pod in new.pods] == [("t1", 3)]
