"""The API of a run behind its socket keeps the contract of every API server, and is its owner's alone."""

import asyncio
import math
import stat
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import SimpleNamespace

import pytest

from autoscaler.clusters.kubernetes.api.api_port import EventType
from autoscaler.clusters.kubernetes.api.errors import BadRequestError, ThrottledError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer, collect
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.local.control_plane import api_socket
from autoscaler.clusters.local.control_plane.api_socket import ApiSocket
from autoscaler.clusters.local.control_plane.api_wire import LONGEST_CALL_BYTES, encode_call
from autoscaler.clusters.local.control_plane.socket_client import SocketApi
from tests.harness.memory_users import MemoryUsers
from tests.unit.clusters.kubernetes.api.contract import KubeApiContract, Stage

NOON = 1_800_000_000.0
LARGE = tuple(f"large-{number}" for number in range(16))
"""Names of ConfigMaps of a MiB each: more than a connection holds."""


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

    users = MemoryUsers(server)
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
            user=lambda name, lists=None: users.make(name, "test", lists),
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


@pytest.mark.parametrize("call", ["get", "patch"])
async def test_a_call_that_does_not_end_gets_an_error_at_its_deadline(server, tmp_path, monkeypatch, call):
    """The caller reads whether its write may have happened, and its connection is free again."""

    class HangingApi(MemoryApi):
        async def get(self, *_args, **_kwargs):
            await asyncio.Event().wait()

        patch = get

    monkeypatch.setattr(api_socket, "CALL_DEADLINE_S", 0.05)
    path = tmp_path / "api"
    async with ApiSocket(HangingApi(server), path) as socket:
        with pytest.raises(UnavailableError, match=rf"{call}: not done within 0\.05 s") as caught:
            await SocketApi(path)._call(call, CONFIG_MAPS, name="some")
        assert caught.value.may_have_happened is (call == "patch")
        await until(lambda: not socket._connections)


async def test_a_caller_that_does_not_read_is_disconnected(server, tmp_path, monkeypatch):
    """However much it still has to be sent; its place is free again."""
    monkeypatch.setattr(api_socket, "WRITE_DEADLINE_S", 0.05)
    monkeypatch.setattr(api_socket, "MOST_CONNECTIONS", 1)
    path = tmp_path / "api"
    async with ApiSocket(MemoryApi(server), path) as socket, watch_without_reading(socket, server, path):
        await until(lambda: not socket._connections)
        monkeypatch.setattr(api_socket, "WRITE_DEADLINE_S", 60.0)  # a busy machine reads the next answer late
        assert len((await SocketApi(path).list(CONFIG_MAPS)).items) == len(LARGE)


async def test_a_run_ends_though_a_caller_does_not_read(server, tmp_path, monkeypatch):
    """At once: what it has not read is dropped."""
    monkeypatch.setattr(api_socket, "WRITE_DEADLINE_S", 1e6)
    path = tmp_path / "api"
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        async with ApiSocket(MemoryApi(server), path) as socket:
            await stack.enter_async_context(watch_without_reading(socket, server, path))
        assert not socket._connections


async def test_a_watch_ends_at_its_longest_time(server, tmp_path, monkeypatch):
    """Whatever it asked for: its caller watches again."""
    monkeypatch.setattr(api_socket, "LONGEST_WATCH_S", 0.05)
    path = tmp_path / "api"
    async with ApiSocket(MemoryApi(server), path):
        since = str(server.history.version)
        watched = SocketApi(path).watch(CONFIG_MAPS, since=since, timeout_s=math.inf, silence_s=60)
        async with aclosing(watched) as events:
            assert {event.type async for event in events} == {EventType.BOOKMARK}


@pytest.mark.parametrize("seconds", [math.nan, -1, "60", None])
async def test_a_watch_without_bounds_is_refused(server, tmp_path, seconds):
    """A watch that says no number would never end."""
    path = tmp_path / "api"
    async with ApiSocket(MemoryApi(server), path):
        watched = SocketApi(path).watch(CONFIG_MAPS, since="1", timeout_s=seconds, silence_s=60)
        async with aclosing(watched) as events:
            with pytest.raises(BadRequestError, match="timeout_s of a watch"):
                await anext(events)


@asynccontextmanager
async def watch_without_reading(socket, server, path):
    """A connection that has asked for more than it can hold, and reads none of it."""
    _, writer = await asyncio.open_unix_connection(str(path), limit=1)
    try:
        bounds = {"since": str(server.history.version), "timeout_s": 1e6, "silence_s": 1e6}
        writer.write(encode_call("watch", CONFIG_MAPS, bounds))
        await until(lambda: socket._connections)
        for name in LARGE:
            body = {"metadata": {"name": name, "namespace": "test"}, "data": {"large": "x" * (1 << 20)}}
            server.create(CONFIG_MAPS, body, FieldOwner("somebody", is_apply=False))
        await until(lambda: not writer.transport.is_reading())
        yield
    finally:
        writer.transport.abort()


async def until(condition):
    """In a moment, or the test's own deadline is over."""
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("a minute is over")
