"""The commit by cut, the plain commit, head and retention (rules 19 to 25, 32, 36)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master import job
from master.api.master_status import JobPhase
from master.api.messages.checkpoint_files import BucketMarks
from master.api.messages.from_members import Ack, Acquire, CutRefusal, CutRefused, Held, Written
from master.api.messages.to_members import Cut, Drop, Granted, Hold
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import SECOND, SwapHead
from master.job.domain.effects import Persist, Retain, StepDown, WriteManifest
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import (
    CommitDue,
    CutExpired,
    HoldExpired,
    ManifestWriteFailed,
    PersistRefused,
    ReconnectWindowEnded,
    StreamBroken,
)
from master.job.state.bucket_marks import compare_marks, lists_exactly
from master.job.state.protocol_state import CommitPhase
from tests.unit.master.job.driver import SPEC, Driver, key, run_servers, serving

T0 = key("t0")


@pytest.fixture
def running():
    """Two servers; t0 has trained its first lease on both and acked it."""
    driver, servers = serving()
    (lease,) = driver.leases(T0, 1)
    for server in servers:
        server.applied |= lease.positions
    driver.send(T0, Ack(token=lease.token, positions=lease.positions))
    return driver, servers


def to(driver, server, kind):
    return [message for member, message in driver.sent if member == server.key and isinstance(message, kind)]


def test_commit_makes_head_of_what_the_files_say(running):
    """M1, rule 22: the data state is what every file carries."""
    driver, servers = running
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert driver.head.data == PositionSet.span(0, 40)
    assert {group.applied for file in driver.head.files for group in file.marks} == {driver.head.data}
    assert driver.state.dispatch.committed == driver.head.data
    assert driver.state.commit.phase is CommitPhase.IDLE


def test_cut_goes_out_only_when_all_have_answered_hold(running):
    """Rules 19, 20."""
    driver, servers = running
    driver.fire(CommitDue)
    first, second = (to(driver, server, Hold)[-1] for server in servers)
    assert first == second
    driver.send(servers[0].key, Held(cut=first.cut, marks=servers[0].marks()))
    assert not to(driver, servers[0], Cut)
    driver.send(servers[1].key, Held(cut=first.cut, marks=servers[1].marks()))
    assert to(driver, servers[0], Cut) == to(driver, servers[1], Cut) != []


def test_cut_is_the_union_of_marks_and_never_what_was_acked(running):
    """Rule 20: D from HELD."""
    driver, servers = running
    servers[1].applied |= PositionSet.span(150, 160)  # nobody has acked this
    servers[0].applied -= PositionSet.span(0, 10)  # acked, and not there
    driver.fire(CommitDue)
    hold = to(driver, servers[0], Hold)[-1]
    for server in servers:
        driver.send(server.key, Held(cut=hold.cut, marks=server.marks()))
    cut = to(driver, servers[0], Cut)[-1]
    assert cut.data == PositionSet.span(0, 40) | PositionSet.span(150, 160)
    assert PositionSet.span(0, 10) <= driver.state.dispatch.todo, "a false hint is taken back (rule 15)"
    assert not PositionSet.span(150, 160) & driver.state.dispatch.done, "D is no ground for DONE"


def test_what_the_cut_waits_for_is_leased_first(running):
    """Rule 20, last sentence."""
    driver, servers = running
    servers[1].applied |= PositionSet.span(180, 190)
    driver.fire(CommitDue)
    hold = to(driver, servers[0], Hold)[-1]
    for server in servers:
        driver.send(server.key, Held(cut=hold.cut, marks=server.marks()))
    (lease,) = driver.leases(T0, 2)
    assert lease.positions == PositionSet.span(180, 190)


def half_pushed(driver, servers):
    """t0 was killed between its pushes to two servers: what it has in hand is in one of them."""
    (lease,) = driver.leases(T0, 2)
    half = lease.positions.first(10)
    servers[1].applied |= half
    return lease, half


def answer_hold(driver, servers):
    driver.fire(CommitDue)
    hold = to(driver, servers[0], Hold)[-1]
    for server in servers:
        driver.send(server.key, Held(cut=hold.cut, marks=server.marks()))


@pytest.mark.parametrize("first", ["its stream breaks", "the cut opens"])
def test_a_cut_waits_only_briefly_for_a_trainer_that_was_killed(running, first):
    """Rules 18, 20.  Seen: the checkpoint that a dying trainer's push was half in took the whole window, 11 s."""
    driver, servers = running
    lease, half = half_pushed(driver, servers)
    if first == "the cut opens":
        answer_hold(driver, servers)
        driver.feed(StreamBroken(member=T0))
    else:
        driver.feed(StreamBroken(member=T0))
        answer_hold(driver, servers)
    colleague = driver.trainer("t1", declares=None)
    (other,) = driver.leases(colleague, 1)
    driver.send(colleague, Ack(token=other.token, positions=other.positions))
    ((due, ended),) = [one for one in job.deadlines(driver.state) if isinstance(one[1], ReconnectWindowEnded)]
    assert due - driver.now == driver.config.short_window_ns
    driver.feed(ended)
    (next_lease,) = driver.leases(colleague, 2)
    assert next_lease.positions & lease.positions == half


def test_a_trainer_whose_work_no_cut_waits_for_has_its_whole_window(running):
    """What it has in hand is in no server: the checkpoint goes without it."""
    driver, servers = running
    driver.leases(T0, 2)
    answer_hold(driver, servers)
    driver.feed(StreamBroken(member=T0))
    ((due, _),) = [one for one in job.deadlines(driver.state) if isinstance(one[1], ReconnectWindowEnded)]
    assert due - driver.now == driver.config.reconnect_window_ns


def test_files_that_differ_are_dropped_and_what_all_have_is_done(running):
    """Rule 22."""
    driver, servers = running
    driver.fire(CommitDue)
    hold = to(driver, servers[0], Hold)[-1]
    for server in servers:
        driver.send(server.key, Held(cut=hold.cut, marks=server.marks()))
    answers = [server.answer(to(driver, server, Cut)[-1]) for server in servers]
    marks = tuple(replace(group, applied=group.applied | PositionSet.span(50, 60)) for group in answers[1].file.marks)
    driver.send(servers[0].key, answers[0])
    driver.send(servers[1].key, Written(cut=hold.cut, file=replace(answers[1].file, marks=marks)))
    assert driver.head is None
    assert driver.state.commit.phase is CommitPhase.IDLE
    assert driver.state.dispatch.done == PositionSet.span(0, 40)


@pytest.mark.parametrize("reason", list(CutRefusal))
def test_any_refusal_gives_the_cut_up_at_every_server(running, reason):
    """Rule 19; the next attempt has another id and comes after a pause."""
    driver, servers = running
    driver.fire(CommitDue)
    hold = to(driver, servers[0], Hold)[-1]
    driver.send(servers[1].key, CutRefused(cut=hold.cut, reason=reason, message="why"))
    assert [to(driver, server, Drop)[-1].cut for server in servers] == [hold.cut, hold.cut]
    told = job.status(driver.state, driver.now)
    assert reason in told.checkpoint_problem
    assert told.problem == "", "training goes on"
    driver.fire(CommitDue)
    assert to(driver, servers[0], Hold)[-1].cut > hold.cut


@pytest.mark.parametrize("event", ["the server that waits gives up", "the master gives up"])
def test_who_did_not_answer_hold_is_named(running, event):
    """Not the server that answered and held its pushes in vain: the user would look at the wrong one."""
    driver, servers = running
    driver.fire(CommitDue)
    hold = to(driver, servers[0], Hold)[-1]
    driver.send(servers[1].key, Held(cut=hold.cut, marks=servers[1].marks()))
    if event == "the master gives up":
        driver.fire(HoldExpired)
    else:
        driver.send(servers[1].key, CutRefused(cut=hold.cut, reason=CutRefusal.GONE, message="no CUT came in time"))
    problem = job.status(driver.state, driver.now).checkpoint_problem
    assert problem.endswith(f"{servers[0].key.name} did not answer HOLD in time")


def test_pause_after_refusals_doubles_up_to_a_bound(running):
    """Every retry has a budget."""
    driver, servers = running
    pauses = []
    driver.fire(CommitDue)
    for _ in range(12):
        cut = to(driver, servers[0], Hold)[-1].cut
        driver.send(servers[0].key, CutRefused(cut=cut, reason=CutRefusal.FAILED, message="disk full"))
        pauses.append(driver.state.commit.due - driver.now)
        driver.fire(CommitDue)
    assert pauses[1] == 2 * pauses[0]
    assert pauses[-1] == driver.config.retry_last_ns


@pytest.mark.parametrize("how", ["refused", "unanswered"])
def test_a_busy_server_delays_commits_by_no_more_than_their_interval(how):
    """On a loaded machine, or while a server is emptied, five refusals in a row stopped commits for 15 s."""
    driver, servers = serving(JobConfig(servers=2, checkpoint_every_ns=3 * SECOND))
    (lease,) = driver.leases(T0, 1)
    for server in servers:
        server.applied |= lease.positions
    driver.send(T0, Ack(token=lease.token, positions=lease.positions))
    pauses = []
    driver.fire(CommitDue)
    for _ in range(12):
        if how == "refused":
            cut = to(driver, servers[0], Hold)[-1].cut
            driver.send(servers[0].key, CutRefused(cut=cut, reason=CutRefusal.GONE))
        else:
            driver.fire(HoldExpired)
        pauses.append(driver.state.commit.due - driver.now)
        driver.fire(CommitDue)
    assert pauses[1] == 2 * pauses[0]
    assert max(pauses) == pauses[-1] == driver.config.checkpoint_every_ns


@pytest.mark.parametrize(("kind", "answered"), [(HoldExpired, 0), (CutExpired, 2)])
def test_servers_that_do_not_answer_in_time_end_the_attempt(running, kind, answered):
    """Rules 19, 21: every wait has a deadline."""
    driver, servers = running
    driver.fire(CommitDue)
    hold = to(driver, servers[0], Hold)[-1]
    for server in servers[:answered]:
        driver.send(server.key, Held(cut=hold.cut, marks=server.marks()))
    driver.fire(kind)
    assert driver.state.commit.phase is CommitPhase.IDLE
    assert to(driver, servers[0], Drop)


def test_answers_to_an_attempt_that_was_given_up_are_nobodys(running):
    """Rule 4: ids are fresh."""
    driver, servers = running
    driver.fire(CommitDue)
    old = to(driver, servers[0], Hold)[-1]
    driver.fire(HoldExpired)
    driver.fire(CommitDue)
    for server in servers:
        driver.send(server.key, Held(cut=old.cut, marks=server.marks()))
    assert driver.state.commit.phase is CommitPhase.HOLDING


def test_server_that_lists_other_buckets_ends_the_attempt(running):
    """Rule 58: all HELD together list every bucket exactly once."""
    driver, servers = running
    driver.fire(CommitDue)
    hold = to(driver, servers[0], Hold)[-1]
    for server in servers:
        driver.send(server.key, Held(cut=hold.cut, marks=servers[1].marks()))
    assert driver.state.commit.phase is CommitPhase.IDLE


def test_server_that_returns_is_told_of_the_cut_again(running):
    """A stream that broke may have lost the question."""
    driver, servers = running
    driver.fire(CommitDue)
    driver.feed(StreamBroken(member=servers[0].key))
    servers[0].register()
    assert len(to(driver, servers[0], Hold)) == 2
    run_servers(driver, servers)
    assert driver.head is not None


def test_trainers_death_forces_no_retry(running):
    """Rule 22: trainers take no part."""
    driver, servers = running
    driver.fire(CommitDue)
    driver.trainer("t0", process=2)
    run_servers(driver, servers)
    assert driver.head.data == PositionSet.span(0, 40)


def test_head_moves_only_after_its_manifest_is_there(running):
    """Rule 23: the manifest last, then one transaction."""
    driver, servers = running
    driver.manifests_go_through = False
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert not [e for e in driver.effects if isinstance(e, Persist) and isinstance(e.write, SwapHead)]
    driver.let_go()
    assert driver.head is not None


def test_manifest_that_cannot_be_written_gives_up(running):
    """A full folder costs this checkpoint and nothing else."""
    driver, servers = running
    driver.manifests_go_through = False
    driver.fire(CommitDue)
    run_servers(driver, servers)
    (held,) = driver.held_back
    driver.held_back.clear()
    driver.feed(ManifestWriteFailed(manifest=held.manifest.id, reason="no space left"))
    assert "no space left" in job.status(driver.state, driver.now).checkpoint_problem
    driver.let_go()
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert driver.head is not None


def test_refused_swap_ends_the_term(running):
    """Rule 23: somebody else has moved on; read before anything else."""
    driver, servers = running
    driver.writes_go_through = False
    driver.fire(CommitDue)
    run_servers(driver, servers)
    (swap,) = driver.held_back
    driver.feed(PersistRefused(write=swap.write, reason="head is another"))
    assert isinstance(driver.effects[-1], StepDown)
    assert driver.send(T0, Acquire(request=9)) == []


def test_committed_leases_shrink_and_late_acks_of_them_change_nothing(running):
    """M4: COMMITTED and LEASED are apart, though the trainer has not said so yet."""
    driver, servers = running
    (lease,) = driver.leases(T0, 2)
    for server in servers:
        server.applied |= lease.positions
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert lease.positions <= driver.state.dispatch.committed
    assert driver.state.dispatch.lease_count == 0
    driver.send(T0, Ack(token=lease.token, positions=lease.positions))
    assert driver.state.dispatch.done == EMPTY


def test_head_and_base_are_retained(running):
    """Rule 25."""
    driver, servers = running
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert driver.effects[-1] == Retain(manifests=frozenset({driver.head.id}))


def test_base_of_the_lineage_is_retained_beside_a_newer_head(running):
    """Rule 25: a server that restores what the lineage began with finds its files, whatever was committed since."""
    driver, servers = running
    driver.fire(CommitDue)
    run_servers(driver, servers)
    base = driver.head.id
    servers[0].restart()
    run_servers(driver, servers)
    assert driver.durable.lineage.base == base
    driver.trainer("t0", declares=None)
    (lease,) = driver.leases(T0, 2)
    for server in servers:
        server.applied |= lease.positions
    driver.send(T0, Ack(token=lease.token, positions=lease.positions))
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert driver.head.id != base
    assert driver.effects[-1] == Retain(manifests=frozenset({base, driver.head.id}))


def test_commit_without_news_is_not_made(running):
    """No manifest like the one before."""
    driver, servers = running
    driver.fire(CommitDue)
    run_servers(driver, servers)
    before = sum(isinstance(effect, WriteManifest) for effect in driver.effects)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert sum(isinstance(effect, WriteManifest) for effect in driver.effects) == before


def test_plain_commit_is_what_was_done_when_it_began():
    """Rule 36: acks that come while the manifest is written belong to the next one."""
    driver = Driver(JobConfig(servers=0, first_shard_batches=1)).start()
    member = driver.trainer("t0")
    (first,) = driver.leases(member, 1)
    (second,) = driver.leases(member, 2)
    driver.send(member, Ack(token=first.token, positions=first.positions))
    driver.manifests_go_through = False
    driver.fire(CommitDue)
    driver.send(member, Ack(token=second.token, positions=second.positions))
    driver.let_go()
    assert driver.head.data == first.positions
    assert driver.head.files == ()
    assert driver.state.dispatch.done == second.positions


def test_done_of_plain_sharding_is_durable_only_when_committed():
    """Rule 36: a new master knows head and nothing else."""
    driver = Driver(JobConfig(servers=0)).start()
    member = driver.trainer("t0")
    (lease,) = driver.leases(member, 1)
    driver.send(member, Ack(token=lease.token, positions=lease.positions))
    driver.start()
    assert driver.state.dispatch.todo == SPEC.everything


def test_last_ack_commits_at_once_and_then_end():
    """Rule 32, M3."""
    driver = Driver(JobConfig(servers=0, first_shard_batches=100)).start()
    member = driver.trainer("t0")
    request = 0
    while isinstance(answer := driver.acquire(member, request), Granted):
        request += 1
        for lease in answer.leases:
            driver.send(member, Ack(token=lease.token, positions=lease.positions))
    assert driver.head.is_complete


def test_compare_finds_equal_and_different_marks():
    """Rule 22, on the values."""
    one = BucketMarks(buckets=PositionSet.of(0), applied=PositionSet.span(0, 10), skipped=PositionSet.of(12))
    same = replace(one, buckets=PositionSet.of(1))
    more = replace(one, buckets=PositionSet.of(1), applied=PositionSet.span(0, 11))
    assert compare_marks([one, same]).are_equal
    different = compare_marks([one, more])
    assert not different.are_equal
    assert (different.anywhere, different.everywhere) == (PositionSet.span(0, 11), PositionSet.span(0, 10))
    assert lists_exactly([one, same], PositionSet.span(0, 2))
    assert not lists_exactly([one, one], PositionSet.of(0))
    assert not lists_exactly([one], PositionSet.span(0, 2))


def refuse(driver, server):
    """It takes no part in the cut that is open."""
    hold = to(driver, server, Hold)[-1]
    driver.send(server.key, CutRefused(cut=hold.cut, reason=CutRefusal.FAILED, message="no room"))
    assert "no room" in job.status(driver.state, driver.now).checkpoint_problem


def test_a_commits_problem_ends_with_the_model_it_was_of(running):
    """Nothing is left to commit after a roll-back: for an interval people were told of what was over."""
    driver, servers = running
    driver.fire(CommitDue)
    refuse(driver, servers[0])
    servers[0].restart()
    run_servers(driver, servers)
    told = job.status(driver.state, driver.now)
    assert told.phase is JobPhase.TRAINING
    assert (told.lineage, told.checkpoint_problem) == (2, "")


def test_a_commits_problem_ends_when_nothing_is_left_to_commit(running):
    """What was acked and no server has is trained again: it was never there to be committed."""
    driver, servers = running
    for server in servers:
        server.applied = EMPTY
    driver.fire(CommitDue)
    hold = to(driver, servers[0], Hold)[-1]
    for server in servers:
        driver.send(server.key, Held(cut=hold.cut, marks=server.marks()))
    refuse(driver, servers[0])
    driver.fire(CommitDue)
    assert not driver.state.dispatch.done
    assert job.status(driver.state, driver.now).checkpoint_problem == ""
