"""The API server in memory keeps the contract, and shows the faults that a real one cannot be asked for."""

import asyncio
from contextlib import aclosing
from types import SimpleNamespace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer, collect
from tests.harness.memory_users import MemoryUsers
from tests.unit.clusters.kubernetes.api.contract import KubeApiContract, Stage

NOON = 1_800_000_000.0


@pytest.fixture
def clock():
    return SimpleNamespace(now_s=NOON)


@pytest.fixture
def server(clock):
    server = MemoryServer(now=lambda: clock.now_s, namespaces=("test",))
    server.history.compact(server.history.version)
    return server


@pytest.fixture
def stage(server):
    async def collected(probe):
        collect(server)
        assert await probe()

    async def forgotten():
        return CONFIG_MAPS, "1"

    users = MemoryUsers(server)

    return Stage(
        api=MemoryApi(server),
        other=MemoryApi(server, field_manager="somebody"),
        namespace="test",
        shortest_s=0.01,
        collect=collected,
        forgotten=forgotten,
        user=lambda name, lists=None: users.make(name, "test", lists),
    )


class TestMemoryApi(KubeApiContract):
    pass


@pytest.mark.parametrize("turns", range(6))
async def test_watch_that_is_cancelled_beside_a_change_ends(server, turns):
    """However many turns of the loop the change is ahead: a task that loses its cancellation never ends."""
    api = MemoryApi(server)

    async def follow():
        since = str(server.history.version)
        watch = api.watch(CONFIG_MAPS, since=since, timeout_s=60.0, silence_s=60.0)
        async with aclosing(watch) as events:
            async for _ in events:
                pass

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    await api.create(CONFIG_MAPS, {"metadata": {"name": "one", "namespace": "test"}})
    for _ in range(turns):
        await asyncio.sleep(0)
    following.cancel()
    done, _ = await asyncio.wait({following}, timeout=60.0)
    following.cancel()
    assert done, "the cancellation was lost"
    assert following.cancelled()
