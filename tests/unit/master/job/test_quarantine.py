"""Positions that kill trainers (M4, rule 31) and jobs whose script keeps raising."""

from __future__ import annotations

import pytest

from autoscaler.jobs.progress import progress_of
from master import job
from master.api.master_status import JobPhase
from master.api.messages.from_members import Ack, Failed, Leave, Return, SkipAnswer
from master.api.messages.to_members import Granted, Refused, Skip, Wait
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import Instant
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import AnswersOverdue, BackoffLimitSet, CommitDue, ReconnectWindowEnded, StreamBroken
from master.job.state.trainer_failures import FailureCounts, FailureNote, clear_positions, count_failure
from tests.unit.master.job.driver import Driver, Marks, key, run_servers, serving

FRONT = PositionSet.span(0, 10)


def to(driver, member, kind):
    return [message for recipient, message in driver.sent if recipient == member and isinstance(message, kind)]


def fail_at_the_front(driver, process, *, says_so=True, works_first=True):
    """A new process completes some batch, is granted the front and dies of it; the positions that it held then."""
    member = driver.trainer("t5", process=process, declares=None)
    (lease,) = driver.leases(member, 1)
    if works_first:
        driver.send(member, Ack(token=lease.token, positions=(lease.positions - FRONT).first(10)))
    if works_first and (FRONT - lease.positions):
        driver.send(member, Return(token=lease.token, positions=lease.positions))
        (lease,) = driver.leases(member, 2)
    if says_so:
        in_hand = lease.positions.first(10)
        driver.send(member, Failed(positions=in_hand, message="ValueError: bad record"))
        driver.send(member, Leave(reason="the script raised"))
    return lease.positions


def proven(driver, name):
    """A trainer that has completed a batch and holds nothing; no positions of the front."""
    member = driver.trainer(name, declares=None)
    (lease,) = driver.leases(member, 1)
    done = (lease.positions - FRONT).first(10)
    driver.send(member, Ack(token=lease.token, positions=done))
    driver.send(member, Return(token=lease.token, positions=lease.positions - done))
    return member


@pytest.fixture
def plain():
    driver = Driver(JobConfig(servers=0)).start()
    driver.trainer("t9")
    return driver


def test_positions_are_quarantined_after_k_failures_of_different_processes(plain):
    """M4."""
    held = [fail_at_the_front(plain, process) for process in (1, 2, 3)]
    assert plain.durable.lineage.quarantine == FRONT
    assert plain.state.dispatch.quarantined == FRONT
    assert [positions.bounds[0] for positions in held] == [0, 0, 0]
    assert held[1:] == [FRONT, FRONT], "suspects are granted as single batches"


def test_two_failures_quarantine_nothing(plain):
    """M4: K = 3."""
    for process in (1, 2):
        fail_at_the_front(plain, process)
    assert plain.state.dispatch.quarantined == EMPTY


def test_one_process_that_fails_twice_counts_once(plain):
    """M4: K different trainers; an incarnation counts as one."""
    member = proven(plain, "t5")
    (lease,) = plain.leases(member, 2)
    for _ in range(5):
        plain.send(member, Failed(positions=lease.positions.first(10), message="again"))
    assert len(plain.state.failures.layers) == 1


def test_one_process_that_is_lost_again_and_again_counts_once(plain):
    """M4: a bad network is no poison, not even at the last positions left."""
    member = proven(plain, "t5")
    held = plain.leases(member, 2)
    for _ in range(5):
        plain.feed(StreamBroken(member=member))
        plain.fire(ReconnectWindowEnded)
        plain.trainer("t5", declares=None, held=held)
        held = plain.state.dispatch.holders[member.incarnation].leases
        plain.send(member, Ack(token=held[0].token, positions=held[0].positions - FRONT))
    assert len(plain.state.failures.layers) == 1
    assert plain.state.dispatch.quarantined == EMPTY


def test_failures_of_processes_that_never_completed_a_batch_quarantine_nothing(plain):
    """A script, a memory limit or a node that fails at any batch says nothing about this one (M4)."""
    for process in range(1, 10):
        fail_at_the_front(plain, process, says_so=process > 3, works_first=False)
    assert plain.state.dispatch.quarantined == EMPTY
    assert plain.state.failures.layers == ()
    assert job.status(plain.state, plain.now).phase is JobPhase.FAILED, "backoffLimit speaks instead"


def test_doubted_positions_go_to_a_process_that_has_completed_a_batch(plain):
    """M4: only its failure, or its success, tells something about them."""
    fail_at_the_front(plain, 1, works_first=False)
    fresh = plain.trainer("t6", declares=None)
    (lease,) = plain.leases(fresh, 1)
    assert not lease.positions & FRONT
    plain.send(fresh, Ack(token=lease.token, positions=lease.positions))
    (lease,) = plain.leases(fresh, 2)
    assert lease.positions == FRONT


def test_last_positions_left_count_whoever_fails_at_them(plain):
    """M4, END stays reachable: there is nothing else that a process could complete first."""
    member = plain.trainer("t6", declares=None)
    for request in range(1, 100):
        answer = plain.acquire(member, request)
        if not isinstance(answer, Granted):
            break
        for lease in answer.leases:
            plain.send(member, Ack(token=lease.token, positions=lease.positions - FRONT))
    plain.send(member, Leave())
    for process in (1, 2, 3):
        fail_at_the_front(plain, process, says_so=False, works_first=False)
    plain.trainer("t5", process=4, declares=None)
    assert plain.state.dispatch.quarantined == FRONT


def test_a_trainer_that_succeeds_acquits(plain):
    """M4: what can be trained is no poison."""
    for process in (1, 2):
        fail_at_the_front(plain, process)
    member = proven(plain, "t6")
    (lease,) = plain.leases(member, 2)
    assert lease.positions == FRONT
    plain.send(member, Ack(token=lease.token, positions=lease.positions))
    assert not plain.state.failures.suspects & lease.positions
    fail_at_the_front(plain, 3)
    assert plain.state.dispatch.quarantined == EMPTY


def test_process_that_just_dies_is_counted_by_what_it_held(plain):
    """M4: a record that brings the interpreter down says nothing first."""
    for process in (1, 2, 3):
        assert fail_at_the_front(plain, process, says_so=False) >= FRONT
    plain.trainer("t5", process=4, declares=None)
    assert plain.state.dispatch.quarantined == FRONT


def test_prime_suspect_is_tried_alone(plain):
    """M4: so that the culprit is pinned and not its neighbour."""
    for process in (1, 2):
        fail_at_the_front(plain, process)
    busy, other = proven(plain, "t6"), proven(plain, "t7")
    (lease,) = plain.leases(busy, 2, shards=3)
    assert lease.positions == FRONT, "held nothing: gets the suspect, and nothing with it"
    assert isinstance(plain.acquire(busy, 3), Wait), "and nothing more while it holds it"
    assert isinstance(plain.acquire(other, 2), Granted)


def test_trainer_that_holds_something_runs_dry_before_the_suspect(plain):
    """M4: a suspect does not starve while everybody has work."""
    for process in (1, 2):
        fail_at_the_front(plain, process)
    busy = plain.trainer("t6", declares=None)
    (first,) = plain.leases(busy, 1)
    part = first.positions.first(10)
    plain.send(busy, Ack(token=first.token, positions=part))
    assert isinstance(plain.acquire(busy, 2), Wait)
    plain.send(busy, Ack(token=first.token, positions=first.positions - part))
    (lease,) = plain.leases(busy, 3)
    assert lease.positions == FRONT


def test_quarantine_is_recorded_only_when_every_bucket_skipped():
    """Rule 31."""
    driver, servers = serving()
    for process in (1, 2, 3):
        fail_at_the_front(driver, process)
    assert driver.state.dispatch.skipping == FRONT
    assert [to(driver, server.key, Skip)[-1].positions for server in servers] == [FRONT, FRONT]
    driver.send(servers[0].key, servers[0].answer(to(driver, servers[0].key, Skip)[-1]))
    assert driver.durable.lineage.quarantine == EMPTY
    run_servers(driver, servers)
    assert driver.durable.lineage.quarantine == FRONT
    assert driver.state.dispatch.quarantined == FRONT


def test_quarantine_stands_in_the_next_checkpoint():
    """M4: shown in the status and in the checkpoint."""
    driver, servers = serving()
    for process in (1, 2, 3):
        fail_at_the_front(driver, process)
    run_servers(driver, servers)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert driver.head.quarantine == FRONT
    assert job.status(driver.state, driver.now).quarantine == FRONT


def test_what_every_bucket_had_applied_is_not_quarantined():
    """Rule 31: nothing to leave out."""
    driver, servers = serving()
    for process in (1, 2, 3):
        fail_at_the_front(driver, process)
    for server in servers:
        server.applied |= FRONT
    run_servers(driver, servers)
    assert driver.state.skip is None
    assert driver.state.dispatch.todo >= FRONT
    assert driver.durable.lineage.quarantine == EMPTY


def test_half_skipped_rolls_back_with_the_quarantine_in_one_transaction():
    """Rule 31: a position that is left out must be in no bucket."""
    driver, servers = serving()
    for process in (1, 2, 3):
        fail_at_the_front(driver, process)
    servers[0].applied |= FRONT
    run_servers(driver, servers)
    assert driver.durable.lineage.number == 2
    assert driver.durable.lineage.quarantine == FRONT
    assert all(server.skipped == FRONT and not server.applied for server in servers)


def test_new_master_completes_a_skip_that_is_half_done():
    """Rule 31, last sentence."""
    driver, servers = serving()
    servers[0].skipped = FRONT
    driver.start()
    for server in servers:
        server.register()
    run_servers(driver, servers)
    assert driver.durable.lineage.quarantine == FRONT
    assert servers[1].skipped == FRONT


def test_late_skip_of_an_earlier_master_is_completed_by_the_next_commit():
    """Rule 31: one bucket obeyed it after the marks were read; no cut could ever complete."""
    driver, servers = serving()
    member = key("t0")
    (lease,) = driver.leases(member, 1)
    servers[0].skipped |= FRONT
    servers[0].applied |= lease.positions - FRONT
    servers[1].applied |= lease.positions
    driver.send(member, Ack(token=lease.token, positions=lease.positions))
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert driver.durable.lineage.quarantine == FRONT
    assert driver.durable.lineage.number == 2
    assert all(server.skipped == FRONT for server in servers)


def test_skip_is_asked_again_and_old_answers_do_not_count():
    """Rule 31 over a network that loses and repeats."""
    driver, servers = serving()
    for process in (1, 2, 3):
        fail_at_the_front(driver, process)
    driver.fire(AnswersOverdue)
    assert len(to(driver, servers[0].key, Skip)) == 2
    for server in servers:
        other = SkipAnswer(lineage=1, positions=PositionSet.of(99), skipped=server.buckets, applied=EMPTY)
        driver.send(server.key, other)
    assert driver.durable.lineage.quarantine == EMPTY


def test_no_cut_begins_while_a_skip_is_out():
    """Rule 22: a skip between two HOLDs would tear it."""
    driver, _ = serving()
    member = key("t0")
    (lease,) = driver.leases(member, 1)
    driver.send(member, Ack(token=lease.token, positions=lease.positions))
    for process in (1, 2, 3):
        fail_at_the_front(driver, process)
    driver.fire(CommitDue)
    assert driver.state.commit.phase.value == "idle"


@pytest.mark.parametrize(("limit", "counted"), [(1, "1 failure without"), (2, "2 failures in a row without")])
def test_failures_in_a_row_fail_the_job_with_the_last_text(limit, counted):
    """backoffLimit: never a silent retry loop."""
    driver = Driver(JobConfig(servers=0, backoff_limit=limit, quarantine_after=99)).start()
    driver.trainer("t9")
    for process in range(1, limit + 1):
        fail_at_the_front(driver, process, works_first=False)
    told = job.status(driver.state, driver.now)
    assert told.phase is JobPhase.FAILED
    assert told.problem.startswith(f"{counted} one batch completed (backoffLimit {limit}); the last, of t")
    assert "ValueError: bad record" in told.problem
    assert progress_of(told).is_over_backoff_limit
    answer = driver.acquire(key("t9"), 7)
    assert isinstance(answer, Refused)


def test_a_limit_that_was_raised_meanwhile_judges_the_next_failure():
    """Else whoever raises backoffLimit of a running job would lose it at the old limit all the same."""
    driver = Driver(JobConfig(servers=0, backoff_limit=2, quarantine_after=99)).start()
    driver.trainer("t9")
    fail_at_the_front(driver, 1, works_first=False)
    driver.feed(BackoffLimitSet(limit=3))
    fail_at_the_front(driver, 2, works_first=False)
    assert job.status(driver.state, driver.now).phase is not JobPhase.FAILED
    fail_at_the_front(driver, 3, works_first=False)
    problem = job.status(driver.state, driver.now).problem
    assert "3 failures in a row without one batch completed (backoffLimit 3)" in problem


def test_one_batch_completed_breaks_the_row():
    driver = Driver(JobConfig(servers=0, backoff_limit=2, quarantine_after=99)).start()
    member = driver.trainer("t9")
    (lease,) = driver.leases(member, 1)
    for process in (1, 2, 3, 4):
        fail_at_the_front(driver, process)
        driver.send(member, Ack(token=lease.token, positions=PositionSet.span(10 * process - 10, 10 * process)))
    assert job.status(driver.state, driver.now).phase is JobPhase.TRAINING


def test_killed_trainers_do_not_fail_the_job():
    """SIGKILL is the cluster's doing, not the script's."""
    driver = Driver(JobConfig(servers=0, backoff_limit=0, quarantine_after=99)).start()
    driver.trainer("t9")
    for process in range(1, 6):
        fail_at_the_front(driver, process, says_so=False)
    assert job.status(driver.state, driver.now).phase is JobPhase.TRAINING


def test_layers_count_per_position():
    """Each layer lies inside the one before."""
    failures = FailureCounts()
    for process, (start, stop) in enumerate([(0, 20), (10, 30), (15, 16)]):
        positions = PositionSet.span(start, stop)
        note = FailureNote(member=key("t0", process), at=Instant(0), positions=positions, message="")
        failures = count_failure(failures, note, has_raised=True, is_evidence=True)
    assert failures.layers == (PositionSet.span(0, 30), PositionSet.span(10, 20), PositionSet.span(15, 16))
    assert clear_positions(failures, PositionSet.span(15, 16)).to_quarantine(3) == EMPTY
    assert failures.in_a_row == 3


def test_notes_are_bounded():
    """Every queue has a bound."""
    failures = FailureCounts()
    for process in range(1000):
        note = FailureNote(member=key("t0", process), at=Instant(0), positions=EMPTY, message="")
        failures = count_failure(failures, note, has_raised=False, is_evidence=True)
    assert len(failures.notes) == 20
    assert len(failures.counted) == 256
    assert failures.layers == ()


def test_stream_that_breaks_and_returns_is_no_failure(plain):
    """M4 counts deaths, not networks."""
    member = plain.trainer("t6", declares=None)
    (lease,) = plain.leases(member, 1)
    plain.feed(StreamBroken(member=member))
    plain.trainer("t6", declares=None, held=(lease,))
    assert plain.state.failures == FailureCounts()


def test_marks_driver_skips_like_a_server():
    """The test's server refuses to skip what it has applied (rule 31)."""
    server = Marks(Driver(JobConfig(servers=1)), 0, lineage=1, buckets=PositionSet.of(0), applied=FRONT)
    answer = server.answer(Skip(lineage=1, positions=FRONT))
    assert (answer.skipped, answer.applied) == (EMPTY, PositionSet.of(0))
