"""Another leader of the operator: no event for the page of a cluster, whose open streams go on."""

import asyncio
import time
from contextlib import AsyncExitStack

import aiohttp
import pytest

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.errors import NotLeadingError
from autoscaler.clusters.kubernetes.api.kinds import LEASES, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.operator.leadership.candidate import LeaseTiming
from autoscaler.operator.leadership.lease import LeaseHolder, run_terms
from tests.harness.cluster_page_stage import POLICY, PageStage, cancel
from tests.harness.waiting import BUDGET_S

TIMING = LeaseTiming(duration_s=3, renew_deadline_s=2.0, retry_s=0.1)


class Operator:
    """A candidate that writes what it is told to into the status of the job, as long as it leads."""

    def __init__(self, stage, name):
        self.api = MemoryApi(stage.server)
        self.lease = LeaseHolder(
            self.api,
            namespace=POLICY[0],
            name="edl-operator",
            identity=name,
            timing=TIMING,
            clock=time.monotonic,
            wall_s=time.time,
        )
        self.says = asyncio.Queue()
        self.fenced = None
        self.running = asyncio.create_task(run_terms(self.lease, self.api, self.work))

    async def work(self, api):
        self.fenced = api
        while True:
            message = await self.says.get()
            conditions = [{"type": "Scaled", "status": "True", "reason": "NodeFit", "message": message}]
            status = {"conditions": conditions, "reason": "NodeFit", "trainers": {"ready": 1, "target": 1}}
            change = {"status": status}
            await api.patch(TRAINING_JOBS, "digits", change, namespace="red", subresource=Subresource.STATUS)


async def read_until(stream, words):
    received = b""
    async with asyncio.timeout(BUDGET_S):
        while words.encode() not in received:
            piece = await stream.content.readany()
            assert piece, "the stream has ended"
            received += piece


async def test_an_open_page_goes_on_under_another_leader():
    """One connection tells what the first leader wrote and what the next one did, which alone may write then."""
    async with AsyncExitStack() as stack:
        stage = PageStage()
        await stage.serve(stack, None)
        first = Operator(stage, "first")
        client = await stack.enter_async_context(aiohttp.ClientSession(headers={"Authorization": "Bearer admin"}))
        stream = await stack.enter_async_context(client.get(f"{stage.base}/live/now"))
        first.says.put_nowait("so says the first leader")
        await read_until(stream, "so says the first leader")
        second = Operator(stage, "second")
        stack.push_async_callback(cancel, second.running)
        await cancel(first.running)
        second.says.put_nowait("so says the second leader")
        await read_until(stream, "so says the second leader")
        assert stage.server.get(LEASES, POLICY[0], "edl-operator")["spec"]["holderIdentity"] == "second"
        with pytest.raises(NotLeadingError):
            await first.fenced.patch(TRAINING_JOBS, "digits", {"metadata": {"labels": {"late": "1"}}}, namespace="red")
        assert (await stage.get("/", "admin"))[0] == 200
