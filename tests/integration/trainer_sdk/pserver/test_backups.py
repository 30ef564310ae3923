"""Two parameter servers that are each other's backup, over real sockets (rules 61, 62; ADR 0318)."""

import time
from dataclasses import replace

import numpy as np
import pytest

from master.api.identities import Lineage, Version
from master.api.messages.from_members import Activated, BackupSilent
from master.api.messages.to_members import Activate, BackedBuckets
from master.api.positions import PositionSet
from tests.harness.certificates import JobAuthority
from tests.integration.trainer_sdk.pserver.in_process_servers import BUCKETS, PATIENCE_S, TABLES, span, verdicts
from trainer_sdk.errors import WireError
from trainer_sdk.pserver.client.fan_out import ServerRequest, exchange
from trainer_sdk.pserver.core.messages import Push, PushTarget
from trainer_sdk.pserver.process import parameter_server
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.transfer import push_replication
from trainer_sdk.pserver.wire.heads import PushHead, Section, SectionKind, decode_push_answer, encode_push
from trainer_sdk.pserver.wire.peer_heads import encode_backup_push
from trainer_sdk.transport.cancellation import Cancellation
from trainer_sdk.transport.frames import FrameKind
from trainer_sdk.transport.security import Security
from trainer_sdk.transport.server_connection import ConnectionSettings, ServerConnection

ALL = PositionSet.span(0, BUCKETS)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A backup is silent in these tests when it has ended, never because the machine is busy."""
    monkeypatch.setattr(push_replication, "IO_S", PATIENCE_S)


@pytest.fixture(autouse=True, params=[64, parameter_server.PIECE_BYTES], ids=["in pieces", "whole"])
def pieces(request, monkeypatch):
    """The pushes of these tests are small: they are passed on as they come, or once they are there."""
    monkeypatch.setattr(parameter_server, "PIECE_BYTES", request.param)


def paired(job):
    """Each server is the backup of the other's buckets."""
    first, second = job.orders
    job.orders = [
        replace(
            first, backed=(BackedBuckets(buckets=first.buckets, backup=job.servers[1].place),), standby=second.buckets
        ),
        replace(
            second, backed=(BackedBuckets(buckets=second.buckets, backup=job.servers[0].place),), standby=first.buckets
        ),
    ]
    return job.restore()


def contents(server):
    """Marks and every number of all buckets that this server has a copy of, by bucket."""
    shell = server.service._shell
    with shell.lock:
        marks = {bucket: (g.applied, g.skipped) for g in shell.state.groups for bucket in g.buckets}
        return {
            bucket: (
                marks[bucket],
                {
                    table: {name: array.tobytes() for name, array in arrays.items()}
                    for table, arrays in shell.model.content(bucket)
                },
            )
            for bucket in marks
        }


def head_of(job, buckets, positions, version=0):
    """Of a push without gradients: marks alone."""
    targets = (PushTarget(buckets=buckets, version=Version(version)),)
    layout = Layout.of(TABLES, BUCKETS).digest
    return PushHead(Push(lineage=job.lineage, positions=positions, targets=targets), layout, ())


def activate(job, to, buckets, **more):
    version = {"version": Version(1), "since": Version(0)}
    job.servers[to].service.control(Activate(lineage=job.lineage, buckets=buckets, **version, **more))


class Busy:
    """Takes a fifth of a second before it looks at a stranger."""

    def __init__(self, context):
        self._context = context

    def wrap_socket(self, *args, **kwargs):
        time.sleep(0.2)
        return self._context.wrap_socket(*args, **kwargs)


def test_what_is_answered_is_on_both_servers_to_the_last_bit(new_job):
    """Dense tables with Adam, counters and rows; every bucket has a second copy that equals the first (rule 61)."""
    job = paired(new_job(2))
    for start in range(0, 24, 4):
        assert verdicts(job.push(start, start + 4)) == {("applied", str(ALL))}
    one, other = (contents(server) for server in job.servers)
    assert set(one) == set(range(BUCKETS))
    assert one == other
    assert job.counts() == [1] * 24


def test_a_push_that_comes_twice_is_applied_once_on_both(new_job):
    """REPEAT, as without a backup (rule 6)."""
    job = paired(new_job(2))
    job.push(0, 4)
    assert verdicts(job.push(0, 4)) == {("repeat", str(ALL))}
    assert job.counts() == [1] * 4 + [0] * 20


def test_an_owner_applies_nothing_without_its_backup_until_it_is_told_to(new_job):
    """It never drops its backup by itself; ALONE ends the wait, and the same gradient is taken (rule 62)."""
    job = paired(new_job(2))
    job.push(0, 4)
    mine = job.orders[0].buckets
    job.servers[1].close()

    def push(version):
        head = head_of(job, mine, span(4, 8), version)
        return verdicts(job.servers[0].service.push(head, memoryview(b""), lambda _, size: size))

    assert push(0) == {("not-yet", str(mine))}
    activate(job, 0, mine)
    assert job.servers[0].wait_for(Activated).buckets == mine
    assert push(0) == {("moved", str(mine))}
    assert push(1) == {("applied", str(mine))}


def test_an_owner_that_is_left_alone_keeps_no_connection_to_the_backup_that_it_had(new_job):
    """A job outlives many backups, and each had one for every trainer."""
    job = paired(new_job(2))
    job.push(0, 4)
    idle = job.servers[0].service._replication
    assert list(idle._idle) == [job.servers[1].incarnation]
    activate(job, 0, job.orders[0].buckets)
    assert not idle._idle


def test_a_backup_that_is_slow_to_greet_is_waited_for(new_job, tmp_path):
    """A handshake takes processors, and they may be busy: the first push is passed on all the same."""
    JobAuthority("job").issue(tmp_path / "tls")
    job = paired(new_job(2, security=Security(token=b"secret", tls_folder=tmp_path / "tls")))
    for server in job.servers:
        server.listener._context = Busy(server.listener._context)
    assert verdicts(job.push(0, 4)) == {("applied", str(ALL))}


def test_a_large_push_is_waited_for_as_long_as_its_bytes_take(new_job, monkeypatch):
    """A backup that is at work has not stopped: its owner says nothing of it to the master."""
    monkeypatch.setattr(push_replication, "IO_S", 0.2)
    monkeypatch.setattr(push_replication, "SLOWEST_BYTES_PER_S", 10.0)
    monkeypatch.setattr(push_replication, "MOST_MORE_S", PATIENCE_S)
    job = paired(new_job(2))
    for server in job.servers:
        server.service.push_as_backup = after_half_a_second(server.service.push_as_backup)
    assert verdicts(job.push(0, 4)) == {("applied", str(ALL))}
    assert not [said for server in job.servers for said in server.all_of(BackupSilent)]


def after_half_a_second(call):
    def late(*args):
        time.sleep(0.5)
        return call(*args)

    return late


def test_a_promoted_backup_goes_on_where_its_owner_ended_and_takes_nothing_more_from_it(new_job):
    """The lineage is the same, every counter is exact, and what an owner still passes on is MOVED (rule 62)."""
    job = paired(new_job(2))
    job.push(0, 8)
    lost, (first, second) = job.orders[0].buckets, job.servers
    activate(job, 1, lost)
    activate(job, 1, job.orders[1].buckets)
    job.route = replace(
        job.route, revision=2, servers=(second.place,), owner=(0,) * BUCKETS, version=(Version(1),) * BUCKETS
    )
    targets = (PushTarget(buckets=lost, version=Version(0)),)
    late = PushHead(
        Push(lineage=job.lineage, positions=span(8, 12), targets=targets), Layout.of(TABLES, BUCKETS).digest, ()
    )
    assert verdicts(first.service.push(late, memoryview(b""), lambda _, size: size)) == {("not-yet", str(lost))}
    first.close()
    job.client.set_route(job.route, TABLES, BUCKETS)
    assert verdicts(job.push(8, 24)) == {("applied", str(ALL))}
    assert job.counts() == [1] * 24
    job.servers = [second]


def by_hand(job, *, short_by=0):
    """A push of all counters to the first server: its connection, its head, its body."""
    buckets, layout = job.orders[0].buckets, Layout.of(TABLES, BUCKETS)
    at = layout.index_of("c")
    count = layout.dense[at].count(buckets)
    sections = (Section(at, SectionKind.DENSE, count - short_by),)
    head = encode_push(head_of(job, buckets, span(0, 24))._replace(sections=sections))
    connection = ServerConnection(job.servers[0].place, job.security, ConnectionSettings(), None, Cancellation())
    return connection, head, memoryview(np.ones(count, dtype=np.int64)).cast("B")


def half_sent(job):
    """The first piece of such a push, and more: its connection, its channel, the rest of its body."""
    connection, head, body = by_hand(job)
    assert body.nbytes > 80
    channel = connection.channel(time.monotonic() + PATIENCE_S)
    channel.begin_frame(FrameKind.PUSH, head, body.nbytes)
    channel.send_piece(body[:80])
    return connection, channel, body[80:]


def goes_on(job, before):
    """Both servers have what they had, and a push of all is applied once on both."""
    assert [contents(server) for server in job.servers] == before
    assert verdicts(job.push(0, 24)) == {("applied", str(ALL))}
    one, other = (contents(server) for server in job.servers)
    assert one == other
    assert job.counts() == [1] * 24


def test_a_trainer_that_breaks_off_in_the_middle_leaves_nothing_on_either_server(new_job):
    """What was passed on of it already is dropped with the connection."""
    job = paired(new_job(2))
    before = [contents(server) for server in job.servers]
    connection, _, _ = half_sent(job)
    connection.close()
    goes_on(job, before)


def test_a_trainer_that_sends_slowly_is_no_silence_of_a_backup(new_job):
    """Half of a push, a pause, the end of its backup, the rest: the master is told of what failed, not of the pause."""
    job = paired(new_job(2))
    connection, channel, rest = half_sent(job)
    time.sleep(1.0)
    job.servers[1].close()
    resumed_s = time.monotonic()
    channel.send_piece(rest)
    assert channel.receive().kind is FrameKind.PUSH_ANSWER
    connection.close()
    assert job.servers[0].wait_for(BackupSilent).silent_s < time.monotonic() - resumed_s


def test_a_push_whose_lineage_ends_while_it_comes_is_judged_by_its_head(new_job):
    """RESTORE between its halves: the owner has no model to hold the gradients against."""
    job = paired(new_job(2))
    connection, channel, rest = half_sent(job)
    time.sleep(0.5)  # its first piece has gone on
    owner = job.servers[0].service
    owner._io_jobs.load = lambda _: None  # it takes long
    owner.control(replace(job.orders[0], lineage=Lineage(2)))
    channel.send_piece(rest)
    assert verdicts(decode_push_answer(channel.receive().head)) == {("not-ready", str(job.orders[0].buckets))}
    connection.close()


def test_a_push_that_is_refused_leaves_nothing_on_either_server(new_job):
    """Its body is not what its head says, which shows once all of it has come."""
    job = paired(new_job(2))
    before = [contents(server) for server in job.servers]
    connection, head, body = by_hand(job, short_by=1)
    with pytest.raises(WireError, match="refuses"):
        exchange([connection], [(ServerRequest(FrameKind.PUSH, head, (body,)),)], time.monotonic() + PATIENCE_S)
    goes_on(job, before)


def test_trainers_cannot_pass_anything_on(new_job):
    """A trainer's push is judged by the owner, whatever it calls itself."""
    job = paired(new_job(2))
    targets = (PushTarget(buckets=job.orders[0].buckets, version=Version(0)),)
    head = PushHead(
        Push(lineage=job.lineage, positions=span(0, 4), targets=targets), Layout.of(TABLES, BUCKETS).digest, ()
    )
    connection = ServerConnection(job.servers[1].place, job.security, ConnectionSettings(), None, Cancellation())
    request = ServerRequest(FrameKind.BACKUP_PUSH, encode_backup_push(head, head.push.targets[0].buckets), ())
    with pytest.raises(WireError, match="BACKUP_PUSH"):
        exchange([connection], [(request,)], time.monotonic() + PATIENCE_S)
    connection.close()
