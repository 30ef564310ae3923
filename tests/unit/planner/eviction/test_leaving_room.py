"""The room of a pod that is leaving is not free before it has gone, however the planner came to know of it (A2)."""

from dataclasses import replace

import pytest

from autoscaler.domain import AdmitGang, CreatePod, PodPhase
from autoscaler.planner import Memo, plan
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node, web


class NoMemo:
    """Each plan from nothing."""

    def plan(self, cluster):
        return plan(cluster.view(), CALM, cluster.now())


class Kept:
    """The memo that the loop keeps."""

    def __init__(self):
        self.memo = Memo()

    def plan(self, cluster):
        return plan(cluster.view(), CALM, cluster.now(), memo=self.memo)


@pytest.fixture(params=[NoMemo, Kept])
def planner(request):
    return request.param()


def begun(planned):
    """How many pods the plan creates now."""
    gangs = sum(len(action.pods) for action in planned.actions if isinstance(action, AdmitGang))
    return gangs + sum(isinstance(action, CreatePod) for action in planned.actions)


def standing(name, cpu_milli, phase=PodPhase.READY):
    return replace(web(name, cpu_milli), node="a", phase=phase, unschedulable_since_s=None)


def test_a_web_pod_that_leaves_makes_no_room_yet(planner):
    """Told to go, leaving, gone: only the last lets the job begin."""
    cluster = MemoryCluster([node("a", 4_000)], [job("j", low=1, high=1, cpu_milli=2_000)])
    cluster.put(standing("w", 3_000))
    assert begun(planner.plan(cluster)) == 0
    cluster.put(standing("w", 3_000, PodPhase.TERMINATING))
    assert begun(planner.plan(cluster)) == 0
    assert begun(planner.plan(cluster)) == 0
    cluster.lose("w")
    assert begun(planner.plan(cluster)) > 0


def test_a_pod_that_is_found_leaving_makes_no_room(planner):
    """It stood nowhere in what the planner knew before."""
    cluster = MemoryCluster([node("a", 4_000)])
    planner.plan(cluster)
    cluster.put(standing("w", 3_000, PodPhase.TERMINATING), job("j", low=1, high=1, cpu_milli=2_000))
    assert begun(planner.plan(cluster)) == 0
    cluster.lose("w")
    assert begun(planner.plan(cluster)) > 0


def test_a_leaving_pod_that_stays_after_all_keeps_its_room(planner):
    """A view may take a verdict back: a deletion that was only expected did not happen."""
    cluster = MemoryCluster([node("a", 4_000)], [job("j", low=1, high=1, cpu_milli=2_000)])
    for phase in (PodPhase.READY, PodPhase.TERMINATING, PodPhase.READY, PodPhase.TERMINATING):
        cluster.put(standing("w", 3_000, phase))
        assert begun(planner.plan(cluster)) == 0
    cluster.lose("w")
    assert begun(planner.plan(cluster)) > 0


def test_a_trainer_that_leaves_makes_no_room_for_another_job(planner):
    """Rule 8: a gang starts into room that is free now, nothing terminating counted."""
    cluster = MemoryCluster([node("a", 4_000)], [job("old", low=1, high=2, cpu_milli=2_000)])
    for _ in range(4):
        for action in planner.plan(cluster).actions:
            cluster.carry_out(action)
        cluster.advance(1.0)
    trainers = sorted(name for name, pod in cluster.pods.items() if pod.role == "trainer")
    assert len(trainers) == 2
    cluster.put(job("new", low=1, high=1, cpu_milli=2_000))
    cluster.put(replace(cluster.pods[trainers[-1]], phase=PodPhase.TERMINATING))
    assert all(action.job != "new" for action in planner.plan(cluster).actions if isinstance(action, AdmitGang))
    cluster.lose(trainers[-1])
    assert any(action.job == "new" for action in planner.plan(cluster).actions if isinstance(action, AdmitGang))
