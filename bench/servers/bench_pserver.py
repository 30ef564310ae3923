"""Benchmark of a parameter server: push + pull beside a bare socket with the same bytes, sparse rows, pushes in a cut.

Each size is one float32 table with plain SGD on one server in a process of its own; both ways count.  The bare socket
(a thread of the same child process, sendall and recv_into) moves the same bytes in the same run, its rounds taken in
turn with those of the parameter server, so both see the same machine; so are rounds over a Unix socket, as `edl run`
has them.  Over TLS both ends use the job's certificates.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bench.reporting.result_rows import Row, print_rows
from master.api.checkpoints.storage import open_storage
from master.api.identities import CutId, Incarnation, Lineage, MemberName, Route, ServerPlace, TableSpec, Term, Version
from master.api.messages.from_members import Held, ServerMessage
from master.api.messages.to_members import Cut, Hold, Restore
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.pserver.client.pserver_client import PserverClient
from trainer_sdk.pserver.process.data_listener import DataListener
from trainer_sdk.pserver.process.parameter_server import ParameterServer
from trainer_sdk.pserver.shell import ServerContext
from trainer_sdk.transport.frames import WireLimits
from trainer_sdk.transport.security import Security

_BUCKETS = 256
_SIZES = {"64 kB": 64 * 1024, "1 MB": 1024 * 1024, "16 MB": 16 * 1024 * 1024}
_ROUND_S = 0.25
_ROUNDS = 7
_ROWS = 1_000_000
_WIDTH = 16
_COMMITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """What the child process offers."""

    client: PserverClient
    second: PserverClient  # of another trainer
    near: PserverClient  # over a Unix socket
    bare: socket.socket
    control: Connection


def main() -> None:
    print_rows(rows())


def rows() -> list[Row]:
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        tls = Path(folder) / "tls"
        _make_certificates(tls)
        for label, security, goal in (("", Security(), 0.5), (" TLS", Security(tls_folder=tls), 0.7)):
            for size_name, size in _SIZES.items():
                with _serving(security, folder, (_dense(size),)) as servers:
                    found += _throughput(f"{size_name}{label}", servers, size, goal)
        with _serving(Security(), folder, (_sparse(),)) as servers:
            found += _sparse_rates(servers)
        with _serving(Security(), folder, (_dense(_SIZES["16 MB"]), _sparse())) as servers:
            found += _commits(servers)
    return found


def _dense(size: int) -> TableSpec:
    return TableSpec(name="w", shape=(size // 4,))


def _sparse() -> TableSpec:
    return TableSpec(name="e", shape=(_ROWS, _WIDTH), kind="sparse")


# ---- what is measured -----------------------------------------------------------------------------------------------


def _throughput(name: str, servers: Servers, size: int, goal: float) -> Iterator[Row]:
    gradient = np.zeros(size // 4, dtype=np.float32)
    out, back = gradient.data.cast("B"), memoryview(bytearray(size))
    step = count(1)

    def ours() -> None:
        at = next(step)
        servers.client.push_and_pull(Lineage(1), PositionSet.span(at, at + 1), {"w": gradient}, ["w"])

    def apart() -> None:
        at = next(step)
        servers.client.push(Lineage(1), PositionSet.span(at, at + 1), {"w": gradient})
        servers.client.pull(["w"])

    def near() -> None:
        at = next(step)
        servers.near.push_and_pull(Lineage(1), PositionSet.span(at, at + 1), {"w": gradient}, ["w"])

    def bare() -> None:
        servers.bare.sendall(out)
        _receive(servers.bare, back)

    rates: dict[Callable[[], None], list[float]] = {ours: [], bare: [], near: [], apart: []}
    for work in rates:
        _rate(work, _ROUND_S)
    for _ in range(_ROUNDS):
        for work, found in rates.items():
            found.append(_rate(work, _ROUND_S) * 2 * size / 1e6)
    ratio = statistics.median(a / b for a, b in zip(rates[ours], rates[bare], strict=True))
    yield Row(name=f"pserver push+pull {name}", value=round(statistics.median(rates[ours])), unit="MB/s")
    yield Row(name=f"pserver push, then pull {name}", value=round(statistics.median(rates[apart])), unit="MB/s")
    yield Row(name=f"bare socket {name}", value=round(statistics.median(rates[bare])), unit="MB/s")
    yield Row(
        name=f"pserver push+pull {name}, Unix socket / loopback",
        value=round(statistics.median(a / b for a, b in zip(rates[near], rates[ours], strict=True)), 2),
        unit="",
        goal=">= 1",
    )
    longer_s = statistics.median(
        2 * size / 1e6 * (1 / a - 1 / b) for a, b in zip(rates[ours], rates[bare], strict=True)
    )
    yield Row(
        name=f"pserver push+pull {name} / bare socket",
        value=round(ratio, 2),
        unit="",
        goal=f">= {goal}",
        note=f"with SGD applied and marks kept; a bare socket computes nothing. {longer_s * 1e6:.0f} us longer a batch",
    )


def _sparse_rates(servers: Servers) -> Iterator[Row]:
    random = np.random.default_rng(0)
    rows_each = 4096
    gradient = np.zeros((rows_each, _WIDTH), dtype=np.float32)
    step = count(1)
    batches = [random.choice(_ROWS, rows_each, replace=False) for _ in range(200)]

    def push() -> None:
        at = next(step)
        servers.client.push(Lineage(1), PositionSet.span(at, at + 1), {"e": (batches[at % 200], gradient)})

    def pull() -> None:
        servers.client.pull_rows("e", batches[next(step) % 200])

    for work, name in ((push, "pushed"), (pull, "pulled")):
        _rate(work, _ROUND_S)
        rates = [_rate(work, _ROUND_S) * rows_each for _ in range(_ROUNDS)]
        yield Row(
            name=f"pserver sparse rows {name}, {_ROWS:,} rows of {_WIDTH}, {rows_each} a message",
            value=round(statistics.median(rates)),
            unit="rows/s",
        )


def _commits(servers: Servers) -> Iterator[Row]:
    """What five commits cost the trainers: one pushes everything, another a few rows, so often that holds are met."""
    gradient = np.zeros(_SIZES["16 MB"] // 4, dtype=np.float32)
    ids = np.arange(_ROWS, dtype=np.int64)
    few = (ids[::1000], np.ones((len(ids[::1000]), _WIDTH), np.float32))
    steps = count(_ROWS)
    for at in range(0, _ROWS, _ROWS // 10):  # every row and every page has been written once
        some = (ids[at : at + _ROWS // 10], np.ones((_ROWS // 10, _WIDTH), np.float32))
        _timed_push(servers.client, next(steps), {"w": gradient, "e": some})
    took: dict[str, list[float]] = {"quiet": [], "commit": [], "rows": []}
    is_over = threading.Event()

    def push_rows() -> None:
        while not is_over.is_set():
            took["rows"].append(_timed_push(servers.second, next(steps), {"e": few}))

    def push_everything(for_s: float, into: list[float]) -> None:
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            into.append(_timed_push(servers.client, next(steps), {"w": gradient, "e": few}))

    beside = threading.Thread(target=push_rows)
    beside.start()
    try:
        push_everything(1.0, took["quiet"])
        for sequence in range(1, _COMMITS + 1):
            servers.control.send(sequence)
            push_everything(1.0, took["commit"])
    finally:
        is_over.set()
        beside.join()
    held_s = servers.control.recv()
    yield Row(
        name=f"pserver longest hold of a push in {_COMMITS} commits (16 MB dense, 1M sparse rows)",
        value=round(held_s * 1e3, 1),
        unit="ms",
        goal="<= 50",
        note=f"two trainers push, the master's round trip is 2 ms. A push of 16 MB as its trainer sees it: median "
        f"{_ms(statistics.median(took['quiet']))} without a commit, {_ms(statistics.median(took['commit']))} while "
        f"files are written, longest {_ms(max(took['quiet']))} and {_ms(max(took['commit']))}",
    )


def _timed_push(client: PserverClient, at: int, gradients: dict[str, Any]) -> float:
    begun = time.perf_counter()
    client.push(Lineage(1), PositionSet.span(at, at + 1), gradients)
    return time.perf_counter() - begun


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"


def _rate(work: Callable[[], None], for_s: float) -> float:
    """Calls a second."""
    begun = time.perf_counter()
    calls = 0
    while True:
        work()
        calls += 1
        passed = time.perf_counter() - begun
        if passed >= for_s:
            return calls / passed


# ---- the child process ----------------------------------------------------------------------------------------------


@contextmanager
def _serving(security: Security, folder: str, tables: tuple[TableSpec, ...]) -> Iterator[Servers]:
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_serve, args=(there, security, folder, tables))
    child.start()
    port, bare_port, path = here.recv()
    place = ServerPlace(name=MemberName("s"), incarnation=Incarnation("i"), address=f"127.0.0.1:{port}", ordinal=0)
    route = Route(
        revision=1,
        lineage=Lineage(1),
        servers=(place,),
        owner=(0,) * _BUCKETS,
        version=(Version(0),) * _BUCKETS,
    )
    client, second, near = PserverClient(security), PserverClient(security), PserverClient(security)
    for one in (client, second):
        one.set_route(route, tables, _BUCKETS)
    near.set_route(replace(route, servers=(replace(place, address=f"unix:{path}"),)), tables, _BUCKETS)
    bare = socket.create_connection(("127.0.0.1", bare_port))
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    context = security.client_context()
    try:
        dialled = context.wrap_socket(bare) if context else bare
        yield Servers(client=client, second=second, near=near, control=here, bare=dialled)
    finally:
        client.close()
        second.close()
        near.close()
        bare.close()
        here.close()
        child.join(10)
        child.kill()


def _serve(there: Connection, security: Security, folder: str, tables: tuple[TableSpec, ...]) -> None:
    ready = threading.Event()

    def tell(message: ServerMessage) -> None:
        ready.set()
        said.append(message)

    said: list[ServerMessage] = []
    storage = open_storage(f"{folder}/checkpoints")
    service = ParameterServer(
        name=MemberName("s"),
        incarnation=Incarnation("i"),
        context=ServerContext(storage=storage, notify_master=tell, fatal=lambda _: os.abort()),
    )
    service.control(
        Restore(
            incarnation=Incarnation("i"),
            lineage=Lineage(1),
            base=None,
            files=(),
            data=EMPTY,
            quarantine=EMPTY,
            tables=tables,
            bucket_count=_BUCKETS,
            buckets=PositionSet.span(0, _BUCKETS),
            version=Version(0),
        )
    )
    ready.wait(30)
    listener = DataListener(service, security, socket.create_server(("127.0.0.1", 0)), WireLimits())
    path = f"{tempfile.mkdtemp(dir=folder)}/s"
    near = socket.socket(socket.AF_UNIX)
    near.bind(path)
    near.listen()
    DataListener(service, security, near, WireLimits())
    bare = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_echo, args=(bare, security.server_context(), _table_bytes(tables)), daemon=True).start()
    there.send((listener.port, bare.getsockname()[1], path))
    try:
        while True:
            sequence = there.recv()
            cut = CutId(term=Term(1), lineage=Lineage(1), sequence=sequence)
            service.control(Hold(cut=cut))
            time.sleep(0.002)  # the master's round trip
            held = next(message for message in reversed(said) if isinstance(message, Held))
            service.control(Cut(cut=cut, data=union(marks.applied for marks in held.marks)))
            if sequence == _COMMITS:
                time.sleep(1.0)
                there.send(service.longest_hold_s)
    except EOFError:
        os._exit(0)


def _table_bytes(tables: tuple[TableSpec, ...]) -> int:
    return tables[0].shape[0] * 4


def _echo(listening: socket.socket, context: ssl.SSLContext | None, size: int) -> None:
    sock, _ = listening.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is not None:
        sock = context.wrap_socket(sock, server_side=True)
    buffer = memoryview(bytearray(size))
    while _receive(sock, buffer):
        sock.sendall(buffer)


def _receive(sock: socket.socket, buffer: memoryview) -> bool:
    at = 0
    while at < len(buffer):
        got = sock.recv_into(buffer[at:])
        if not got:
            return False
        at += got
    return True


def _make_certificates(folder: Path) -> None:
    """One self-signed certificate that is its own authority, for both ends."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edl bench")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "ca.crt").write_bytes(pem)
    (folder / "tls.crt").write_bytes(pem)
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


if __name__ == "__main__":
    main()
