"""Connections of a page: who does not read or ask is cut, nobody has them all, and those over TLS go on."""

import asyncio
import socket
import ssl
import sys
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace

import aiohttp

from autoscaler.page import page_server
from autoscaler.page.access import answer_limits
from autoscaler.page.access.connections import ConnectionBounds
from autoscaler.page.access.request_checks import LOOPBACK_HOSTS
from autoscaler.page.access.token_access import TokenAccess
from autoscaler.page.live import live_answers
from autoscaler.page.page_app import PageApp, PageSettings
from autoscaler.page.page_server import serve_locally, serving
from tests.harness.attacker import needs_root
from tests.harness.certificates import ClusterAuthority
from tests.harness.page_client import DEADLINE_S, fetch, next_part, status_of
from tests.harness.page_cluster import demo_documents, job


async def test_a_viewer_that_does_not_read_is_cut(source, monkeypatch):
    """Its connection is gone with what was to be sent, and its place is free."""
    monkeypatch.setattr(answer_limits, "WRITE_LIMIT_S", 0.1)
    monkeypatch.setattr(answer_limits, "LEAST_BYTES_PER_S", 1e9)
    async with idle_viewer(source, "/live/now") as (viewer, page), asyncio.timeout(DEADLINE_S):
        for wanted in (1, 0):
            while page.viewers != wanted:  # noqa: ASYNC110 - it tells of no change
                await asyncio.sleep(0.005)
        assert await received(viewer) < 300_000, "the rest was kept for it"


@asynccontextmanager
async def idle_viewer(source, path):
    """A viewer who has asked for half a megabyte and reads nothing, and the page."""
    source.change(replace(demo_documents(), jobs=tuple(job(f"j{n}", message="x" * 5_000) for n in range(100))))
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as viewer:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        page = PageApp(source, TokenAccess("secret", 1), PageSettings(hosts=LOOPBACK_HOSTS))
        async with serving(page, listening):
            viewer.connect(listening.getsockname())
            viewer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n".encode())
            viewer.setblocking(False)
            yield viewer, page


async def received(viewer):
    """Bytes until the end of the connection."""
    got = 0
    with suppress(ConnectionResetError):
        while data := await asyncio.get_running_loop().sock_recv(viewer, 65_536):
            got += len(data)
    return got


async def test_an_answer_that_is_not_read_is_cut(source, monkeypatch):
    """Not kept for as long as its client likes."""
    monkeypatch.setattr(answer_limits, "WRITE_LIMIT_S", 0.1)
    monkeypatch.setattr(answer_limits, "LEAST_BYTES_PER_S", 1e9)
    cut = asyncio.Event()
    aborted = answer_limits.cut

    def noticed(request):
        aborted(request)
        cut.set()

    monkeypatch.setattr(answer_limits, "cut", noticed)
    async with idle_viewer(source, "/api/now") as (viewer, _), asyncio.timeout(DEADLINE_S):
        await cut.wait()
        assert await received(viewer) < 300_000, "the rest was kept for it"


async def test_one_viewer_has_a_bounded_number_of_answers_under_way(source, monkeypatch):
    """Of pages, and of streams."""
    monkeypatch.setattr(answer_limits, "MOST_AT_ONCE", 1)
    async with (
        idle_viewer(source, "/api/now") as (viewer, _),
        aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as client,
        asyncio.timeout(DEADLINE_S),
    ):
        base = "http://{}:{}".format(*viewer.getpeername())
        while (await status_of(client, base + "/")) != 429:  # noqa: ASYNC110 - it tells of no change
            await asyncio.sleep(0.005)
        async with client.get(base + "/live/now") as stream:
            await next_part(stream)
            assert await status_of(client, base + "/live/waiting/waiting") == 429
        viewer.close()
        while (await status_of(client, base + "/")) != 200:  # noqa: ASYNC110 - it tells of no change
            await asyncio.sleep(0.005)


async def test_connections_are_bounded(source, monkeypatch):
    """One more than allowed ends at once, before anything is read of it, and there is room again for one that ends."""
    monkeypatch.setattr(page_server, "MOST_LOCAL_CONNECTIONS", 2)
    async with serve_locally(source) as address, asyncio.timeout(DEADLINE_S):
        where = ("127.0.0.1", int(address.partition("/?")[0].rpartition(":")[2]))
        with ExitStack() as stack:
            opened = [stack.enter_context(socket.create_connection(where)) for _ in range(3)]
            for one in opened:
                one.setblocking(False)
            assert await received(opened[2]) == 0
        while not await is_let_in(address):  # noqa: ASYNC110 - it tells of no change
            await asyncio.sleep(0.005)


HOLDER = """
import os, socket, sys
where, count = ("127.0.0.1", int(sys.argv[1])), int(sys.argv[2])
socket.create_connection(where).close()  # imports what this user may not read
os.setuid(65534)
held = [socket.create_connection(where) for _ in range(count)]
print("held", flush=True)
sys.stdin.read()
"""


@needs_root
async def test_connections_of_another_user_shut_nobody_out(source, monkeypatch):
    """It may hold as many as it likes without a request; the run's own user gets one all the same."""
    monkeypatch.setattr(page_server, "MOST_LOCAL_CONNECTIONS", 6)
    monkeypatch.setattr(page_server, "MOST_LOCAL_WITH_OTHERS", 3)
    async with serve_locally(source) as address, asyncio.timeout(DEADLINE_S):
        port = address.partition("/?")[0].rpartition(":")[2]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", HOLDER, port, "12"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert await process.stdout.readline() == b"held\n"
            assert await is_let_in(address)
        finally:
            process.kill()
            await process.wait()


async def is_let_in(address):
    base, _, token = address.partition("/?token=")
    try:
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as client:
            return await status_of(client, base + "/") == 200
    except aiohttp.ClientError:
        return False


@asynccontextmanager
async def encrypted_page(source, tmp_path):
    """A page that ends TLS itself, for this machine and as edl.example: its address, and a client that trusts it."""
    pair = ClusterAuthority(tmp_path).issue("page", "page", addresses=["127.0.0.1"])
    encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    encryption.load_cert_chain(pair.certificate, pair.key)
    trusted = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        page = PageApp(source, TokenAccess("secret", 1), PageSettings(hosts=LOOPBACK_HOSTS | {"edl.example"}))
        async with (
            serving(page, listening, encryption=encryption),
            aiohttp.ClientSession(
                headers={"Authorization": "Bearer secret"}, connector=aiohttp.TCPConnector(ssl=trusted)
            ) as client,
        ):
            yield f"https://127.0.0.1:{listening.getsockname()[1]}", client


async def test_over_https_pages_and_streams_go_on(source, tmp_path, monkeypatch):
    """Many answers on one connection and many signs of life on another, none of which waits for a client that reads."""
    monkeypatch.setattr(live_answers, "HEARTBEAT_S", 0.01)
    async with encrypted_page(source, tmp_path) as (base, client), asyncio.timeout(answer_limits.WRITE_LIMIT_S / 2):
        for _ in range(5):
            await fetch(client, base + "/")
        async with client.get(base + "/live/now") as stream:
            for _ in range(10):
                await stream.content.readuntil(b"event: alive\ndata: 1\n\n")


async def test_a_page_that_ends_tls_is_not_asked_over_http(source, tmp_path):
    """Browsers are told so for its name, and not for a loopback one; no request of its HTTP twin is taken."""
    async with encrypted_page(source, tmp_path) as (base, client):
        for host, told in (("edl.example", "max-age=2592000"), ("localhost", None), ("127.0.0.1", None)):
            async with client.get(f"{base}/", headers={"Host": host}) as answer:
                assert (answer.status, answer.headers.get("Strict-Transport-Security")) == (200, told)
            for scheme, status in (("https", 200), ("http", 403)):
                assert await status_of(client, f"{base}/", Host=host, Origin=f"{scheme}://{host}") == status


async def test_who_speaks_no_tls_is_cut(source, tmp_path):
    """A connection that does not begin leaves its place, and the others go on."""
    pair = ClusterAuthority(tmp_path).issue("page", "page", addresses=["127.0.0.1"])
    encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    encryption.load_cert_chain(pair.certificate, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        page = PageApp(source, TokenAccess("secret", 1), PageSettings(hosts=LOOPBACK_HOSTS))
        bounds = ConnectionBounds(1, 1)
        async with serving(page, listening, encryption=encryption, bounds=bounds), asyncio.timeout(DEADLINE_S):
            for _ in range(3):
                with socket.create_connection(listening.getsockname()) as plain:
                    plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    plain.setblocking(False)
                    assert await received(plain) < 100


async def test_a_request_whose_head_does_not_end_is_cut(source, monkeypatch):
    monkeypatch.setattr(page_server, "KEEP_ALIVE_S", 0.1)
    async with serve_locally(source) as address, asyncio.timeout(DEADLINE_S):
        port = int(address.partition("/?")[0].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost:")
        assert await reader.read() == b""
        writer.close()
