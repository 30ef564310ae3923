"""Writes of one plan beside one another: a web pod does not wait for sixty deletions in a row."""

import asyncio

import pytest

from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.domain import AdmitGang, CreatePod, DeletePod, PodPhase
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.loop import CALL_LIMIT_S, CONCURRENT_WRITES, Loop
from tests.harness import virtual_time
from tests.harness.virtual_time import now
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node, web

WRITE_S = 0.1


class Slow(MemoryCluster):
    """Every write takes `WRITE_S`; of the deletions, those that `hangs` names by their number hang, `fails` fail."""

    def __init__(self, *args, hangs=(), fails=(), **kwargs):
        super().__init__(*args, **kwargs)
        self.hangs, self.fails = hangs, fails
        self.deletions = 0
        self.most = {}
        self.under_way = []

    async def apply(self, action):
        number, self.deletions = self.deletions, self.deletions + isinstance(action, DeletePod)
        self.under_way.append(action)
        self.most[type(action)] = max(self.most.get(type(action), 0), len(self.under_way))
        assert len({type(one) for one in self.under_way}) == 1
        try:
            if isinstance(action, DeletePod) and number in self.hangs:
                await asyncio.Event().wait()
            await asyncio.sleep(WRITE_S)
        finally:
            self.under_way.remove(action)
        if isinstance(action, DeletePod) and number in self.fails:
            return WriteOutcome(result=WriteResult.FAILED, message="503")
        return await super().apply(action)


async def rise(**faults):
    """A job has filled ten nodes; then the web wants eight of them.  Returns the cluster, the pass, and its time."""
    cluster = Slow([node(f"n{number}") for number in range(10)], [job("j", high=40)], **faults)
    loop = Loop(cluster, CALM)
    while len(cluster.pods) < 41:  # the master too
        await loop.run_pass()
        cluster.advance(20.0)
    cluster.put(*(web(f"w{number}", created_at_s=cluster.now_s) for number in range(32)))
    began_s = now()
    step = await loop.run_pass()
    return cluster, step, now() - began_s


def leaving(cluster):
    return sum(pod.phase is PodPhase.TERMINATING for pod in cluster.pods.values())


def test_thirty_deletions_take_as_long_as_two():
    cluster, step, took_s = virtual_time.run(rise())
    assert leaving(cluster) == 32
    assert took_s == pytest.approx(2 * WRITE_S, abs=0.01)
    assert cluster.most[DeletePod] == cluster.most[CreatePod] == CONCURRENT_WRITES
    assert tuple(action for action, _ in step.applied) == step.plan.actions


def test_one_that_fails_or_hangs_holds_up_no_other():
    cluster, step, took_s = virtual_time.run(rise(hangs={0}, fails={1}))
    assert leaving(cluster) == 30
    assert [outcome.result for _, outcome in step.applied[:3]] == [
        WriteResult.FAILED,
        WriteResult.FAILED,
        WriteResult.DONE,
    ]
    assert step.applied[0][1].message == "no answer within 30 s"
    assert took_s == pytest.approx(CALL_LIMIT_S, abs=0.01)


@pytest.mark.parametrize("write", [CreatePod, DeletePod])
def test_job_whose_writes_fail_gives_way_to_the_web_at_once(write):
    """A pause keeps a job from creating, for minutes; what it has to give is taken meanwhile (A11, ADR 0157)."""

    async def main():
        cluster = Slow([node(f"n{number}") for number in range(2)], [job("j", high=40)])
        errors = JobErrors(lambda: cluster.now_s)
        loop = Loop(cluster, CALM, errors=errors)
        while len(cluster.pods) < 9:
            await loop.run_pass()
            cluster.advance(20.0)
        for _ in range(9):
            errors.record_failure(
                "j", GuardedTask.WRITE if write is CreatePod else GuardedTask.DELETE, ValueError("planted")
            )
        cluster.put(web("w", created_at_s=cluster.now_s))
        await loop.run_pass()
        assert leaving(cluster) == 1
        return errors

    errors = virtual_time.run(main())
    assert errors.fails("j", GuardedTask.WRITE) == (write is CreatePod), "a deletion mends no creation"


def test_gangs_start_side_by_side():
    """No start waits for the writes of another (ADR 0159)."""

    async def main():
        cluster = Slow([node(f"n{number}") for number in range(4)], [job(name, high=2) for name in ("a", "b", "c")])
        loop = Loop(cluster, CALM)
        await loop.run_pass()
        return cluster

    cluster = virtual_time.run(main())
    assert cluster.most[AdmitGang] == 3
    assert {pod.job for pod in cluster.pods.values()} == {"a", "b", "c"}
