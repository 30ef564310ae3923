"""The books: leases, acks, returns, expiry, the high-water mark (rules 3, 10, 12 to 18; M2 to M4)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from master import job
from master.api.identities import Lease, LeaseToken
from master.api.messages.from_members import Ack, Acquire, Leave, Progress, RegisterTrainer, Return
from master.api.messages.to_members import Fenced, Granted, Refused, Registered, Wait
from master.api.positions import EMPTY, PositionSet
from master.job.dispatch.high_water import next_block
from master.job.domain.durable_records import SECOND, Instant, ReserveHighWater
from master.job.domain.effects import Persist
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import LeaseExpired, ReclaimWindowEnded, StreamBroken
from master.job.state import dispatch_state
from master.job.state.protocol_state import HighWaterMark
from tests.unit.master.job.driver import SPEC, Driver, key

CONFIG = JobConfig(servers=0, high_water_batches=4)


@pytest.fixture
def driver():
    return Driver(CONFIG).start()


def ack(driver, member, lease, positions=None):
    driver.send(member, Ack(token=lease.token, positions=positions or lease.positions))


def lease_deadline(driver):
    ((at, _),) = [due for due in job.deadlines(driver.state) if isinstance(due[1], LeaseExpired)]
    return at


def test_grant_takes_the_lowest_positions_first(driver):
    """Rule 16."""
    one, other = driver.trainer("t0"), driver.trainer("t1")
    (first,) = driver.leases(one, 1)
    (second,) = driver.leases(other, 1)
    assert first.positions.bounds[0] == 0
    assert second.positions.bounds[0] == first.positions.bounds[1]


def test_settled_is_what_head_has_and_what_was_quarantined_since():
    """M4: a quarantine newer than the checkpoint stays, one that the checkpoint knows is taken over."""
    books = dispatch_state.DispatchState(everything=PositionSet.span(0, 50), todo=PositionSet.span(10, 30))
    books = replace(
        books, done=PositionSet.span(0, 10), quarantined=PositionSet.span(40, 50), skipping=PositionSet.span(30, 40)
    )
    settled = dispatch_state.apply_head(books, PositionSet.span(0, 20), PositionSet.span(30, 40))
    dispatch_state.check_invariants(settled)
    assert (settled.committed, settled.quarantined) == (PositionSet.span(0, 20), PositionSet.span(30, 50))
    assert (settled.todo, settled.done, settled.skipping) == (PositionSet.span(20, 30), EMPTY, EMPTY)


def test_a_request_whose_leases_are_trained_waits_when_it_is_asked_again(driver):
    """Rule 10: its answer is not another grant, and not silence."""
    member = driver.trainer("t0")
    (lease,) = driver.leases(member, 1)
    ack(driver, member, lease)
    assert isinstance(driver.acquire(member, 1), Wait)


def test_what_comes_back_is_granted_before_all_else(driver):
    """Rule 16: to the front."""
    one, other = driver.trainer("t0"), driver.trainer("t1")
    (first,) = driver.leases(one, 1)
    driver.leases(other, 1)
    driver.send(one, Return(token=first.token, positions=PositionSet.span(10, 20)))
    (again,) = driver.leases(other, 2)
    assert again.positions.bounds[:2] == (10, 20)


def test_several_leases_in_one_answer_are_disjoint_and_end_with_the_epoch(driver):
    """M2; a batch never crosses an epoch's end, so neither does a lease."""
    leases = driver.leases(driver.trainer("t0"), 1, shards=4)
    assert [str(lease.positions) for lease in leases] == ["0-19", "20-39", "40-59", "60-79"]
    leases = driver.leases(key("t0"), 2, shards=4)
    assert all(lease.positions.bounds[0] // 100 == (lease.positions.bounds[-1] - 1) // 100 for lease in leases)


def test_same_request_again_gets_the_same_leases(driver):
    """Rule 10: a lost answer is asked for again."""
    member = driver.trainer("t0")
    first = driver.acquire(member, 1)
    assert driver.acquire(member, 1) == first
    assert driver.state.dispatch.lease_count == 1


def test_an_older_request_is_not_answered(driver):
    """Rule 10: a repeat from the network must not make a lease that nobody knows of."""
    member = driver.trainer("t0")
    driver.acquire(member, 5)
    assert driver.send(member, Acquire(request=4)) == []


def test_ack_with_an_old_token_changes_nothing(driver):
    """M2, rule 15: another term, lineage, incarnation or number is another lease."""
    member = driver.trainer("t0")
    (lease,) = driver.leases(member, 1)
    for wrong in ({"term": 9}, {"lineage": 9}, {"number": 99}, {"incarnation": "x"}):
        driver.send(member, Ack(token=replace(lease.token, **wrong), positions=lease.positions))
    assert driver.state.dispatch.done == EMPTY


def test_ack_counts_only_what_the_lease_holds(driver):
    """Rule 12: an ack of more than was leased is an ack of what was leased."""
    member = driver.trainer("t0")
    (lease,) = driver.leases(member, 1)
    ack(driver, member, lease, PositionSet.span(0, 200))
    assert driver.state.dispatch.done == lease.positions


def test_another_trainers_token_acks_nothing(driver):
    """M2."""
    one, other = driver.trainer("t0"), driver.trainer("t1")
    (lease,) = driver.leases(one, 1)
    ack(driver, other, lease)
    assert driver.state.dispatch.done == EMPTY


def test_lease_expires_without_progress_and_its_trainer_is_fenced(driver):
    """M2: alive is not enough."""
    member = driver.trainer("t0")
    (lease,) = driver.leases(member, 1)
    sent = driver.fire(LeaseExpired)
    assert [type(message) for to, message in sent if to == member] == [Fenced]
    assert lease.positions <= driver.state.dispatch.todo
    assert isinstance(driver.send(member, Ack(token=lease.token, positions=lease.positions))[0], Fenced)
    assert driver.state.dispatch.done == EMPTY


def test_progress_renews_the_lease_and_a_mere_message_does_not(driver):
    """M2: leases are renewed by progress."""
    member = driver.trainer("t0")
    driver.leases(member, 1)
    driver.send(member, Progress(steps=1, samples_per_s=10.0))
    (deadline,) = [at for at, event in job.deadlines(driver.state) if isinstance(event, LeaseExpired)]
    driver.now = Instant(driver.now + SECOND)
    driver.send(member, Progress(steps=1, samples_per_s=10.0))
    assert [at for at, event in job.deadlines(driver.state) if isinstance(event, LeaseExpired)] == [deadline]
    driver.send(member, Progress(steps=2, samples_per_s=10.0))
    assert [at for at, event in job.deadlines(driver.state) if isinstance(event, LeaseExpired)] == [deadline + SECOND]


def test_expiry_of_a_renewed_lease_does_nothing(driver):
    """A deadline that comes late for what was renewed meanwhile is stale."""
    member = driver.trainer("t0")
    driver.leases(member, 1)
    (stale,) = [event for _, event in job.deadlines(driver.state) if isinstance(event, LeaseExpired)]
    driver.now = Instant(driver.now + SECOND)
    driver.send(member, Progress(steps=1))
    driver.feed(stale)
    assert driver.state.dispatch.lease_count == 1


def test_patience_is_the_floor_or_some_batch_times(driver):
    """Config: max(lease_floor, lease_factor x expected batch time)."""
    member = driver.trainer("t0")
    driver.leases(member, 1)
    driver.send(member, Progress(steps=1, samples_per_s=1.0))  # a batch of 10 takes 10 s
    (at,) = [at for at, event in job.deadlines(driver.state) if isinstance(event, LeaseExpired)]
    assert at == CONFIG.lease_factor * 10 * SECOND


@pytest.mark.parametrize(("said", "shown"), [(0.25, 0.25), (1.5, 1.0), (-1.0, 0.0), (float("nan"), 0.0)])
def test_share_of_waiting_is_shown_as_a_share(driver, said, shown):
    """Whatever a trainer's clock makes of it."""
    member = driver.trainer("t0")
    driver.send(member, Progress(steps=1, samples_per_s=10.0, waiting_share=said))
    assert driver.state.members.trainers["t0"].waiting_share == shown


@pytest.mark.parametrize("rate", [float("inf"), float("nan"), -1.0, 1e-300])
def test_rate_that_is_no_measurement_is_ignored(driver, rate):
    """Poison in a report changes no decision."""
    member = driver.trainer("t0")
    driver.send(member, Progress(steps=1, samples_per_s=rate))
    assert driver.state.members.trainers["t0"].samples_per_s == 0.0
    assert driver.leases(member, 1)


def test_leaving_returns_the_rest(driver):
    """Rule 13, M7."""
    member = driver.trainer("t0")
    (lease,) = driver.leases(member, 1)
    ack(driver, member, lease, PositionSet.span(0, 10))
    driver.send(member, Leave(reason="drained"))
    assert driver.state.dispatch.todo == SPEC.everything - PositionSet.span(0, 10)
    assert not driver.state.members.trainers


def test_new_process_of_a_name_frees_the_old_ones_leases_at_once(driver):
    """A restarted trainer is somebody else (rule 3)."""
    (lease,) = driver.leases(driver.trainer("t0"), 1)
    driver.trainer("t0", process=2)
    assert lease.positions <= driver.state.dispatch.todo
    zombie = key("t0")
    answers = driver.send(zombie, RegisterTrainer(name=zombie.name, ordinal=0, incarnation=zombie.incarnation))
    assert isinstance(answers[0], Refused)


def test_broken_stream_keeps_leases_until_the_window_ends(driver):
    """Rule 18: the same process may come back with what it holds."""
    member = driver.trainer("t0")
    (lease,) = driver.leases(member, 1)
    driver.feed(StreamBroken(member=member))
    assert driver.state.dispatch.lease_count == 1
    answers = driver.send(
        member,
        RegisterTrainer(name=member.name, ordinal=0, incarnation=member.incarnation, held=(lease,)),
    )
    assert [kept.positions for kept in answers[0].kept] == [lease.positions]
    assert answers[0].kept[0].token.number != lease.token.number


def test_ack_under_the_token_before_registering_again_is_refused(driver):
    """Rule 18: kept leases have new tokens."""
    member = driver.trainer("t0")
    (lease,) = driver.leases(member, 1)
    driver.trainer("t0", held=(lease,), declares=None)
    ack(driver, member, lease)
    assert driver.state.dispatch.done == EMPTY


def test_take_over_keeps_what_trainers_show_and_grants_only_above_the_mark(driver):
    """Rule 18: before the window ends nothing that an earlier master may have leased is granted."""
    one = driver.trainer("t0")
    driver.now = Instant(10 * SECOND)  # a slow job: the mark stays near
    (lease,) = driver.leases(one, 1)
    driver.start()
    other = driver.trainer("t1")
    answer = driver.acquire(other, 1)
    assert isinstance(answer, Granted)
    assert answer.leases[0].positions.bounds[0] >= 40
    (registered,) = [
        said
        for said in driver.send(
            one, RegisterTrainer(name=one.name, ordinal=0, incarnation=one.incarnation, held=(lease,))
        )
        if isinstance(said, Registered)
    ]
    assert registered.kept[0].token.term == 2
    assert registered.kept[0].positions == lease.positions


def test_after_the_window_unclaimed_positions_are_todo(driver):
    """Rule 18: the high-water mark skips nothing."""
    driver.leases(driver.trainer("t0"), 1)
    driver.start()
    driver.fire(ReclaimWindowEnded)
    (lease,) = driver.leases(driver.trainer("t1"), 1)
    assert lease.positions.bounds[0] == 0


def test_lease_that_overlaps_another_is_not_kept(driver):
    """Rule 18: M2 has the last word."""
    one = driver.trainer("t0")
    (lease,) = driver.leases(one, 1)
    driver.start()
    driver.fire(ReclaimWindowEnded)
    driver.leases(driver.trainer("t1"), 1)
    answers = driver.send(one, RegisterTrainer(name=one.name, ordinal=0, incarnation=one.incarnation, held=(lease,)))
    assert answers[0].kept == ()


def test_lease_of_another_lineage_is_not_kept(driver):
    """Rule 18."""
    member = key("t0")
    token = LeaseToken(term=1, lineage=7, incarnation=member.incarnation, number=1)
    driver.trainer("t0", held=(Lease(token=token, positions=PositionSet.span(0, 10)),))
    assert driver.state.dispatch.lease_count == 0


def test_nothing_is_granted_before_the_data_set_is_durable(driver):
    """Rule 17: a next master must know what the positions mean."""
    driver.writes_go_through = False
    member = driver.trainer("t0")
    assert isinstance(driver.acquire(member, 1), Wait)
    driver.let_go()
    assert isinstance(driver.acquire(member, 2), Granted)


def test_the_mark_is_written_in_blocks(driver):
    """M6: no store write per shard."""
    member = driver.trainer("t0", declares=None)
    driver.send(member, replace(driver.plain_declare(), dataset=replace(SPEC, size=10_000)))
    before = len(driver.effects)
    for request in range(1, 51):
        for lease in driver.leases(member, request):
            ack(driver, member, lease)
    writes = [e for e in driver.effects[before:] if isinstance(e, Persist) and isinstance(e.write, ReserveHighWater)]
    assert len(writes) < 25


def test_the_mark_runs_ahead_of_a_fast_job_and_stays_near_a_slow_one():
    """Rule 18: what a half block lasts sets the next one, by steps of four at most, whatever trainers report."""
    last, half = HighWaterMark(block=1000, at=Instant(0)), CONFIG.high_water_ns // 2
    assert next_block(last, Instant(half), lasts_ns=CONFIG.high_water_ns) == 1000
    assert next_block(last, Instant(half // 2), lasts_ns=CONFIG.high_water_ns) == 2000
    assert next_block(last, Instant(0), lasts_ns=CONFIG.high_water_ns) == 4000
    assert next_block(last, Instant(100 * half), lasts_ns=CONFIG.high_water_ns) == 250


def train_through(driver, member, *, acks=True):
    """All that is granted, one request after another; what was."""
    trained, request = EMPTY, 0
    while isinstance(answer := driver.acquire(member, request := request + 1), Granted):
        for lease in answer.leases:
            trained |= lease.positions
            if acks:
                ack(driver, member, lease)
    return trained


def test_grants_do_not_wait_for_the_store(driver):
    """M6, rule 18: a store that is away stops no trainer; the mark follows when it is back."""
    member = driver.trainer("t0")
    driver.writes_go_through = False
    assert train_through(driver, member) == SPEC.everything
    assert driver.durable.high_water < SPEC.everything.bounds[-1]
    driver.writes_go_through = True
    driver.let_go()
    assert driver.durable.high_water == SPEC.everything.bounds[-1]


def test_leases_above_the_mark_are_shown_to_a_next_master_and_kept(driver):
    """Rule 18: while the store was silent they went beyond what it knows; nobody else has them."""
    member = driver.trainer("t0")
    driver.writes_go_through = False
    train_through(driver, member, acks=False)
    held = driver.state.dispatch.holders[member.incarnation].leases
    assert held[-1].positions.bounds[-1] > driver.durable.high_water
    driver.writes_go_through = True
    driver.start()
    driver.trainer("t0", held=held, declares=None)
    assert driver.state.dispatch.leased == SPEC.everything


def test_a_next_master_goes_on_above_a_mark_that_work_has_left_behind(driver):
    """Rule 18, found by a store away: what is in every bucket may lie beyond the mark by more than a block."""
    member = driver.trainer("t0")
    driver.writes_go_through = False
    train_through(driver, member, acks=False)
    driver.writes_go_through = True
    block = CONFIG.high_water_batches * SPEC.batch_size
    assert driver.durable.high_water + block < 150
    driver.start()
    driver.feed(ReclaimWindowEnded(deadline=driver.state.reclaim_ends))
    state = driver.state
    books = dispatch_state.mark_done(state.dispatch, PositionSet.span(0, 150))
    driver.state = replace(state, dispatch=books)
    assert train_through(driver, driver.trainer("t1", declares=None)) == SPEC.everything - PositionSet.span(0, 150)


def test_work_of_a_trainer_that_is_gone_is_not_kept_from_one_that_waits_for_it(driver):
    """Rule 18: the window saves work; it does not hold up the end for its whole length."""
    gone, other = driver.trainer("t0"), driver.trainer("t1")
    (lease,) = driver.leases(gone, 1)
    for request in range(1, 100):
        if isinstance(answer := driver.acquire(other, request), Wait):
            break
        for one in answer.leases:
            ack(driver, other, one)
    driver.feed(StreamBroken(member=gone))
    assert isinstance(driver.acquire(other, 200), Wait), "it may be back in a moment"
    driver.now = Instant(driver.now + CONFIG.short_window_ns)
    driver.send(other, Acquire(request=201))
    assert driver.leases(other, 202)[0].positions <= lease.positions


def test_trainer_that_falls_silent_before_its_first_step_is_found_in_seconds(driver):
    """M2: compiling may take long, but a process that does so is heard of."""
    member = driver.trainer("t0")
    driver.leases(member, 1)
    assert lease_deadline(driver) == driver.now + CONFIG.lease_floor_ns
    for _ in range(30):
        driver.now = Instant(driver.now + 3 * SECOND)
        driver.send(member, Progress(steps=1, samples_per_s=0.0))  # the first batch is begun
    assert lease_deadline(driver) == driver.now + CONFIG.lease_floor_ns


def test_slow_trainer_keeps_its_lease_under_the_next_master(driver):
    """M2, M5: that master does not know its rate yet, and its batch may take a minute."""
    held = driver.leases(driver.trainer("t0"), 1)
    driver.start()
    member = driver.trainer("t0", declares=None, held=held)
    for _ in range(20):
        driver.now = Instant(driver.now + 3 * SECOND)
        driver.send(member, Progress(steps=7, samples_per_s=0.0))
    assert lease_deadline(driver) == driver.now + CONFIG.lease_floor_ns


def test_first_step_that_never_comes_loses_its_leases(driver):
    """M2: being alive does not renew for ever."""
    member = driver.trainer("t0")
    driver.leases(member, 1)
    for _ in range(100):
        driver.now = Instant(driver.now + 3 * SECOND)
        driver.send(member, Progress(steps=0, samples_per_s=0.0))
    assert lease_deadline(driver) <= CONFIG.lease_first_ns + CONFIG.lease_floor_ns


@pytest.mark.parametrize(("shards", "size"), [(1, 3000), (1, 3700), (1, 4400), (4, 3000), (4, 4000)])
def test_tail_waits_for_a_slow_trainer_no_longer_than_one_batch_takes_it(shards, size):
    """A lease is a share of time, so the slow one's shrinks first: 1 batch/s beside 100 batches/s."""
    driver = Driver(JobConfig(servers=0)).start()
    spec = replace(driver.plain_declare(), dataset=replace(SPEC, size=size))
    batch_s = {driver.trainer("t0", declares=spec): 1.0, driver.trainer("t1", declares=spec): 0.01}
    for member, seconds in batch_s.items():
        driver.send(member, Progress(steps=1, samples_per_s=SPEC.batch_size / seconds))
    free_at, requests = dict.fromkeys(batch_s, 0.0), itertools.count(1)
    while driver.state.dispatch.todo:
        member = min(free_at, key=free_at.__getitem__)
        for lease in driver.leases(member, next(requests), shards=shards):
            free_at[member] += batch_s[member] * len(lease.positions) / SPEC.batch_size
            ack(driver, member, lease)
    assert abs(free_at[key("t0")] - free_at[key("t1")]) <= 1.0


def test_acquire_of_a_stranger_is_fenced(driver):
    """M3: FENCED is not WAIT."""
    assert isinstance(driver.acquire(key("t7"), 1), Fenced)
