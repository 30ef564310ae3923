"""A bucket goes from one parameter server to another over real sockets, and what comes in its way changes nothing."""

import socket
import time
from dataclasses import replace

import numpy as np
import pytest

from master.api.identities import BucketId, Incarnation, Lineage, MemberName, ServerPlace, Version
from master.api.messages.from_members import Activated, Installed, Restored, Written
from master.api.messages.to_members import Activate, Forget, Freeze
from master.api.positions import EMPTY, PositionSet
from tests.harness.certificates import JobAuthority
from tests.integration.trainer_sdk.pserver.in_process_servers import BUCKETS, PATIENCE_S, TABLES, batch, span, verdicts
from trainer_sdk.errors import NotReadyError, TableError, WireError
from trainer_sdk.pserver.core import freeze_queue
from trainer_sdk.pserver.core.messages import CopyHead, PushVerdict
from trainer_sdk.pserver.core.server_events import CopyArrived, WarmCopyRequested
from trainer_sdk.pserver.tables.bucket_codec import encode_bucket
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.model import Model, Portion
from trainer_sdk.pserver.tables.sparse_store import SparseStore
from trainer_sdk.pserver.transfer import bucket_sender
from trainer_sdk.pserver.wire.peer_heads import CopyStatus, copy_digest
from trainer_sdk.transport.security import Security

MOVED = 3  # a bucket of the first of two servers
WITH_ROWS = 11  # another one: rows 5 and 11 lie in it


def freeze(job, bucket=MOVED, *, version=0, to=1):
    order = Freeze(lineage=job.lineage, bucket=BucketId(bucket), version=Version(version), target=job.servers[to].place)
    job.servers[1 - to].service.control(order)


def flip(job, bucket=MOVED, *, to=1):
    """The table names the target: it is told, then trainers, and the loser."""
    owner, version = list(job.route.owner), list(job.route.version)
    owner[bucket], version[bucket] = to, Version(version[bucket] + 1)
    job.route = replace(job.route, revision=job.route.revision + 1, owner=tuple(owner), version=tuple(version))
    named = {"lineage": job.lineage, "buckets": PositionSet.of(bucket), "version": version[bucket]}
    job.servers[to].service.control(Activate(**named, since=Version(version[bucket] - 1)))
    job.servers[1 - to].service.control(Forget(**named))


def follow(job):
    job.client.set_route(job.route, TABLES, BUCKETS)


def numbers(job):
    """Every number that can be pulled, as bytes."""
    tables = job.client.pull().tables
    return {name: table.tobytes() for name, table in tables.items()}, job.client.pull_rows("e", np.arange(200)).rows


def test_a_bucket_moves_amid_pushes_and_every_number_is_as_if_it_had_not(new_job, tmp_path):
    """Adam with its slots and counts, counters and sparse rows; the same over TLS with a secret (rules 43 to 50)."""
    JobAuthority("job").issue(tmp_path / "tls")
    moved = new_job(2, security=Security(token=b"secret", tls_folder=tmp_path / "tls")).restore()
    stayed = new_job(2, first=2).restore()
    for job in (moved, stayed):
        job.push(0, 8)
    source, target = moved.servers

    freeze(moved)
    assert target.wait_for(Installed).version == 1
    assert verdicts(moved.push(8, 12)) == {(PushVerdict.FROZEN, "3"), (PushVerdict.APPLIED, "0-2,4-31")}
    flip(moved)
    assert target.wait_for(Activated).buckets == PositionSet.of(MOVED)
    late = moved.push(8, 12, buckets=PositionSet.of(MOVED))
    assert verdicts(late) == {(PushVerdict.MOVED, "3")}, "the client's route is an old one"
    follow(moved)
    assert verdicts(moved.push(8, 12)) == {(PushVerdict.APPLIED, "3"), (PushVerdict.REPEAT, "0-2,4-31")}
    moved.push(12, 16)
    stayed.push(8, 12)
    stayed.push(12, 16)

    assert moved.counts() == stayed.counts() == [1] * 16 + [0] * 8
    (dense, rows), (dense_stayed, rows_stayed) = numbers(moved), numbers(stayed)
    assert dense == dense_stayed
    assert (rows == rows_stayed).all()
    assert source.broken == target.broken == []


def test_a_freeze_said_again_hands_over_again_and_a_staged_copy_is_not_served(new_job):
    """Rules 43, 44 and 50: INSTALLED each time, NOT_YET until ACTIVATE."""
    job = new_job(2).restore()
    freeze(job)
    job.servers[1].wait_for(Installed)
    while len(job.servers[1].all_of(Installed)) < 2:
        freeze(job)  # the first one may find the copy of before still on its way back
        time.sleep(0.05)
    owner, version = list(job.route.owner), list(job.route.version)
    owner[MOVED], version[MOVED] = 1, Version(1)
    job.client.set_route(replace(job.route, owner=tuple(owner), version=tuple(version)), TABLES, BUCKETS)
    assert (PushVerdict.NOT_YET, "3") in verdicts(job.push(0, 4))


def test_an_undone_move_goes_on_at_its_source_with_all_it_had(new_job):
    """Rule 46: ACTIVATE of the next version opens the frozen copy, FORGET drops the staged one."""
    job = new_job(2).restore()
    job.push(0, 4)
    freeze(job)
    job.servers[1].wait_for(Installed)
    flip(job, to=0)
    follow(job)
    assert verdicts(job.push(4, 8)) == {(PushVerdict.APPLIED, "0-31")}
    assert job.counts() == [1] * 8 + [0] * 16


def test_a_client_with_an_ancient_route_applies_nothing_twice_and_nothing_in_the_wrong_place(new_job):
    """A bucket went there and back, another one stayed away: by the first route both are MOVED, whoever has them."""
    job = new_job(2).restore()
    ancient, other = job.new_client(), MOVED + 1
    for bucket, way in ((MOVED, (1, 0)), (other, (1,))):
        for version, to in enumerate(way):
            installed = len(job.servers[to].all_of(Installed))
            freeze(job, bucket, version=version, to=to)
            job.servers[to].wait_for(Installed, count=installed + 1)
            flip(job, bucket, to=to)
    follow(job)
    ids = np.arange(4)
    assert (PushVerdict.MOVED, "3-4") in verdicts(ancient.push(job.lineage, span(0, 4), batch(ids)))
    with pytest.raises(NotReadyError, match="route is outdated"):
        ancient.pull(["c"])
    assert verdicts(job.push(0, 4)) == {(PushVerdict.APPLIED, "3-4"), (PushVerdict.REPEAT, "0-2,5-31")}
    ancient.set_route(job.route, TABLES, BUCKETS)
    assert verdicts(ancient.push(job.lineage, span(0, 4), batch(ids))) == {(PushVerdict.REPEAT, "0-31")}
    assert job.counts() == [1] * 4 + [0] * 20
    ancient.close()


def test_a_warm_copy_leaves_the_bucket_in_service(new_job):
    """Rule 42: the hand-over comes after it all the same."""
    job = new_job(2).restore()
    job.push(0, 4)
    source, target = job.servers
    source.service.control(
        WarmCopyRequested(lineage=job.lineage, bucket=BucketId(MOVED), version=Version(0), target=target.place)
    )
    assert verdicts(job.push(4, 8)) == {(PushVerdict.APPLIED, "0-31")}
    freeze(job)
    target.wait_for(Installed)
    flip(job)
    follow(job)
    assert job.counts() == [1] * 8 + [0] * 16


def test_what_was_written_since_a_bucket_went_ahead_is_all_that_is_handed_over(new_job, caplog):
    """Rules 42, 43: rows go while trainers push, the frozen bucket brings the difference, and no number is lost."""
    moved, stayed = new_job(2).restore(), new_job(2, first=2).restore()
    for job in (moved, stayed):
        job.push(0, 8)
    caplog.set_level("DEBUG", logger="trainer_sdk.pserver.shell")
    way = (1, 0) * 3
    for version, to in enumerate(way):
        before = len(moved.servers[to].all_of(Installed))
        freeze(moved, WITH_ROWS, version=version, to=to)
        moved.servers[to].wait_for(Installed, count=before + 1)
        flip(moved, WITH_ROWS, to=to)
        follow(moved)
        for job in (moved, stayed):
            job.push(8 + 2 * version, 10 + 2 * version)
    heads = [record.args[0].head for record in caplog.records if isinstance(record.args[0], CopyArrived)]
    ahead = [head.digest for head in heads if not head.is_final]
    assert len(ahead) == len(way)
    assert [head.base for head in heads if head.is_final] == ahead
    assert moved.counts() == stayed.counts()
    (dense, rows), (dense_stayed, rows_stayed) = numbers(moved), numbers(stayed)
    assert dense == dense_stayed
    assert (rows == rows_stayed).all()


def test_a_push_while_a_bucket_is_copied_ahead_is_in_the_difference(new_job, monkeypatch):
    """Rule 42: rows are told apart before the first of them is copied, so none falls between copy and difference."""
    moved, stayed = new_job(2).restore(), new_job(2, first=2).restore()
    for job in (moved, stayed):
        job.push(0, 8)
    original, amid = Model.content, []

    def content(model, bucket, portion=Portion.ALL):
        copied = list(original(model, bucket, portion))
        if portion is Portion.ROWS and bucket == WITH_ROWS and not amid:
            amid.append(moved.push(8, 16))
        return iter(copied)

    monkeypatch.setattr(Model, "content", content)
    freeze(moved, WITH_ROWS)
    moved.servers[1].wait_for(Installed)
    flip(moved, WITH_ROWS)
    follow(moved)
    stayed.push(8, 16)
    assert amid
    (dense, rows), (dense_stayed, rows_stayed) = numbers(moved), numbers(stayed)
    assert dense == dense_stayed
    assert (rows == rows_stayed).all()


def test_a_bucket_behind_one_whose_move_was_undone_is_frozen_all_the_same(new_job, monkeypatch):
    """Its turn comes with an order that freezes nothing, and nothing is under way whose end would bring the next."""
    monkeypatch.setattr(freeze_queue, "FROZEN_BYTES", 0)
    monkeypatch.setattr(bucket_sender, "BUDGET_S", PATIENCE_S)
    job = new_job(2).restore()
    source = job.servers[0].service
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        place = replace(job.servers[1].place, address=f"127.0.0.1:{stopped.getsockname()[1]}")
        first, undone, last = MOVED, MOVED + 1, MOVED + 2
        for bucket in (first, undone, last):
            source.control(Freeze(lineage=job.lineage, bucket=BucketId(bucket), version=Version(0), target=place))
        assert frozen(source) == {first}
        source.control(
            Activate(lineage=job.lineage, buckets=PositionSet.of(undone), version=Version(1), since=Version(0))
        )
        asking, _ = stopped.accept()
        with asking:
            asking.sendall(b"no EDL peer" * 10)  # what was to go there first is given up at once
        until_s = time.monotonic() + PATIENCE_S
        while frozen(source) != {first, last} and time.monotonic() < until_s:
            time.sleep(0.01)
        assert frozen(source) == {first, last}


def frozen(service):
    return {bucket for group in service._shell.state.groups if group.is_frozen for bucket in group.buckets}


def test_an_order_for_a_bucket_that_is_none_is_passed_over(new_job):
    """And those after it are not."""
    job = new_job(2).restore()
    freeze(job, BUCKETS)
    freeze(job)
    assert job.servers[1].wait_for(Installed).bucket == MOVED


def test_a_bucket_is_not_frozen_for_a_target_that_cannot_be_reached(new_job):
    """Its rows cannot go ahead, so trainers go on with it; the master asks again or undoes."""
    job = new_job(2).restore()
    job.push(0, 8)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        place = replace(job.servers[1].place, address=f"127.0.0.1:{stopped.getsockname()[1]}")
        order = Freeze(lineage=job.lineage, bucket=BucketId(WITH_ROWS), version=Version(0), target=place)
        job.servers[0].service.control(order)
        assert verdicts(job.push(8, 12)) == {(PushVerdict.APPLIED, "0-31")}
        job.servers[0].service.close()


def test_a_target_that_does_not_answer_keeps_no_other_copy_waiting(new_job):
    """A server has stopped, the move to it will be undone; buckets for others go out meanwhile."""
    job = new_job(2).restore()
    with socket.create_server(("127.0.0.1", 0)) as stopped:  # accepts, and says nothing
        place = ServerPlace(
            name=MemberName("stopped"),
            incarnation=Incarnation("stopped"),
            address=f"127.0.0.1:{stopped.getsockname()[1]}",
            ordinal=2,
        )
        for bucket in (4, 5):
            job.servers[0].service.control(
                Freeze(lineage=job.lineage, bucket=BucketId(bucket), version=Version(0), target=place)
            )
        freeze(job)
        assert job.servers[1].wait_for(Installed).bucket == MOVED
        job.servers[0].service.close()


def test_a_checkpoint_cut_before_a_flip_has_every_bucket_once(new_job):
    """A complete fork of a bucket that has left is written by who had it; two servers' files make one (58, 59)."""
    job = new_job(2).restore()
    job.push(0, 8)
    job.cut(span(0, 8))
    freeze(job)
    job.servers[1].wait_for(Installed)
    flip(job)
    files = tuple(server.wait_for(Written).file for server in job.servers)
    follow(job)
    job.push(8, 24)
    named = sorted(extent[0] for record in files for extent in record.extents)
    assert named == list(range(BUCKETS))

    alone = new_job(1, first=4, lineage=2, files=files, data=span(0, 8)).restore()
    assert alone.counts() == [1] * 8 + [0] * 16


def test_a_cut_after_a_flip_is_written_by_the_new_owner(new_job):
    """CUT forks what HELD listed, where it is now (58)."""
    job = new_job(2).restore()
    job.push(0, 8)
    freeze(job)
    job.servers[1].wait_for(Installed)
    flip(job)
    follow(job)
    job.push(8, 12)
    job.cut(span(0, 12))
    files = tuple(server.wait_for(Written).file for server in job.servers)
    assert MOVED in {extent[0] for extent in files[1].extents}
    alone = new_job(1, first=4, lineage=2, files=files, data=span(0, 12)).restore()
    assert alone.counts() == [1] * 12 + [0] * 12


# ---- copies that are none -------------------------------------------------------------------------------------------


def copy_for(server, **differs):
    """A copy as its source would send it, of a fresh bucket."""
    model = Model(Layout.of(TABLES, BUCKETS), span(0, BUCKETS))
    body = memoryview(bytearray(b"".join(encode_bucket(model.content(MOVED), BUCKETS))))
    head = CopyHead(
        lineage=Lineage(1),
        bucket=BucketId(MOVED),
        version=Version(1),
        target=server.incarnation,
        is_final=True,
        applied=EMPTY,
        skipped=EMPTY,
        digest=copy_digest([body]),
    )
    return replace(head, **differs), body


@pytest.mark.parametrize(
    "differs",
    [{"lineage": Lineage(2)}, {"target": Incarnation("another")}, {"version": Version(0)}],
    ids=["lineage", "process", "version"],
)
def test_a_copy_that_is_not_meant_for_this_process_now_is_left_lying(new_job, differs):
    """Rule 44: no INSTALLED, nothing to activate."""
    job = new_job(2).restore()
    source, target = job.servers
    server = source if "version" in differs else target  # the source has it live at 0
    head, body = copy_for(server, **differs)
    assert server.service.transfer.stage(head, body) is CopyStatus.ARRIVED
    assert server.all_of(Installed) == []


def test_a_difference_is_answered_with_need_full(new_job):
    """Rule 42: this side has no base to build on; its body is not even received."""
    job = new_job(2).restore()
    copies = job.servers[1].service.transfer
    head, body = copy_for(job.servers[1], base="of something")
    assert copies.try_answer(head) is CopyStatus.NEED_FULL
    head = replace(head, digest=copy_digest([body], head.base))
    assert copies.stage(head, body) is CopyStatus.NEED_FULL
    assert job.servers[1].all_of(Installed) == []


def test_an_altered_copy_or_one_of_other_tables_is_refused(new_job):
    """It may not be staged: what is staged must go in without fail when the table names us."""
    job = new_job(2).restore()
    target = job.servers[1]
    head, body = copy_for(target)
    altered = memoryview(bytearray(body))
    altered[len(altered) - 9] ^= 1
    with pytest.raises(WireError, match="digest"):
        target.service.transfer.stage(head, altered)
    larger = (replace(TABLES[0], shape=(300, 40)), *TABLES[1:])
    for tables, buckets, wrong in ((TABLES, BUCKETS // 2, "buckets"), (larger, BUCKETS, "bucket 3.w")):
        model = Model(Layout.of(tables, buckets), span(0, buckets))
        other = memoryview(bytearray(b"".join(encode_bucket(model.content(MOVED), buckets))))
        with pytest.raises((WireError, TableError), match=wrong):
            target.service.transfer.stage(replace(head, digest=copy_digest([other])), other)
    assert target.all_of(Installed) == []


def test_a_newer_lineage_drops_what_was_staged(new_job):
    """Rules 39 and 56: nothing of before is activated in it."""
    job = new_job(2).restore()
    freeze(job)
    job.servers[1].wait_for(Installed)
    again = replace(job.orders[1], lineage=Lineage(2))
    job.servers[1].service.control(again)
    job.servers[1].wait_for(Restored, count=2)
    job.servers[1].service.control(
        Activate(lineage=Lineage(2), buckets=PositionSet.of(MOVED), version=Version(1), since=Version(0))
    )
    assert job.servers[1].all_of(Activated) == []


def test_a_bucket_that_stays_where_it_was_is_watched_no_longer(new_job):
    """Its move is undone, or it goes on beside a copy of it: pushes pay nothing for what went ahead (rule 42)."""
    job = new_job(2).restore()
    job.push(0, 24)
    source = job.servers[0]
    (rows,) = (part for part in source.service._shell.model.stores if isinstance(part, SparseStore))
    freeze(job, WITH_ROWS)
    job.servers[1].wait_for(Installed)
    assert rows._dirty.is_watched(WITH_ROWS)
    undone = {"lineage": job.lineage, "buckets": PositionSet.of(WITH_ROWS), "version": Version(1)}
    source.service.control(Activate(**undone, since=Version(0)))
    assert not rows._dirty.is_watched(WITH_ROWS)
