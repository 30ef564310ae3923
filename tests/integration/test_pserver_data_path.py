"""Parameter servers over real sockets and real files: pushes, pulls, cuts, restores, strangers and broken disks."""

import resource
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from master.api.identities import (
    CutId,
    Incarnation,
    Initialiser,
    Lineage,
    ManifestId,
    MemberName,
    OptimiserSpec,
    Route,
    ServerPlace,
    TableSpec,
    Term,
    Version,
)
from master.api.messages import (
    Cut,
    CutRefused,
    CutTaken,
    Held,
    Hold,
    Refusal,
    Restore,
    Restored,
    RestoreFailed,
    Written,
)
from master.api.positions import EMPTY, PositionSet
from master.api.storage import open_storage
from tests.integration.certificates import Authority
from trainer_sdk.errors import AuthenticationError, NotReadyError, ServerUnavailableError, TableError
from trainer_sdk.pserver.checkpoint_file import read_index
from trainer_sdk.pserver.client import PserverClient
from trainer_sdk.pserver.connection import ClientSettings
from trainer_sdk.pserver.handshake import greet_server
from trainer_sdk.pserver.listener import Listener
from trainer_sdk.pserver.messages import Verdict
from trainer_sdk.pserver.security import Security
from trainer_sdk.pserver.service import Outside, Service
from trainer_sdk.pserver.wire import Channel, Kind, WireLimits

BUCKETS = 32
TABLES = (
    TableSpec(
        name="w",
        shape=(30, 40),
        initialiser=Initialiser(kind="normal", scale=1.0),
        optimiser=OptimiserSpec(kind="adam", learning_rate=0.1),
    ),
    TableSpec(name="c", shape=(24,), dtype="int64", optimiser=OptimiserSpec(learning_rate=-1.0)),
    TableSpec(name="e", shape=(200, 3), kind="sparse", dtype="int64", optimiser=OptimiserSpec(learning_rate=-1.0)),
)
FIRST = CutId(term=Term(1), lineage=Lineage(1), sequence=1)


def span(start, stop):
    return PositionSet.span(start, stop)


class Server:
    """One server in this process: its service, its port, and what it has told the master."""

    def __init__(self, index, folder, security):
        self.said = []
        self.heard = threading.Condition()
        self.broken = []
        outside = Outside(storage=open_storage(str(folder)), tell=self.tell, fatal=self.broken.append)
        self.incarnation = Incarnation(f"process-{index}")
        self.service = Service(name=MemberName(f"server-{index}"), incarnation=self.incarnation, outside=outside)
        listening = socket.create_server(("127.0.0.1", 0))
        self.listener = Listener(self.service, security, listening, WireLimits(io_s=5.0))

    @property
    def place(self):
        return ServerPlace(
            name=MemberName("s"), incarnation=self.incarnation, address=f"127.0.0.1:{self.listener.port}", ordinal=0
        )

    def tell(self, message):
        with self.heard:
            self.said.append(message)
            self.heard.notify_all()

    def wait_for(self, kind):
        with self.heard:
            assert self.heard.wait_for(lambda: any(isinstance(m, kind) for m in self.said), timeout=20), self.said
            return next(m for m in self.said if isinstance(m, kind))

    def close(self):
        self.listener.close()
        self.service.close()
        assert self.broken == []


class Job:
    """Some servers, their route and one trainer's client."""

    def __init__(self, folder, count, *, first=0, security=None, lineage=1, files=(), data=EMPTY):
        self.security = security or Security()
        self.lineage = Lineage(lineage)
        self.servers = [Server(first + index, folder, self.security) for index in range(count)]
        owner = tuple(bucket * count // BUCKETS for bucket in range(BUCKETS))
        self.orders = [
            Restore(
                incarnation=server.incarnation,
                lineage=self.lineage,
                base=ManifestId("m") if files else None,
                files=files,
                data=data,
                quarantine=EMPTY,
                tables=TABLES,
                bucket_count=BUCKETS,
                buckets=PositionSet.of(*(bucket for bucket in range(BUCKETS) if owner[bucket] == index)),
                version=Version(0),
            )
            for index, server in enumerate(self.servers)
        ]
        self.route = Route(
            revision=1,
            lineage=self.lineage,
            servers=tuple(server.place for server in self.servers),
            owner=owner,
            version=(Version(0),) * BUCKETS,
        )
        self.client = self.new_client()

    def new_client(self, budget_s=2.0):
        client = PserverClient(self.security, ClientSettings(budget_s=budget_s, limits=WireLimits(io_s=5.0)))
        client.set_route(self.route, TABLES, BUCKETS)
        return client

    def restore(self):
        for server, order in zip(self.servers, self.orders, strict=True):
            server.service.control(order)
            server.wait_for(Restored)
        return self

    def push(self, start, stop, **more):
        ids = np.arange(start, stop)
        return self.client.push(self.lineage, span(start, stop), batch(ids), **more)

    def cut(self, data, cut=FIRST):
        for server in self.servers:
            server.service.control(Hold(cut=cut))
        for server in self.servers:
            server.service.control(Cut(cut=cut, data=data))

    def counts(self):
        """Every counter, dense and sparse: how often each position was applied."""
        _, tables = self.client.pull(["c"])
        rows = self.client.pull_rows("e", np.arange(24)).rows
        assert (rows == tables["c"][:, None]).all()
        return tables["c"].tolist()

    def close(self):
        self.client.close()
        for server in self.servers:
            server.close()


def batch(ids):
    """The ledger: a one for each position, in a dense and in a sparse table."""
    ones = np.zeros(24, dtype=np.int64)
    ones[ids] = 1
    return {
        "w": np.full((30, 40), 0.5, dtype=np.float32),
        "c": ones,
        "e": (ids, np.ones((len(ids), 3), dtype=np.int64)),
    }


def verdicts(answer):
    return {(ruling.verdict, str(ruling.buckets)) for ruling in answer.rulings}


@pytest.fixture
def new_job(tmp_path):
    """Makes jobs on one checkpoint folder and closes them."""
    jobs = []

    def make(count, **more):
        jobs.append(Job(tmp_path / "checkpoints", count, **more))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()
    alive = [t.name for t in threading.enumerate() if t.name in {"accept", "deadlines"}]
    assert alive == []


def test_pushed_gradients_are_in_the_next_pull_exactly_once(new_job):
    """Two servers, three tables; a repeat changes nothing (M1)."""
    job = new_job(2).restore()
    before = job.client.pull(["w"]).tables["w"].copy()
    assert verdicts(job.push(0, 4)) == {(Verdict.APPLIED, "0-31")}
    assert verdicts(job.push(0, 4)) == {(Verdict.REPEAT, "0-31")}
    assert job.counts() == [1] * 4 + [0] * 20
    assert job.client.pull(["w"]).tables["w"] == pytest.approx(before - 0.1, abs=1e-5)


def test_push_and_pull_in_one_round_trip_see_the_push(new_job):
    """Frames of one connection are taken in order."""
    job = new_job(2).restore()
    answer, pulled = job.client.push_and_pull(Lineage(1), span(0, 4), batch(np.arange(4)))
    assert verdicts(answer) == {(Verdict.APPLIED, "0-31")}
    assert pulled.lineage == 1
    assert pulled.tables["c"].tolist() == [1] * 4 + [0] * 20


def test_push_to_some_buckets_reaches_those_only(new_job):
    """Rule 11: what an OVERLAP misses goes to the buckets that miss it."""
    job = new_job(2).restore()
    assert verdicts(job.push(0, 4, buckets=span(5, 20))) == {(Verdict.APPLIED, "5-19")}
    assert verdicts(job.push(0, 4)) == {(Verdict.REPEAT, "5-19"), (Verdict.APPLIED, "0-4,20-31")}
    assert job.counts() == [1] * 4 + [0] * 20


def test_checkpoint_is_restored_onto_another_number_of_servers(new_job, tmp_path):
    """Files are read by bucket: 2 -> 3 -> 1 servers; counters equal the data state (the ledger), slots come along."""
    job = new_job(2).restore()
    job.push(0, 4)
    job.cut(span(0, 8))
    job.push(8, 12)
    job.push(4, 8)
    files = tuple(server.wait_for(Written).file for server in job.servers)
    assert {marks.applied for file in files for marks in file.marks} == {span(0, 8)}
    index = read_index(open_storage(str(tmp_path / "checkpoints")), files[0].name, files[0].size_bytes)
    assert (index.cut, index.marks, index.extents) == (FIRST, files[0].marks, files[0].extents)
    job.push(12, 16)
    after = []
    for lineage, count in ((2, 3), (3, 1)):
        restored = new_job(count, first=lineage * 10, lineage=lineage, files=files, data=span(0, 8)).restore()
        assert restored.counts() == [1] * 8 + [0] * 16
        assert verdicts(restored.push(4, 8)) == {(Verdict.REPEAT, "0-31")}
        restored.push(8, 24)
        assert restored.counts() == [1] * 24
        after.append(restored.client.pull(["w"]).tables["w"].copy())
    assert (after[0] == after[1]).all()


@pytest.mark.parametrize("harm", ["truncated", "altered", "missing"])
def test_harmed_checkpoint_file_is_named_and_not_loaded(new_job, tmp_path, harm):
    """RestoreFailed names the file; the server holds no model and says so."""
    job = new_job(1).restore()
    job.push(0, 4)
    job.cut(span(0, 4))
    file = job.servers[0].wait_for(Written).file
    path = tmp_path / "checkpoints" / file.name
    data = bytearray(path.read_bytes())
    path.unlink()
    if harm == "truncated":
        path.write_bytes(data[: len(data) // 2])
    if harm == "altered":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    other = new_job(1, first=5, lineage=2, files=(file,), data=span(0, 4))
    other.servers[0].service.control(other.orders[0])
    assert file.name in other.servers[0].wait_for(RestoreFailed).message
    with pytest.raises(NotReadyError):
        other.client.pull()


def test_manifest_that_disagrees_with_its_files_is_not_loaded(new_job):
    """A checkpoint's data state is what its files say (rule 22)."""
    job = new_job(1).restore()
    job.push(0, 4)
    job.cut(span(0, 4))
    file = job.servers[0].wait_for(Written).file
    other = new_job(1, first=5, lineage=2, files=(file,), data=span(0, 5))
    other.servers[0].service.control(other.orders[0])
    assert "manifest says" in other.servers[0].wait_for(RestoreFailed).message


def test_full_disk_costs_the_cut_and_nothing_else(new_job, tmp_path):
    """CutRefused(FAILED) with the reason, no file left, training goes on, the next cut is written."""
    job = new_job(1).restore()
    job.push(0, 4)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        job.cut(span(0, 4))
        refusal = job.servers[0].wait_for(CutRefused)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert refusal.reason is Refusal.FAILED
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert verdicts(job.push(4, 8)) == {(Verdict.APPLIED, "0-31")}
    second = CutId(term=Term(1), lineage=Lineage(1), sequence=2)
    job.cut(span(0, 8), second)
    assert job.servers[0].wait_for(Written).cut == second


def test_push_during_a_hold_waits_and_is_applied_when_it_ends(new_job):
    """Rule 19: held, not refused; without CUT the server goes on by itself."""
    job = new_job(1).restore()
    job.servers[0].service.control(Hold(cut=FIRST))
    job.servers[0].wait_for(Held)
    begun = time.monotonic()
    assert verdicts(job.push(0, 4)) == {(Verdict.APPLIED, "0-31")}
    assert 0.1 < time.monotonic() - begun < 2.0
    assert job.servers[0].wait_for(CutRefused).reason is Refusal.GONE
    assert job.servers[0].service.longest_hold_s > 0.1


def test_pull_that_mixes_two_lineages_is_not_returned(new_job):
    """Rule 9: one server was rolled back already, the other not yet."""
    job = new_job(2).restore()
    client = job.new_client(budget_s=0.3)
    order = job.orders[0]
    rolled = Restore(**{name: getattr(order, name) for name in order.__dataclass_fields__} | {"lineage": Lineage(2)})
    job.servers[0].said.clear()
    job.servers[0].service.control(rolled)
    job.servers[0].wait_for(Restored)
    with pytest.raises(NotReadyError):
        client.pull()
    assert verdicts(job.push(0, 4)) == {(Verdict.STALE_LINEAGE, "0-15"), (Verdict.APPLIED, "16-31")}
    client.close()


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 400, b"EDLp" + b"\xff" * 30, b"EDLp\x05\0\0\0\xff\xff\0\0" + b"\xff" * 8, b""],
)
def test_stranger_ends_its_own_connection_only(new_job, said):
    """Garbage before and after the hello; the server goes on serving."""
    job = new_job(1).restore()
    with socket.create_connection(("127.0.0.1", job.servers[0].listener.port), timeout=5) as sock:
        sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while sock.recv(4096):
                pass
    assert verdicts(job.push(0, 4)) == {(Verdict.APPLIED, "0-31")}


@pytest.fixture
def strict_port(new_job):
    """A job's server on a second port, with short time limits."""
    job = new_job(1).restore()
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    limits = WireLimits(io_s=0.5, hello_s=0.2, frame_bytes=1 << 20)
    listener = Listener(job.servers[0].service, Security(), listening, limits)
    yield job, listener
    listener.close()


def test_stranger_that_says_its_hello_byte_by_byte_is_sent_away(strict_port):
    """Each byte comes within the limit of one operation, the hello as a whole does not."""
    _, listener = strict_port
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as sock, suppress(OSError):
        while time.monotonic() - begun < 10:
            sock.sendall(b"E" if time.monotonic() - begun < 0.01 else b"\0")
            time.sleep(0.05)
    assert time.monotonic() - begun < 5
    wait_until(lambda: not listener._open)


@pytest.mark.parametrize("size", [(1 << 20) - 1, (1 << 20) + 8, 1 << 63])
def test_body_that_never_comes_ends_the_connection(strict_port, size):
    """Half a frame, or one larger than the limit: no answer, no change, and the server goes on."""
    job, listener = strict_port
    with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as sock:
        channel = Channel(sock, WireLimits())
        greet_server(channel, Security(), "half")
        sock.sendall(struct.pack("<4sB3xIQ", b"EDLp", Kind.PUSH, 0, size) + b"half")
        with suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert job.counts() == [0] * 24


@pytest.fixture
def many_descriptors():
    """Both ends of a thousand connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_thousand_silent_connections_do_not_stop_training(strict_port):
    """They take a waiting thread each until their hello is due; a trainer is served meanwhile."""
    job, listener = strict_port
    addresses = [("127.0.0.1", listener.port)] * 1000
    silent = [socket.create_connection(address, timeout=5) for address in addresses]
    try:
        assert verdicts(job.push(0, 4)) == {(Verdict.APPLIED, "0-31")}
        route = replace(job.route, servers=(replace(job.route.servers[0], address=f"127.0.0.1:{listener.port}"),))
        client = PserverClient()
        client.set_route(route, TABLES, BUCKETS)
        assert verdicts(client.push(Lineage(1), span(0, 4), batch(np.arange(4)))) == {(Verdict.REPEAT, "0-31")}
        client.close()
        wait_until(lambda: not listener._open)
    finally:
        for sock in silent:
            sock.close()


def wait_until(holds):
    deadline_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_garbage_after_the_hello_is_answered_and_the_connection_closed(new_job):
    """A push whose body is not what its head says changes nothing."""
    job = new_job(1).restore()
    other = PserverClient()
    wrong = (TableSpec(name="w", shape=(31, 40)), *TABLES[1:])
    other.set_route(job.route, wrong, BUCKETS)
    with pytest.raises(Exception, match="refuses"):
        other.push(Lineage(1), span(0, 4), {"w": np.zeros((31, 40), dtype=np.float32)})
    other.close()
    assert verdicts(job.push(0, 4)) == {(Verdict.APPLIED, "0-31")}


def test_broken_connection_is_made_again_and_the_same_push_sent(new_job):
    """The answer may be lost, the push not applied twice."""
    job = new_job(2).restore()
    job.push(0, 4)
    for server in job.servers:
        for sock in tuple(server.listener._open):
            sock.shutdown(socket.SHUT_RDWR)
    assert verdicts(job.push(0, 8, buckets=span(0, 1))) == {(Verdict.OVERLAP, "0")}
    assert verdicts(job.push(4, 8)) == {(Verdict.APPLIED, "0-31")}
    assert job.counts() == [1] * 8 + [0] * 16


def test_server_that_is_gone_is_an_error_within_the_budget(new_job):
    """ServerUnavailableError names it; the trainer then looks for a new route."""
    job = new_job(2).restore()
    client = job.new_client(budget_s=0.3)
    client.pull()
    job.servers[1].listener.close()
    begun = time.monotonic()
    with pytest.raises(ServerUnavailableError):
        client.push(Lineage(1), span(0, 4), batch(np.arange(4)))
    assert time.monotonic() - begun < 3
    client.close()


def test_another_process_at_the_same_address_is_not_spoken_to(new_job):
    """A server that came back holds another model, or none."""
    job = new_job(1).restore()
    address = job.route.servers[0].address
    place = ServerPlace(name=MemberName("s"), incarnation=Incarnation("before"), address=address, ordinal=0)
    job.client.set_route(
        Route(revision=2, lineage=Lineage(1), servers=(place,), owner=job.route.owner, version=job.route.version),
        TABLES,
        BUCKETS,
    )
    with pytest.raises(ServerUnavailableError, match="another process"):
        job.client.pull()


def test_wrong_arrays_are_refused_before_anything_is_sent(new_job):
    """The message names table and shape."""
    job = new_job(1).restore()
    for wrong in ({"w": np.zeros(3)}, {"c": np.zeros(24)}, {"e": np.zeros(3)}, {"x": 1}, {"e": ([999], [[1, 1, 1]])}):
        with pytest.raises(TableError):
            job.client.push(Lineage(1), span(0, 4), wrong)
    assert job.counts() == [0] * 24


# ---- who may speak --------------------------------------------------------------------------------------------------


def test_secret_is_needed_on_both_sides(new_job):
    """EDL_TOKEN_FILE: a client without it, and one that finds a server without it, are refused."""
    job = new_job(1, security=Security(token=b"secret")).restore()
    assert verdicts(job.push(0, 4)) == {(Verdict.APPLIED, "0-31")}
    for wrong in (Security(), Security(token=b"guess")):
        client = PserverClient(wrong)
        client.set_route(job.route, TABLES, BUCKETS)
        with pytest.raises(AuthenticationError):
            client.pull()
        client.close()


def test_tls_carries_the_data_and_shuts_out_plain_clients(new_job, tmp_path):
    """EDL_TLS_DIR: both sides show a certificate of the job's authority."""
    tls = tmp_path / "tls"
    Authority("job").issue(tls)
    security = Security(tls_folder=tls)
    job = new_job(2, security=security).restore()
    assert verdicts(job.push(0, 4)) == {(Verdict.APPLIED, "0-31")}
    _, pulled = job.client.push_and_pull(Lineage(1), span(4, 8), batch(np.arange(4, 8)))
    assert pulled is not None
    assert job.counts() == [1] * 8 + [0] * 16
    plain = PserverClient(Security(), ClientSettings(budget_s=0.2, limits=WireLimits(io_s=1.0)))
    plain.set_route(job.route, TABLES, BUCKETS)
    with pytest.raises(ServerUnavailableError):
        plain.pull()
    plain.close()
    Authority("another job").issue(tmp_path / "other")
    other = PserverClient(Security(tls_folder=tmp_path / "other"), ClientSettings(budget_s=0.2))
    other.set_route(job.route, TABLES, BUCKETS)
    with pytest.raises(ServerUnavailableError, match="certificate"):
        other.pull()
    other.close()


def test_cut_is_taken_again_when_asked_again(new_job):
    """A repeat of CUT after the file was written says WRITTEN again (rule 21)."""
    job = new_job(1).restore()
    job.push(0, 4)
    job.cut(span(0, 4))
    first = job.servers[0].wait_for(Written)
    job.servers[0].said.clear()
    job.servers[0].service.control(Cut(cut=FIRST, data=span(0, 4)))
    assert job.servers[0].said == [first]
    assert not any(isinstance(m, CutTaken) for m in job.servers[0].said)
