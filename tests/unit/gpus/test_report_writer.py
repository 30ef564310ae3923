"""When reports are written, in virtual time: at once where one must not be believed, else seldom (ADR 0283)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.errors import PermanentError, TemporaryError
from autoscaler.gpus.agent.node_gpus_api import AgentIdentity
from autoscaler.gpus.agent.node_reports import NodeReports
from autoscaler.gpus.agent.report_writer import ReportWriter
from autoscaler.gpus.report_documents import parse_report, to_time
from tests.harness.virtual_time import now, run

N1 = NodeName("n1")
EPOCH_S = 1_800_000_000.0
ACTIVE = GpuReport(uuid="GPU-0", model="T4", verdict=GpuVerdict.ACTIVE, pods=(PodName("ml/a"),))
HELD = replace(ACTIVE, verdict=GpuVerdict.HELD, low_since_s=EPOCH_S)
FREE = GpuReport(uuid="GPU-0", model="T4", verdict=GpuVerdict.FREE, low_since_s=EPOCH_S)


class Cluster:
    """One node's object, and when its status was written."""

    def __init__(self):
        self.object = None
        self.written_at_s = []
        self.asked_at_s = []
        self.error = None

    async def get(self, node):
        self.asked_at_s.append(now())
        return self.object

    async def create(self, body):
        self.object = body

    async def write_status(self, node, status):
        if self.error is not None:
            self.written_at_s.append(now())
            raise self.error
        if self.object is None:
            return False
        self.object = self.object | {"status": status}
        self.written_at_s.append(now())
        return True


@asynccontextmanager
async def agent(cluster):
    """`told(gpu, seconds)`: a sample every 5 s with this GPU."""
    writer = ReportWriter(cluster, AgentIdentity(node=N1, uid="u"), jitter=lambda: 0.0, clock=now)
    task = asyncio.create_task(writer.run())

    async def told(gpu, seconds):
        until_s = now() + seconds
        while now() < until_s:
            writer.offer(NodeGpuReport(node=N1, gpus=(gpu,), reported_at_s=EPOCH_S + now()))
            await asyncio.sleep(5)

    yield told
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_node_whose_verdicts_stand_writes_once_an_hour():
    """The object is made once, and no sample is a write."""
    cluster = Cluster()

    async def main():
        async with agent(cluster) as told:
            await told(ACTIVE, 7100)

    run(main())
    assert len(cluster.written_at_s) == 3  # the first, and after 54 and 108 minutes
    assert cluster.object["metadata"]["name"] == "n1"
    assert cluster.asked_at_s == []


def test_a_held_gpu_is_renewed_and_the_operators_question_is_answered():
    """Every ten minutes, and within half a minute of a question."""
    cluster = Cluster()

    async def main():
        async with agent(cluster) as told:
            await told(HELD, 1000)
            assert len(cluster.written_at_s) == 2
            cluster.object["spec"] = {"renewAfter": to_time(EPOCH_S + now())}
            asked_at_s = now()
            await told(HELD, 60)
            assert asked_at_s <= cluster.written_at_s[2] <= asked_at_s + 35
            assert len(cluster.written_at_s) == 3

    run(main())
    assert parse_report(cluster.object).gpus[0].verdict is GpuVerdict.HELD


@pytest.mark.parametrize(
    ("after", "within_s"), [(ACTIVE, 0.1), (replace(HELD, pods=(PodName("ml/b"),)), 0.1), (FREE, 0.1)]
)
def test_an_idle_gpu_that_is_idle_no_more_is_told_with_its_sample(after, within_s):
    """Work that began, and another pod: a report that must not be believed stands for no interval."""
    cluster = Cluster()

    async def main():
        async with agent(cluster) as told:
            await told(HELD, 300)
            before, changed_at_s = len(cluster.written_at_s), now()
            await told(after, 5)
            assert cluster.written_at_s[before] - changed_at_s <= within_s

    run(main())


def test_other_changes_come_together():
    """A GPU that became idle waits half a minute for others; one that is busy again by then was never news."""
    cluster = Cluster()

    async def main():
        async with agent(cluster) as told:
            await told(ACTIVE, 100)
            changed_at_s = now()
            await told(HELD, 20)
            await told(ACTIVE, 100)
            assert len(cluster.written_at_s) == 1
            changed_at_s = now()
            await told(HELD, 60)
            assert cluster.written_at_s[1:] == [pytest.approx(changed_at_s + 30, abs=5.1)]

    run(main())


def test_failures_are_tried_again_after_growing_pauses():
    """A server that refuses everything for an hour gets a few tries, and then the newest report."""
    cluster = Cluster()
    cluster.error = TemporaryError("429", retry_after_s=7.0)

    async def main():
        async with agent(cluster) as told:
            await told(ACTIVE, 3600)
            assert 10 <= len(cluster.written_at_s) <= 40
            assert cluster.written_at_s[1] - cluster.written_at_s[0] >= 7.0
            cluster.error = None
            await told(HELD, 400)

    run(main())
    assert parse_report(cluster.object).gpus[0].verdict is GpuVerdict.HELD


def test_an_object_that_somebody_removed_is_made_again():
    """Its node may have been removed and come back."""
    cluster = Cluster()

    async def main():
        async with agent(cluster) as told:
            await told(HELD, 100)
            cluster.object = None
            await told(HELD, 100)

    run(main())
    assert parse_report(cluster.object) is not None


def test_an_error_of_the_agent_itself_comes_out_as_it_was_raised():
    """The command tells it in a line; a group of one error would be a traceback."""

    async def main():
        async with NodeReports(Cluster(), AgentIdentity(node=N1, uid="u")).writing():
            await asyncio.sleep(0)
            raise PermanentError("the driver was upgraded")

    with pytest.raises(PermanentError, match="the driver was upgraded"):
        run(main())
