"""The API of a run behind its socket keeps the contract of every API server, and is its owner's alone."""

import asyncio
import stat
from contextlib import aclosing
from types import SimpleNamespace

import pytest

from autoscaler.clusters.kubernetes.api.errors import BadRequestError, ThrottledError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer, collect
from autoscaler.clusters.local.control_plane import api_socket
from autoscaler.clusters.local.control_plane.api_socket import ApiSocket
from autoscaler.clusters.local.control_plane.api_wire import LONGEST_CALL_BYTES
from autoscaler.clusters.local.control_plane.socket_client import SocketApi
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
async def stage(server, tmp_path):
    async def collected(probe):
        collect(server)
        assert await probe()

    async def forgotten():
        return CONFIG_MAPS, "1"

    mine, others = tmp_path / "mine", tmp_path / "others"
    other = MemoryApi(server, field_manager="somebody")
    async with ApiSocket(MemoryApi(server), mine), ApiSocket(other, others):
        yield Stage(
            api=SocketApi(mine),
            other=SocketApi(others),
            namespace="test",
            shortest_s=0.01,
            collect=collected,
            forgotten=forgotten,
        )


class TestSocketApi(KubeApiContract):
    pass


async def test_the_socket_is_its_owners_alone_and_goes_with_the_run(server, tmp_path):
    """Nobody else may connect; behind a run nothing is left."""
    path = tmp_path / "api"
    async with ApiSocket(MemoryApi(server), path):
        mode = await asyncio.to_thread(lambda: path.stat().st_mode)
        assert stat.S_IMODE(mode) & 0o077 == 0
    with pytest.raises(UnavailableError) as caught:
        await SocketApi(path).list(CONFIG_MAPS)
    assert not caught.value.may_have_happened


@pytest.mark.parametrize(
    "line", [b"\n", b"[]\n", b"{}\n", b'{"v": 2, "call": "list", "arguments": {}}\n', b'{"v": 1, "call": "close"}\n']
)
async def test_what_is_no_call_is_refused_and_the_next_one_served(server, tmp_path, line):
    """A faulty terminal harms nobody."""
    path = tmp_path / "api"
    async with ApiSocket(MemoryApi(server), path):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(line)
        assert b"BadRequestError" in await reader.readline()
        writer.close()
        await writer.wait_closed()
        assert (await SocketApi(path).list(CONFIG_MAPS)).items == ()


async def test_a_call_without_end_is_cut_off_and_the_next_one_served(server, tmp_path):
    """What one terminal may send is bounded."""
    path = tmp_path / "api"
    async with ApiSocket(MemoryApi(server), path):
        reader, writer = await asyncio.open_unix_connection(str(path))
        try:
            writer.write(b"x" * (2 * LONGEST_CALL_BYTES))
            await writer.drain()
            answer = await reader.readline()
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        assert b"result" not in answer
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        assert (await SocketApi(path).list(CONFIG_MAPS)).items == ()


async def test_calls_beyond_the_bound_are_refused_for_now(server, tmp_path, monkeypatch):
    """Whoever holds all connections open holds up the other terminals, never the run."""
    monkeypatch.setattr(api_socket, "MOST_CONNECTIONS", 1)
    path = tmp_path / "api"
    async with ApiSocket(MemoryApi(server), path) as socket:
        _, idle = await asyncio.open_unix_connection(str(path))
        await until(lambda: socket._connections)
        with pytest.raises(ThrottledError, match="more than 1 calls are open"):
            await SocketApi(path).list(CONFIG_MAPS)
        idle.close()
        await idle.wait_closed()
        await until(lambda: not socket._connections)
        assert (await SocketApi(path).list(CONFIG_MAPS)).items == ()


async def test_a_call_that_is_not_of_the_port_is_refused(server, tmp_path):
    """Only the calls of the port: no attribute of the server is reached by its name."""
    path = tmp_path / "api"
    async with ApiSocket(MemoryApi(server), path):
        with pytest.raises(BadRequestError, match="there is no call 'close'"):
            await SocketApi(path)._call("close", CONFIG_MAPS)


async def test_a_watch_whose_caller_has_gone_gives_its_place_back(server, tmp_path, monkeypatch):
    """However long it would have lasted, and though nothing changes."""
    monkeypatch.setattr(api_socket, "MOST_CONNECTIONS", 1)
    path = tmp_path / "api"
    async with ApiSocket(MemoryApi(server), path) as socket:
        api = SocketApi(path)
        since = str(server.history.version)
        async with aclosing(api.watch(CONFIG_MAPS, since=since, timeout_s=60, silence_s=60)) as events:
            waiting = asyncio.ensure_future(anext(events))
            await until(lambda: socket._connections)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: not socket._connections)
        assert (await api.list(CONFIG_MAPS)).items == ()


async def until(condition):
    """In a moment, or the test's own deadline is over."""
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("a minute is over")
