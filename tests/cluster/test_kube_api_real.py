"""The client on a real API server keeps the contract that the server in memory keeps."""

import asyncio

import pytest_asyncio

from autoscaler.clusters.kubernetes.api.client import connect
from tests.unit.kube_api_contract import KubeApiContract, Stage


@pytest_asyncio.fixture
async def stage(control_plane, namespace):
    api = await connect(control_plane.kubeconfig)
    other = await connect(control_plane.kubeconfig, field_manager="somebody")

    async def collected(probe):
        async with asyncio.timeout(60):
            while not await probe():  # noqa: ASYNC110 - nobody here can tell us
                await asyncio.sleep(0.1)  # another process does it

    yield Stage(api=api, other=other, namespace=namespace, shortest_s=1.0, collect=collected)
    await api.close()
    await other.close()


class TestRealApi(KubeApiContract):
    pass
