"""The API server in memory keeps the contract, and shows the faults that a real one cannot be asked for."""

from types import SimpleNamespace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS
from autoscaler.clusters.kubernetes.api.memory import MemoryApi, MemoryServer, collect
from tests.unit.kube_api_contract import KubeApiContract, Stage

NOON = 1_800_000_000.0


@pytest.fixture
def clock():
    return SimpleNamespace(now_s=NOON)


@pytest.fixture
def server(clock):
    server = MemoryServer(now=lambda: clock.now_s, namespaces=("test",))
    server.history.forget(server.history.version)
    return server


@pytest.fixture
def stage(server):
    async def collected(probe):
        collect(server)
        assert await probe()

    async def forgotten():
        return CONFIG_MAPS, "1"

    return Stage(
        api=MemoryApi(server),
        other=MemoryApi(server, field_manager="somebody"),
        namespace="test",
        shortest_s=0.01,
        collect=collected,
        forgotten=forgotten,
    )


class TestMemoryApi(KubeApiContract):
    pass
