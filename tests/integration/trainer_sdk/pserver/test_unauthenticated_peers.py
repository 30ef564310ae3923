"""Who may speak to a parameter server, and what becomes of those who may not, speak badly or not at all."""

import logging
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from master.api.host.log_lines import PlainFormatter
from master.api.identities import (
    Lineage,
    TableSpec,
)
from tests.harness.certificates import JobAuthority
from tests.integration.trainer_sdk.pserver.in_process_servers import BUCKETS, PATIENCE_S, TABLES, batch, span, verdicts
from trainer_sdk.errors import AuthenticationError, ServerUnavailableError
from trainer_sdk.pserver.client.pserver_client import PserverClient
from trainer_sdk.pserver.core.messages import PushVerdict
from trainer_sdk.pserver.process.data_listener import DataListener
from trainer_sdk.transport.frames import FrameChannel, FrameKind, WireLimits
from trainer_sdk.transport.handshake import connect_handshake
from trainer_sdk.transport.security import Security
from trainer_sdk.transport.server_connection import ConnectionSettings


@pytest.fixture
def strict_port(new_job):
    """A job's server on a second port, with short time limits."""
    job = new_job(1).restore()
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    limits = WireLimits(io_s=0.5, hello_s=1.0, frame_bytes=1 << 20)
    listener = DataListener(job.servers[0].service, Security(), listening, limits)
    yield job, listener
    listener.close()


def connect(listener):
    return socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE_S)


def wait_until(holds):
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 400, b"EDLp" + b"\xff" * 30, b"EDLp\x05\0\0\0\xff\xff\0\0" + b"\xff" * 8, b""],
)
def test_stranger_ends_its_own_connection_only(new_job, said):
    """Garbage before and after the hello; the server goes on serving."""
    job = new_job(1).restore()
    with connect(job.servers[0].listener) as sock:
        sock.sendall(said)
        with suppress(OSError):  # the server may have gone before
            sock.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while sock.recv(4096):
                pass
    assert verdicts(job.push(0, 4)) == {(PushVerdict.APPLIED, "0-31")}


def test_stranger_that_says_its_hello_byte_by_byte_is_sent_away(strict_port):
    """Each byte comes within the limit of one operation, the hello as a whole does not."""
    _, listener = strict_port
    until_s = time.monotonic() + PATIENCE_S
    with connect(listener) as sock, suppress(OSError):
        sock.sendall(b"E")
        while True:
            assert time.monotonic() < until_s
            sock.sendall(b"\0")
            time.sleep(0.05)
    wait_until(lambda: not listener._open and not listener._handshaking)


@pytest.mark.parametrize("end", ["server", "client"])
def test_who_says_nothing_at_all_is_waited_for_no_longer_than_a_hello(new_job, end):
    """It was the time of an operation within a frame, three times as long; a member at a stopped server waited so."""
    limits = WireLimits(io_s=1000.0, hello_s=0.3)
    if end == "client":
        near, far = socket.socketpair()
        with near, far, pytest.raises(TimeoutError):
            connect_handshake(FrameChannel(near, limits), Security(), "a trainer")
    else:
        listener = DataListener(
            new_job(1).servers[0].service, Security(), socket.create_server(("127.0.0.1", 0)), limits
        )
        with socket.create_connection(("127.0.0.1", listener.port), timeout=PATIENCE_S) as silent:
            while silent.recv(4096):
                pass
        listener.close()


def greeted(listener):
    """A connection of one who greets in time; on a busy machine that may take more than one attempt."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        sock = connect(listener)
        try:
            connect_handshake(FrameChannel(sock, WireLimits()), Security(), "half")
        except OSError:
            sock.close()
            assert time.monotonic() < until_s
        else:
            return sock


@pytest.mark.parametrize("size", [(1 << 20) - 1, (1 << 20) + 8, 1 << 63])
def test_body_that_never_comes_ends_the_connection(strict_port, size):
    """Half a frame, or one larger than the limit: no answer, no change, and the server goes on."""
    job, listener = strict_port
    with greeted(listener) as sock:
        sock.sendall(struct.pack("<4sB3xIQ", b"EDLp", FrameKind.PUSH, 0, size) + b"half")
        with suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert job.counts() == [0] * 24


@pytest.mark.usefixtures("many_descriptors")
def test_thousand_silent_connections_do_not_stop_training(strict_port):
    """They take a waiting thread each until their hello is due; a trainer is served meanwhile."""
    job, listener = strict_port
    silent = [connect(listener) for _ in range(1000)]
    try:
        assert verdicts(job.push(0, 4)) == {(PushVerdict.APPLIED, "0-31")}
        route = replace(job.route, servers=(replace(job.route.servers[0], address=f"127.0.0.1:{listener.port}"),))
        client = PserverClient(settings=ConnectionSettings(budget_s=PATIENCE_S))
        client.set_route(route, TABLES, BUCKETS)
        assert verdicts(client.push(Lineage(1), span(0, 4), batch(np.arange(4)))) == {(PushVerdict.REPEAT, "0-31")}
        client.close()
        wait_until(lambda: not listener._open and not listener._handshaking)
    finally:
        for sock in silent:
            sock.close()


@pytest.mark.usefixtures("many_descriptors")
def test_strangers_that_say_nothing_keep_no_member_out(new_job):
    """They used to take all 1024 places for the 10 s of their hello; now they push out one another."""
    job = new_job(1).restore()
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listener = DataListener(job.servers[0].service, Security(), listening, WireLimits())
    silent = [connect(listener) for _ in range(1100)]
    try:
        route = replace(job.route, servers=(replace(job.route.servers[0], address=f"127.0.0.1:{listener.port}"),))
        client = PserverClient(settings=ConnectionSettings(budget_s=PATIENCE_S))
        client.set_route(route, TABLES, BUCKETS)
        assert verdicts(client.push(Lineage(1), span(0, 4), batch(np.arange(4)))) == {(PushVerdict.APPLIED, "0-31")}
        assert len(listener._handshaking) <= 256
        client.close()
    finally:
        for sock in silent:
            sock.close()
        listener.close()


def test_server_that_gets_no_thread_cuts_who_comes_and_takes_in_the_next(new_job):
    """The thread that accepts ended with the first failure: strangers who used up a limit left a deaf server."""
    job = new_job(1).restore()
    before = threading.stack_size(1 << 47)  # larger than the address space: the system starts no thread
    try:
        address = ("127.0.0.1", job.servers[0].listener.port)
        with socket.create_connection(address, timeout=20) as sock, suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    finally:
        threading.stack_size(before)
    assert verdicts(job.push(0, 4)) == {(PushVerdict.APPLIED, "0-31")}


@pytest.mark.parametrize(
    "hello",
    [b"[" * 4000, b'{"version": "5\\n2026-11-22T00:00:00.000Z INFO master: all is well\\u001b[2J"}'],
    ids=["deep", "forged line"],
)
def test_a_strangers_hello_leaves_one_harmless_line_in_the_log(new_job, caplog, hello):
    """It was a traceback of RecursionError, and a line of the log that the stranger had written."""
    caplog.set_level(logging.INFO)
    job = new_job(1).restore()
    with connect(job.servers[0].listener) as sock:
        channel = FrameChannel(sock, WireLimits())
        channel.receive_hello()
        channel.send(FrameKind.HELLO, hello)
        with suppress(OSError):
            while sock.recv(4096):
                pass
    wait_until(lambda: any("connection ended" in record.getMessage() for record in caplog.records))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    said = [PlainFormatter().format(record) for record in caplog.records]
    assert not any(
        line.startswith("2026-11-22T00:00:00.000Z") or "\x1b" in line for text in said for line in text.split("\n")
    )


def test_garbage_after_the_hello_is_answered_and_the_connection_closed(new_job):
    """A push whose body is not what its head says changes nothing."""
    job = new_job(1).restore()
    other = PserverClient(settings=ConnectionSettings(budget_s=PATIENCE_S))
    wrong = (TableSpec(name="w", shape=(31, 40)), *TABLES[1:])
    other.set_route(job.route, wrong, BUCKETS)
    with pytest.raises(Exception, match="refuses"):
        other.push(Lineage(1), span(0, 4), {"w": np.zeros((31, 40), dtype=np.float32)})
    other.close()
    assert verdicts(job.push(0, 4)) == {(PushVerdict.APPLIED, "0-31")}


def test_secret_is_needed_on_both_sides(new_job):
    """EDL_TOKEN_FILE: a client without it, and one that finds a server without it, are refused."""
    job = new_job(1, security=Security(token=b"secret")).restore()
    assert verdicts(job.push(0, 4)) == {(PushVerdict.APPLIED, "0-31")}
    for wrong in (Security(), Security(token=b"guess")):
        client = PserverClient(wrong, ConnectionSettings(budget_s=PATIENCE_S))
        client.set_route(job.route, TABLES, BUCKETS)
        with pytest.raises(AuthenticationError):
            client.pull()
        client.close()


def test_tls_carries_the_data_and_shuts_out_plain_clients(new_job, tmp_path):
    """EDL_TLS_DIR: both sides show a certificate of the job's authority."""
    tls = tmp_path / "tls"
    JobAuthority("job").issue(tls)
    security = Security(tls_folder=tls)
    for context in (security.server_context(), security.client_context()):
        assert context.verify_mode is ssl.CERT_REQUIRED
    job = new_job(2, security=security).restore()
    assert verdicts(job.push(0, 4)) == {(PushVerdict.APPLIED, "0-31")}
    _, pulled = job.client.push_and_pull(Lineage(1), span(4, 8), batch(np.arange(4, 8)))
    assert pulled is not None
    assert job.counts() == [1] * 8 + [0] * 16
    plain = PserverClient(Security(), ConnectionSettings(budget_s=0.2, limits=WireLimits(io_s=1.0)))
    plain.set_route(job.route, TABLES, BUCKETS)
    with pytest.raises(ServerUnavailableError):
        plain.pull()
    plain.close()
    JobAuthority("another job").issue(tmp_path / "other")
    other = PserverClient(
        Security(tls_folder=tmp_path / "other"),
        ConnectionSettings(budget_s=PATIENCE_S, connect_s=PATIENCE_S),
        is_outdated=lambda: True,  # so that it is tried once
    )
    other.set_route(job.route, TABLES, BUCKETS)
    with pytest.raises(ServerUnavailableError, match="certificate"):
        other.pull()
    other.close()
