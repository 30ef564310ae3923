"""The operator's reports on GPUs: newest by node, bad ones dropped, and a question to an agent."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from math import inf

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.kinds import NODE_GPUS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.clusters.kubernetes.memory_api.memory_server import MemoryServer
from autoscaler.clusters.kubernetes.parsing.node_gpus import problem_of, report_of
from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import NO_REPORTS, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.fault_isolation import JobErrors
from autoscaler.gpus.report_documents import make_object, make_status, renewal_asked_at_s
from autoscaler.operator.store.gpu_report_store import GpuReportStore
from tests.harness.virtual_time import now, run

NOW_S = 1_800_000_000.0


def report(node, at_s=NOW_S):
    gpu = GpuReport(uuid="GPU-0", model="T4", verdict=GpuVerdict.HELD, low_since_s=NOW_S - 600, pods=(PodName("ml/a"),))
    return NodeGpuReport(node=NodeName(node), gpus=(gpu,), reported_at_s=at_s)


class Bench:
    def __init__(self):
        self.api = MemoryApi(MemoryServer(now=lambda: NOW_S + now()))
        self.store = GpuReportStore(self.api, JobErrors(now), clock=now, jitter=lambda: 0.0)

    async def write(self, node, status):
        if not any(one["metadata"]["name"] == node for one in (await self.api.list(NODE_GPUS)).items):
            await self.api.create(NODE_GPUS, make_object(NodeName(node), ""))
        await self.api.patch(NODE_GPUS, node, {"status": status}, subresource=Subresource.STATUS)
        await asyncio.sleep(1.0)


@asynccontextmanager
async def followed():
    bench = Bench()
    task = asyncio.create_task(bench.store.run())
    await asyncio.sleep(1.0)
    yield bench
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_newest_report_of_each_node_is_kept_and_goes_with_its_object():
    """Also one that an agent whose clock was set back wrote later."""

    async def main():
        async with followed() as bench:
            assert bench.store.is_synced
            assert bench.store.reports() == NO_REPORTS
            for node in ("n1", "n2"):
                await bench.write(node, make_status(report(node)))
            assert bench.store.reports().by_node == {"n1": report("n1"), "n2": report("n2")}
            assert bench.store.reports() is bench.store.reports()
            await bench.write("n1", make_status(report("n1", NOW_S - 5)))
            await bench.api.delete(NODE_GPUS, "n2")
            await asyncio.sleep(1.0)
            assert bench.store.reports().by_node == {"n1": report("n1", NOW_S - 5)}

    run(main())


def test_a_report_is_as_old_as_its_arrival_says():
    """A question of the operator's makes none younger, and how old the first of a node is, nobody knows."""

    async def main():
        async with followed() as bench:
            await bench.write("n1", make_status(report("n1")))
            first = bench.store.reports()
            assert bench.store.arrived_at_s("n1") == -inf
            await bench.store.ask_for_report("n1", NOW_S)
            await asyncio.sleep(1.0)
            assert bench.store.reports() is first
            assert bench.store.arrived_at_s("n1") == -inf
            await bench.write("n1", make_status(report("n1", NOW_S + 50)))
            assert bench.store.reports().by_node["n1"].reported_at_s == NOW_S + 50
            assert bench.store.arrived_at_s("n1") == now()
            await bench.api.delete(NODE_GPUS, "n1")
            await asyncio.sleep(1.0)
            assert bench.store.reports() == NO_REPORTS
            assert bench.store.arrived_at_s("n1") == -inf

    run(main())


def test_a_report_that_cannot_be_read_is_dropped_and_told():
    """Its node counts as without one; the others' reports stand."""

    async def main():
        async with followed() as bench:
            for node in ("n1", "n2"):
                await bench.write(node, make_status(report(node)))
            nonsense = make_status(report("n1"))
            nonsense["gpus"] *= 1_000
            await bench.write("n1", nonsense)
            assert set(bench.store.reports().by_node) == {"n2"}
            assert "status.gpus" in bench.store.refused["n1"]
            await bench.write("n1", make_status(report("n1")))
            assert set(bench.store.reports().by_node) == {"n1", "n2"}
            assert bench.store.refused == {}

    run(main())


def test_an_object_that_a_fault_of_the_reader_left_whole_has_no_report():
    """One bad object stops no stream (A11), and its node counts as without a report."""
    whole = make_object(NodeName("n1"), "") | {"status": make_status(report("n1"))}
    assert report_of(whole) is None
    assert problem_of(whole)


def test_a_report_is_asked_for_once_a_minute():
    """The agent finds the time in its object; the report in hand stays."""

    async def main():
        async with followed() as bench:
            await bench.write("n1", make_status(report("n1")))
            for later_s in (100.0, 110.0):
                await bench.store.ask_for_report(NodeName("n1"), NOW_S + later_s)
            assert renewal_asked_at_s(await bench.api.get(NODE_GPUS, "n1")) == NOW_S + 100.0
            await bench.store.ask_for_report(NodeName("n1"), NOW_S + 200.0)
            assert renewal_asked_at_s(await bench.api.get(NODE_GPUS, "n1")) == NOW_S + 200.0
            await asyncio.sleep(1.0)
            assert bench.store.reports().by_node == {"n1": report("n1")}

    run(main())
