"""Buckets move between servers, servers come and go: the master's side (rules 37, 41, 45 to 49, 53 to 60)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.identities import Incarnation, Version
from master.api.messages import (
    Ack,
    Activate,
    Activated,
    AskMarks,
    Cut,
    Failed,
    FileRecord,
    Forget,
    Freeze,
    Hold,
    Installed,
    Leave,
    Refused,
    Released,
    Restore,
    RouteChanged,
    ServerLeaving,
    Skip,
    SkipAnswer,
    Written,
)
from master.api.positions import EMPTY, PositionSet
from master.job import deadlines
from master.job.domain import (
    SECOND,
    AnswersOverdue,
    ChangeTable,
    CommitDue,
    Instant,
    JobConfig,
    MovesAsked,
    MovesExpired,
    Persist,
    ReconnectWindowEnded,
    StreamBroken,
)
from master.job.placement import Move
from master.job.state import Phase, Stage
from tests.unit.job_driver import Marks, key, run_servers, serving

T0 = key("t0")
CONFIG = JobConfig(servers=2, max_servers=3, bucket_count=4)
TO_S1 = MovesAsked(moves=(Move(bucket=0, source=0, target=1),), reason="load")


def to(driver, member, kind):
    return [message for recipient, message in driver.sent if recipient == member and isinstance(message, kind)]


def installed(driver, server, bucket, version=1):
    return driver.say(
        server.key, Installed(lineage=driver.state.number, bucket=bucket, version=Version(version), digest="d")
    )


def carry(driver, servers):
    """Every bucket on its way arrives, until nothing moves any more."""
    by_key = {server.key: server for server in servers}
    for _ in range(50):
        run_servers(driver, servers)
        if not driver.state.moves.intents:
            return
        for intent in driver.state.moves.intents:
            if intent.target in by_key:
                installed(driver, by_key[intent.target], intent.bucket, intent.version + 1)
    raise AssertionError("buckets move without end")


def owners(driver):
    route = driver.durable.route
    return [route.servers[owner].name for owner in route.owner]


def owners_of(driver, server):
    return [bucket for bucket, name in enumerate(owners(driver)) if name == server.key.name]


@pytest.fixture
def job():
    return serving(CONFIG)


def train(driver, servers, request):
    (lease,) = driver.leases(T0, request)
    for server in servers:
        server.applied |= lease.positions
    driver.say(T0, Ack(token=lease.token, positions=lease.positions))


# ---- one move -------------------------------------------------------------------------------------------------------


def test_freeze_leaves_only_after_the_intent_is_durable(job):
    """Rules 41, 43."""
    driver, (s0, s1) = job
    driver.writes_go_through = False
    driver.feed(TO_S1)
    assert not to(driver, s0.key, Freeze)
    driver.let_go()
    (intent,) = driver.durable.intents
    assert (intent.bucket, intent.version, intent.source, intent.target) == (0, 0, s0.key, s1.key)
    (freeze,) = to(driver, s0.key, Freeze)
    assert (freeze.bucket, freeze.version, freeze.target.incarnation) == (0, 0, s1.key.incarnation)


def test_flip_is_durable_before_anybody_hears_of_it(job):
    """Rules 45, 47, 48: ACTIVATE to the winner, FORGET to the loser, the route to trainers."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.writes_go_through = False
    before = len(driver.sent)
    installed(driver, s1, 0)
    assert driver.sent[before:] == []
    driver.let_go()
    bucket, version = PositionSet.of(0), Version(1)
    assert to(driver, s1.key, Activate) == [Activate(lineage=1, buckets=bucket, version=version)]
    assert to(driver, s0.key, Forget) == [Forget(lineage=1, buckets=bucket, version=version)]
    route = to(driver, T0, RouteChanged)[-1].route
    assert (route.owner, route.version) == ((1, 0, 1, 1), (1, 0, 0, 0))
    assert driver.durable.intents == ()


@pytest.mark.parametrize(("version", "ordinal"), [(0, 1), (2, 1), (1, 0)])
def test_installed_of_another_version_or_server_flips_nothing(job, version, ordinal):
    """Rule 44."""
    driver, servers = job
    driver.feed(TO_S1)
    installed(driver, servers[ordinal], 0, version)
    assert len(driver.durable.intents) == 1


def test_a_bucket_moves_again_only_once_its_owner_has_confirmed_it(job):
    """Rule 41: only when the source has reported itself live at that version."""
    driver, (_, s1) = job
    driver.feed(TO_S1)
    installed(driver, s1, 0)
    driver.feed(MovesAsked(moves=(Move(bucket=0, source=1, target=0),), reason="back"))
    assert driver.durable.intents == ()
    driver.say(s1.key, Activated(lineage=1, buckets=PositionSet.of(0), version=Version(1)))
    assert [intent.version for intent in driver.durable.intents] == [1]


def test_what_is_not_answered_is_asked_again(job):
    """Rules 43, 47: FREEZE, then ACTIVATE."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.fire(AnswersOverdue)
    assert len(to(driver, s0.key, Freeze)) == 2
    installed(driver, s1, 0)
    driver.fire(AnswersOverdue)
    s1.register()
    assert len(to(driver, s1.key, Activate)) == 3


def test_a_server_that_returns_is_told_what_it_has_lost(job):
    """Rule 48: late or never is safe."""
    driver, servers = job
    driver.feed(TO_S1)
    carry(driver, servers)
    servers[0].register()
    assert to(driver, servers[0].key, Forget)[-1] == Forget(lineage=1, buckets=PositionSet.of(0), version=Version(1))


def test_what_has_not_arrived_in_time_is_undone_and_stays_at_the_next_version(job):
    """Rules 46, 53."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.fire(MovesExpired)
    assert (driver.durable.route.owner[0], driver.durable.route.version[0]) == (0, 1)
    assert driver.durable.intents == ()
    assert to(driver, s0.key, Activate)[-1].version == 1
    assert to(driver, s1.key, Forget)[-1].version == 1
    installed(driver, s1, 0)
    assert driver.durable.route.owner[0] == 0


def steadily(driver, servers, seconds):
    """A second at a time: whatever is due happens, and one bucket arrives, but never the first that was to move."""
    stuck = driver.state.moves.intents[0]
    for _ in range(seconds):
        driver.now = Instant(driver.now + SECOND)
        for at, event in deadlines(driver.state):
            if at <= driver.now and isinstance(event, MovesExpired | AnswersOverdue):
                driver.feed(event)
        arriving = [one for one in driver.state.moves.awaited if one.bucket != stuck.bucket][:1]
        for intent in arriving:
            target = next(server for server in servers if server.key == intent.target)
            installed(driver, target, intent.bucket, intent.version + 1)
        run_servers(driver, servers)
    return stuck


def growing(bucket_count=256):
    driver, servers = serving(replace(CONFIG, bucket_count=bucket_count))
    driver.want(3)
    servers.append(Marks(driver, 2))
    servers[2].register()
    run_servers(driver, servers)
    return driver, servers


def test_a_bucket_that_is_lost_on_its_way_is_undone_in_its_own_time():
    """Others that move meanwhile give it no more: every batch needs every bucket (ADR 0315)."""
    driver, servers = growing()
    stuck = steadily(driver, servers, 9)
    assert stuck in driver.state.moves.intents
    assert len([one for one in to(driver, stuck.source, Freeze) if one.bucket == stuck.bucket]) == 2
    assert len(owners_of(driver, servers[2])) > 1
    steadily(driver, servers, 1)
    assert stuck not in driver.state.moves.intents
    assert driver.durable.route.version[stuck.bucket] == 1


def test_only_what_is_late_is_undone():
    """What began to move later has its time still."""
    driver, servers = growing()
    steadily(driver, servers, 9)
    younger = [one for one in driver.state.moves.awaited if driver.state.moves.since[one.bucket] > 0]
    driver.now = Instant(driver.now + SECOND)
    driver.fire(MovesExpired)
    assert younger
    assert set(younger) <= set(driver.state.moves.intents)


def test_what_has_arrived_is_not_late_because_the_store_is_slow(job):
    driver, (_, s1) = job
    driver.feed(TO_S1)
    driver.writes_go_through = False
    installed(driver, s1, 0)
    assert MovesExpired not in driver.pending()


def test_freeze_is_said_again_when_the_target_returns(job):
    """Its INSTALLED may have been lost with its stream; the source sends again what it has frozen (rule 43)."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.feed(StreamBroken(member=s1.key))
    s1.register()
    assert len(to(driver, s0.key, Freeze)) == 2
    installed(driver, s1, 0)
    s1.register()
    assert len(to(driver, s0.key, Freeze)) == 2


def test_a_target_whose_stream_stays_broken_keeps_nothing_frozen():
    """UNDO needs nobody: what is not installed is served again before the target counts as lost."""
    driver, servers = growing(24)
    arrived, waits = driver.state.moves.intents
    driver.writes_go_through = False
    installed(driver, servers[2], arrived.bucket)
    driver.feed(StreamBroken(member=servers[2].key))
    driver.let_go()
    (undone_at,) = (at for at, event in deadlines(driver.state) if isinstance(event, MovesExpired))
    assert undone_at == driver.now + driver.config.short_window_ns
    driver.fire(MovesExpired)
    assert waits not in driver.durable.intents
    assert owners_of(driver, servers[2]) == [arrived.bucket]
    assert not driver.durable.intents, "nothing begins to move there before it is back"
    assert driver.state.moves.late == 0


def test_a_target_that_returns_has_its_time(job):
    """A stream that broke for a moment costs a move nothing."""
    driver, (_, s1) = job
    driver.feed(TO_S1)
    driver.now = Instant(driver.now + SECOND)
    driver.feed(StreamBroken(member=s1.key))
    s1.register()
    (undone_at,) = (at for at, event in deadlines(driver.state) if isinstance(event, MovesExpired))
    assert undone_at == driver.config.move_timeout_ns


def test_what_a_leaving_server_could_not_hand_over_is_tried_again(job):
    """Rule 53: its grace runs."""
    driver, (s0, s1) = job
    driver.say(s0.key, ServerLeaving())
    driver.fire(MovesExpired)
    run_servers(driver, [s0, s1])
    assert [intent.version for intent in driver.durable.intents] == [1, 1]


def test_few_buckets_are_on_their_way_together_and_a_newer_wish_replaces_what_waits():
    """Rule 40; the first wish's moves that have begun go on."""
    driver, servers = serving(JobConfig(servers=2, bucket_count=8, moves_at_once=2))
    everything = tuple(Move(bucket=b, source=0, target=1) for b in range(4))
    driver.feed(MovesAsked(moves=everything, reason="first"))
    assert [intent.bucket for intent in driver.durable.intents] == [0, 1]
    driver.feed(MovesAsked(moves=(Move(bucket=7, source=1, target=0),), reason="second"))
    carry(driver, servers)
    assert driver.durable.route.owner == (1, 1, 0, 0, 1, 1, 1, 0)


# ---- servers come and go --------------------------------------------------------------------------------------------


def test_a_newcomer_enters_with_nothing_and_gets_its_share(job):
    """Rule 49: 2 to 3 servers, everybody else's process goes on (M9)."""
    driver, servers = job
    driver.want(3)
    third = Marks(driver, 2)
    third.register()
    assert to(driver, third.key, Restore)[-1].buckets == EMPTY
    servers.append(third)
    carry(driver, servers)
    assert sorted(owners(driver)) == ["s0", "s1", "s1", "s2"] or sorted(owners(driver)) == ["s0", "s0", "s1", "s2"]
    assert driver.state.number == 1
    assert sum(len(server.buckets) for server in servers) == 4


def test_a_leaving_server_is_emptied_then_released_and_its_end_is_no_loss(job):
    """Rules 49, 54: 3 to 2, and nobody goes back to a checkpoint."""
    driver, (s0, s1) = job
    driver.say(s0.key, ServerLeaving(reason="scaled down"))
    assert not to(driver, s0.key, Released)
    carry(driver, [s0, s1])
    assert owners(driver) == ["s1"] * 4
    assert len(to(driver, s0.key, Released)) == 1
    s0.restart()
    assert (driver.state.number, driver.state.stage) == (1, Stage.SERVING)


def test_an_ordinal_beyond_the_most_servers_is_refused(job):
    driver, _ = job
    (refused,) = Marks(driver, 3).register()
    assert isinstance(refused, Refused)


# ---- losses ---------------------------------------------------------------------------------------------------------


def test_a_lost_target_undoes_its_moves_and_costs_nothing(job):
    """Rules 49, 53: a newcomer dies before it owns anything."""
    driver, servers = job
    driver.want(3)
    third = Marks(driver, 2)
    third.register()
    run_servers(driver, [*servers, third])
    assert {intent.target for intent in driver.durable.intents} == {third.key}
    third.restart()
    assert driver.state.number == 1
    assert all(intent.target == third.key for intent in driver.durable.intents), "the process that came instead"


def test_a_target_that_goes_while_the_intent_is_written_is_undone(job):
    """Rule 46; found by the checker."""
    driver, servers = job
    driver.want(3)
    third = Marks(driver, 2)
    third.register()
    driver.writes_go_through = False
    run_servers(driver, [*servers, third])
    third.restart()
    driver.let_go()
    assert not any(intent.target.incarnation == Incarnation("s2/1") for intent in driver.durable.intents)


def test_a_source_lost_with_everything_installed_is_no_loss(job):
    """Rule 53: FLIP saves it."""
    driver, (s0, s1) = job
    driver.say(s0.key, ServerLeaving())
    driver.writes_go_through = False
    for intent in driver.state.moves.intents:
        installed(driver, s1, intent.bucket)
    s0.process += 1
    s0.lineage = 0
    s0.register()
    driver.let_go()
    assert driver.state.number == 1
    assert owners(driver) == ["s1"] * 4


def test_a_source_lost_before_that_rolls_back_and_deletes_the_intents(job):
    """Rules 53, 56."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    s0.restart()
    run_servers(driver, [s0, s1])
    assert (driver.state.number, driver.state.stage) == (2, Stage.SERVING)
    assert driver.durable.intents == ()
    assert set(driver.durable.route.version) == {0}


def test_the_new_owner_lost_before_it_serves_rolls_back(job):
    """Rule 54."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    installed(driver, s1, 0)
    s1.restart()
    run_servers(driver, [s0, s1])
    assert driver.state.number == 2


# ---- new masters ----------------------------------------------------------------------------------------------------


def test_a_new_master_undoes_what_it_finds_begun_and_activates_before_it_asks(job):
    """Rule 55: ACTIVATE and FORGET come before the question for marks."""
    driver, (s0, s1) = job
    driver.feed(TO_S1)
    driver.start()
    for server in (s0, s1):
        server.register()
    assert (driver.durable.route.owner[0], driver.durable.route.version[0]) == (0, 1)
    last = [type(message) for member, message in driver.sent if member == s0.key][-2:]
    assert last == [Activate, AskMarks]
    run_servers(driver, [s0, s1])
    assert (driver.state.number, driver.state.stage) == (1, Stage.SERVING)


def test_a_new_master_does_not_wait_for_a_server_that_owns_nothing(job):
    """Rule 49."""
    driver, (s0, s1) = job
    driver.say(s0.key, ServerLeaving())
    carry(driver, [s0, s1])
    driver.start()
    s1.register()
    run_servers(driver, [s1])
    assert driver.state.stage is Stage.SERVING


def test_a_newcomer_does_not_stand_for_an_owner_that_is_still_to_come(job):
    """Rule 55: no roll-back while every owner may still register."""
    driver, (s0, s1) = job
    driver.start()
    driver.want(3)
    third = Marks(driver, 2)
    for server in (third, s0):
        server.register()
    assert driver.state.stage is Stage.GATHERING
    s1.register()
    run_servers(driver, [s0, s1, third])
    assert (driver.state.number, driver.state.stage) == (1, Stage.SERVING)


def test_a_leaving_owner_that_is_lost_is_not_waited_for(job):
    """Nobody comes in its place: the others take its buckets from the last checkpoint (rule 56)."""
    driver, (s0, s1) = job
    driver.say(s0.key, ServerLeaving())
    driver.feed(StreamBroken(member=s0.key))
    driver.fire(ReconnectWindowEnded)
    run_servers(driver, [s1])
    assert (driver.state.number, driver.state.stage) == (2, Stage.SERVING)
    assert owners(driver) == ["s1"] * 4


# ---- cuts and skips -------------------------------------------------------------------------------------------------


def test_no_cut_begins_while_a_bucket_is_on_its_way_and_it_comes_first_after_that(job):
    """Rule 59, for pace."""
    driver, servers = job
    train(driver, servers, 1)
    moves = tuple(Move(bucket=b, source=0, target=1) for b in (0, 1))
    driver.feed(MovesAsked(moves=moves[:1], reason="load"))
    driver.fire(CommitDue)
    driver.feed(MovesAsked(moves=moves[1:], reason="load"))
    assert driver.state.commit.phase is Phase.IDLE
    carry(driver, servers)
    assert to(driver, servers[0].key, Hold)
    assert driver.head is not None


def test_a_server_that_has_to_go_does_not_wait_for_a_cut(job):
    """Rule 59: FREEZE under an open cut costs at most one cut."""
    driver, (s0, s1) = job
    train(driver, [s0, s1], 1)
    driver.fire(CommitDue)
    assert driver.state.commit.phase is Phase.HOLDING
    driver.feed(TO_S1)
    assert not to(driver, s0.key, Freeze)
    driver.say(s0.key, ServerLeaving())
    assert to(driver, s0.key, Freeze)


def cut_without_the_file_of(driver, servers, slow):
    """A cut is open, the leaver has no bucket any more, and its file is still being written."""
    train(driver, servers, 1)
    answer = slow.answer
    slow.answer = lambda said: None if isinstance(said, Cut) else answer(said)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    driver.say(slow.key, ServerLeaving())
    carry(driver, servers)
    assert (driver.state.commit.phase, owners(driver)) == (Phase.WRITING, ["s1"] * 4)


def test_a_leaving_server_is_not_released_while_its_file_is_owed(job):
    """Rule 59: the file is written whatever becomes of the bucket; the process that writes it has to live so long."""
    driver, servers = job
    cut_without_the_file_of(driver, servers, servers[0])
    assert not to(driver, servers[0].key, Released)
    said = to(driver, servers[0].key, Cut)[-1]
    listed = driver.state.commit.held[0]
    marks = tuple(replace(group, applied=said.data) for group in listed)
    file = FileRecord(name="late", size_bytes=1, digest="d", lineage=1, marks=marks)
    driver.say(servers[0].key, Written(cut=said.cut, file=file))
    assert driver.head is not None
    assert to(driver, servers[0].key, Released)


def test_a_lost_server_whose_file_is_owed_gives_the_cut_up(job):
    """It owned nothing any more, so nobody goes back; but its file will not come."""
    driver, servers = job
    cut_without_the_file_of(driver, servers, servers[0])
    driver.feed(StreamBroken(member=servers[0].key))
    driver.fire(ReconnectWindowEnded)
    assert (driver.state.stage, driver.state.number) == (Stage.SERVING, 1)
    assert driver.state.commit.phase is Phase.IDLE
    driver.fire(CommitDue)
    run_servers(driver, servers[1:])
    assert driver.head is not None


def test_a_skip_is_asked_of_the_owner_that_has_not_answered_it(job):
    """Rule 60: what a source could not say any more, the target is asked."""
    driver, (s0, s1) = serving(JobConfig(servers=2, bucket_count=4, quarantine_after=1))
    driver.feed(TO_S1)
    train(driver, [s0, s1], 1)  # what a trainer that has worked fails at may be to blame
    (lease,) = driver.leases(T0, 2)
    driver.say(T0, Failed(positions=lease.positions, message="boom"))
    driver.say(T0, Leave())
    assert driver.state.skip is not None
    skip = to(driver, s0.key, Skip)[-1]
    (frozen, others) = PositionSet.of(0), PositionSet.span(1, 4)
    said = {"lineage": 1, "positions": skip.positions, "applied": EMPTY}
    driver.say(s0.key, SkipAnswer(skipped=others & s0.buckets, **said))
    driver.say(s1.key, SkipAnswer(skipped=others & s1.buckets, **said))
    installed(driver, s1, 0)
    asked = len(to(driver, s1.key, Skip))
    driver.say(s1.key, Activated(lineage=1, buckets=frozen, version=Version(1)))
    assert len(to(driver, s1.key, Skip)) == asked + 1
    driver.say(s1.key, SkipAnswer(skipped=frozen, **said))
    assert driver.durable.lineage.quarantine == skip.positions


def test_a_table_change_is_refused_after_any_other(job):
    """Rule 37: the whole table is compared, its revision with it."""
    driver, (_, s1) = job
    driver.feed(TO_S1)
    installed(driver, s1, 0)
    writes = [e.write for e in driver.effects if isinstance(e, Persist) and isinstance(e.write, ChangeTable)]
    assert [write.new.route.revision for write in writes] == [2, 3]
    assert writes[0].new == writes[1].old
