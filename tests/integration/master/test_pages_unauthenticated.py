"""Strangers at a door that asks nobody who he is: metrics and health of masters and operators (ADR 0192)."""

import asyncio
import os
import socket
import time
import urllib.request
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from autoscaler.operator.process.operator_settings import ProbeAddress
from autoscaler.operator.process.probes import OperatorState, serve_probes
from master.api.host import http_pages as module
from master.api.host.http_pages import CachedPage, Page, listen_at, serving
from tests.harness.master_process import JOB, MasterProcess, free_port, running, wait_for_condition, wait_for_leader
from tests.harness.master_status import get_status
from tests.integration.master.test_unauthenticated_peers import count

pytestmark = pytest.mark.usefixtures("many_descriptors")

STRANGERS = 1100
HALF = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
WHOLE = HALF + b"\r\n"
LARGE = bytes(8 << 20)  # more than the sockets' buffers take


@asynccontextmanager
async def strangers(port, count, said):
    """That many connections, each of which has said this and reads nothing."""
    writers = []

    async def come():
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(60):
                _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writers.append(writer)
            writer.write(said)

    try:
        await asyncio.gather(*(come() for _ in range(count)))
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()


async def get(port, path, *, method="GET"):
    """The answer's first line, and its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with asyncio.timeout(60):
            answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), body


@pytest.mark.parametrize("said", [b"", HALF], ids=["silent", "half a request"])
async def test_strangers_at_the_metrics_take_no_master_away(tmp_path, said):
    """Each had a thread and a descriptor for ever: members could not come in, and the kubelet's probe failed."""
    port = free_port()
    master = MasterProcess(tmp_path, EDL_METRICS_LISTEN=f"127.0.0.1:{port}")
    async with running(master):
        await wait_for_leader(master)
        async with strangers(port, STRANGERS, said):
            proc = f"/proc/{master._process.pid}"
            assert count(f"{proc}/fd") < 600  # those that make way and those just taken: at most a backlog of each
            await wait_for_condition(lambda: has_few_open(proc))
            assert count(f"{proc}/task") < 40
            await get_status(master.address, JOB)
            assert b"edl_master_leads 1.0" in (await get(port, "/metrics"))[1]


async def has_few_open(proc):
    """Whether those that made way for newer ones are closed."""
    return count(f"{proc}/fd") < 400


@asynccontextmanager
async def health(render=lambda: b"edl 1\n"):
    async with serve_probes(
        ProbeAddress(host="127.0.0.1", port=0),
        state=lambda: OperatorState(knows_leader=True, is_leading=False),
        render=render,
    ) as port:
        yield port


@pytest.mark.parametrize("said", [b"", HALF, WHOLE], ids=["silent", "half a request", "reads no answer"])
async def test_strangers_at_the_operators_port_keep_no_probe_out(said, monkeypatch):
    """They kept every descriptor that the operator could have, so that the kubelet killed it."""
    monkeypatch.setattr(module, "_ANSWER_WITHIN_S", 1000.0)  # else all of them were over anyway, after a while
    async with health(render=lambda: LARGE) as port, strangers(port, 300, said):
        assert await get(port, "/healthz") == ("HTTP/1.1 200 OK", b"ok\n")
        await wait_for_condition(lambda: holds_few(port))


async def holds_few(port):
    """Whether the listening process has let go of those that made way for newer ones."""
    return taken_at(port) < 280


def taken_at(port):
    """Connections that the listening process holds a descriptor of."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(line[1].endswith(f":{port:04X}") and line[3] != "0A" and line[9] != "0" for line in lines)


async def test_a_page_is_made_once_however_many_ask():
    """Each scrape was made anew in the loop that leads the cluster: a few that asked in a row took all its time."""
    made = []
    async with health(render=lambda: (made.append(1), b"edl 1\n")[1]) as port:
        begun = time.monotonic()
        answers = await asyncio.gather(*(get(port, "/metrics") for _ in range(100)))
        assert set(answers) == {("HTTP/1.1 200 OK", b"edl 1\n")}
        assert len(made) <= 1 + time.monotonic() - begun


def test_a_kept_page_is_made_anew_when_it_is_old():
    """So that no scrape sees a picture of long ago."""
    made = iter(range(100))
    page = CachedPage(lambda: Page(body=b"%d" % next(made)), kept_s=0.0)
    assert [page().body, page().body] == [b"0", b"1"]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET /healthz?x HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"\xff\xfe \xff\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET \xff HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 4000 + b"\r\n", b""),
        (b"GET", b""),
    ],
)
async def test_whatever_a_stranger_says_ends_its_own_connection_only(said, status):
    """One answer at most, and the next one is served."""
    async with health() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        answer = b""
        with suppress(OSError):
            writer.write_eof()
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                answer = await reader.read()
        writer.close()
        assert answer.split(b"\r\n")[0] == status
        assert await get(port, "/healthz") == ("HTTP/1.1 200 OK", b"ok\n")


@pytest.mark.parametrize("turns", range(6))
async def test_who_comes_while_it_ends_is_cut_too(turns):
    """A connection that was taken and not yet begun stayed open until the process ended."""
    async with serving(listening := listen_at("127.0.0.1", 0), {}):
        clients = [socket.create_connection(listening.getsockname()) for _ in range(8)]
        for _ in range(turns):
            await asyncio.sleep(0)
    for client in clients:
        client.setblocking(False)
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        client.close()


async def test_a_large_page_comes_whole():
    """Prometheus and curl read it to its last byte."""
    body = os.urandom(3 << 20)
    async with serving(listening := listen_at("127.0.0.1", 0), {"/": lambda: Page(body=body)}):
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        assert await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=60).read()) == body


async def test_a_page_that_cannot_be_made_is_told_in_the_log(caplog):
    """Its asker's connection ends, and the next page is served."""
    pages = {"/bad": lambda: Page(body=b"%d" % (1 // 0)), "/good": lambda: Page(body=b"good")}
    async with serving(listening := listen_at("127.0.0.1", 0), pages):
        port = listening.getsockname()[1]
        with suppress(ConnectionError):
            assert await get(port, "/bad") == ("", b"")
        assert (await get(port, "/good"))[1] == b"good"
    assert "a page could not be made" in caplog.text
