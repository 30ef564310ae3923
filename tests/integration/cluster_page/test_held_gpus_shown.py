"""The page of a cluster shows held GPUs: reports come through the real client, whose caches keep them trimmed."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import yaml
from aiohttp import web

from autoscaler.cluster_page.cluster_source import ClusterSource
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, NODE_GPUS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.parsing.object_trimming import TRIMMERS
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.gpus.report_documents import make_object, make_status
from autoscaler.views.cluster.cluster_picture import cluster_picture
from autoscaler.views.cluster.pod_view import NodeUnit, Use
from tests.harness.page_cluster import NOW_S, node, pod
from tests.harness.waiting import BUDGET_S

KINDS = (TRAINING_JOBS, PODS, NODES, DEPLOYMENTS, NODE_GPUS, EVENTS)
IDLE = GpuReport(uuid="u0", model="T4", verdict=GpuVerdict.HELD, low_since_s=NOW_S - 900, pods=("nb/alice",))
REPORT = NodeGpuReport(node="big", gpus=(IDLE,), reported_at_s=NOW_S)


async def answer(request):
    """Lists as an API server gives them; no watch has news."""
    if request.query.get("watch"):
        await asyncio.Event().wait()
    kind = next(one for one in KINDS if request.path.endswith(f"/{one.plural}"))
    items = {
        NODES: [node("big", gpus=8)],
        PODS: [pod("alice", on="big", namespace="nb", deployment="notebook", gpus=1)],
        NODE_GPUS: [make_object("big", "") | {"status": make_status(REPORT)}],
    }
    metadata = {"resourceVersion": "7"}
    found = [one | {"metadata": one["metadata"] | metadata} for one in items.get(kind, ())]
    return web.json_response({"kind": f"{kind.kind}List", "metadata": metadata, "items": found})


async def refuse(api, title):
    raise AssertionError(title)


@pytest.fixture
async def api(tmp_path):
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = "http://{}:{}".format(*runner.addresses[0])
    (tmp_path / "kubeconfig").write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": address}}],
                "users": [{"name": "x", "user": {"token": "any"}}],
            }
        )
    )
    found = await connect(tmp_path / "kubeconfig", trimmers=TRIMMERS)
    yield found
    await found.close()
    await runner.cleanup()


async def test_a_gpu_that_is_held_and_not_used_is_told_from_one_at_work(api):
    """Also one of eight: what its owner holds is idle, and the rest of the node free."""
    source = ClusterSource(api, title="test", read_snapshot=refuse)
    watching = asyncio.create_task(source.run())
    async with AsyncExitStack() as stack:
        stack.callback(watching.cancel)
        async with asyncio.timeout(BUDGET_S):
            while source.documents() is None:  # noqa: ASYNC110 - two watches
                await asyncio.sleep(0.01)
        documents = replace(source.documents(), now_s=NOW_S)
        held = {(one.use, one.unit): one.amount for one in cluster_picture(documents).holdings}
    await asyncio.gather(watching, return_exceptions=True)
    assert held == {(Use.IDLE, NodeUnit.GPUS): 1_000, (Use.FREE, NodeUnit.GPUS): 7_000}
