"""Start, take-over, adoption, lost servers (rules 17, 18, 24, 26 to 29; M5, M9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master import job
from master.api.master_status import JobPhase
from master.api.messages.from_members import Ack, RegisterServer, RegisterTrainer, Restored, RestoreFailed
from master.api.messages.to_members import (
    AskMarks,
    Drop,
    Fenced,
    Granted,
    Hold,
    Refused,
    Registered,
    Restore,
    RouteChanged,
    Wait,
)
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import SECOND, Durable, Instant, LineageRecord, RaiseLineage
from master.job.domain.effects import FallBack, Persist
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import AdoptableFound, AnswersOverdue, CommitDue, ReconnectWindowEnded, StreamBroken
from master.job.recovery import model_recovery
from master.job.state.job_state import Turn
from master.job.state.protocol_state import CommitPhase, RecoveryStage
from tests.unit.master.job.driver import Driver, Marks, key, run_servers, serving

T0 = key("t0")


def train(driver, servers, request):
    (lease,) = driver.leases(T0, request)
    for server in servers:
        server.applied |= lease.positions
    driver.send(T0, Ack(token=lease.token, positions=lease.positions))
    return lease


def to(driver, member, kind):
    return [message for recipient, message in driver.sent if recipient == member and isinstance(message, kind)]


def test_first_start_records_lineage_and_route_before_any_restore():
    """Rule 26: persist before send."""
    driver = Driver(JobConfig(servers=2, bucket_count=4)).start()
    driver.trainer("t0")
    driver.writes_go_through = False
    servers = [Marks(driver, ordinal) for ordinal in (0, 1)]
    for server in servers:
        server.register()
    assert not to(driver, servers[0].key, Restore)
    driver.let_go()
    (restore,) = to(driver, servers[0].key, Restore)
    assert (restore.lineage, restore.base, restore.files, restore.data) == (1, None, (), EMPTY)
    assert driver.durable.route.lineage == 1


def test_grants_wait_until_every_server_has_restored():
    """The model is not whole before."""
    driver = Driver(JobConfig(servers=2, bucket_count=4)).start()
    driver.trainer("t0")
    servers = [Marks(driver, ordinal) for ordinal in (0, 1)]
    for server in servers:
        server.register()
    driver.trainer("t0", declares=None)
    driver.send(servers[0].key, servers[0].answer(to(driver, servers[0].key, Restore)[-1]))
    assert isinstance(driver.acquire(T0, 1), Wait)
    run_servers(driver, servers)
    assert to(driver, T0, RouteChanged)[-1].route.lineage == 1
    assert isinstance(driver.acquire(T0, 2), Granted)


def test_lost_server_voids_all_leases_and_rolls_everybody_back():
    """Rules 26, 29: DONE := head's data."""
    driver, servers = serving()
    train(driver, servers, 1)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    train(driver, servers, 2)
    driver.leases(T0, 3)
    servers[0].restart()
    assert driver.state.dispatch.lease_count == 0
    assert driver.state.dispatch.done == EMPTY
    run_servers(driver, servers)
    assert driver.state.stage is RecoveryStage.SERVING
    assert [server.applied for server in servers] == [driver.head.data] * 2
    assert driver.durable.lineage == LineageRecord(number=2, base=driver.head.id)
    assert isinstance(to(driver, T0, Fenced)[-1], Fenced), "M9: fenced, not restarted"
    assert job.status(driver.state, driver.now).reworked == 40


def test_survivor_restores_from_heads_files_too():
    """Rule 27."""
    driver, servers = serving()
    train(driver, servers, 1)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    servers[0].restart()
    restore = to(driver, servers[1].key, Restore)[-1]
    assert restore.files == driver.head.files
    assert restore.data == driver.head.data


def test_broken_stream_of_a_server_is_a_loss_only_after_the_window():
    driver, servers = serving()
    train(driver, servers, 1)
    driver.feed(StreamBroken(member=servers[0].key))
    assert driver.state.dispatch.done
    driver.fire(ReconnectWindowEnded)
    assert driver.state.stage is RecoveryStage.GATHERING
    assert not driver.state.dispatch.done


def test_server_that_comes_back_in_the_window_is_not_lost():
    driver, servers = serving()
    train(driver, servers, 1)
    driver.feed(StreamBroken(member=servers[0].key))
    servers[0].register()
    assert driver.state.stage is RecoveryStage.SERVING
    assert driver.state.number == 1


def test_server_that_comes_back_after_its_window_is_a_lost_server():
    """Rule 28: it holds the old model, and the others may have moved on."""
    driver, servers = serving()
    train(driver, servers, 1)
    driver.feed(StreamBroken(member=servers[0].key))
    driver.fire(ReconnectWindowEnded)
    servers[0].register()
    run_servers(driver, servers)
    assert driver.state.number == 2
    assert servers[0].applied == EMPTY


def test_server_that_dies_in_mid_roll_back_raises_again():
    """Rule 28."""
    driver, servers = serving()
    servers[0].restart()
    assert driver.state.stage is RecoveryStage.RESTORING
    servers[1].restart()
    run_servers(driver, servers)
    assert driver.state.number == 3
    assert driver.state.stage is RecoveryStage.SERVING


def test_server_that_dies_while_the_raise_is_recorded_raises_again():
    """Rules 26, 28: what was recorded names a process that is gone."""
    driver, servers = serving()
    driver.writes_go_through = False
    servers[0].restart()
    servers[0].restart()
    driver.let_go()
    run_servers(driver, servers)
    assert driver.state.number == 3
    assert driver.state.stage is RecoveryStage.SERVING


def test_loss_during_a_commit_aborts_it():
    """Rule 26."""
    driver, servers = serving()
    train(driver, servers, 1)
    driver.fire(CommitDue)
    cut = to(driver, servers[1].key, Hold)[-1].cut
    servers[0].restart()
    assert to(driver, servers[1].key, Drop)[-1].cut == cut
    run_servers(driver, servers)
    assert driver.head is None


def test_loss_while_head_is_being_swapped_waits_for_the_answer():
    """Rules 23, 26: the new lineage's base is whatever head came to be."""
    driver, servers = serving()
    train(driver, servers, 1)
    driver.writes_go_through = False
    driver.fire(CommitDue)
    run_servers(driver, servers)
    assert driver.state.commit.phase is CommitPhase.SWAPPING
    servers[0].restart()
    assert [type(effect.write).__name__ for effect in driver.held_back] == ["SwapHead"]
    driver.let_go()
    run_servers(driver, servers)
    assert driver.durable.lineage.base == driver.head.id
    assert servers[0].applied == driver.head.data == PositionSet.span(0, 40)


def test_restore_that_fails_is_asked_again_and_told():
    driver, servers = serving()
    servers[0].restart()
    driver.send(servers[0].key, RestoreFailed(lineage=driver.state.number, message="file is cut short"))
    assert "cut short" in job.status(driver.state, driver.now).problem
    before = len(to(driver, servers[0].key, Restore))
    driver.fire(AnswersOverdue)
    assert len(to(driver, servers[0].key, Restore)) == before + 1


def test_a_file_that_stays_damaged_fails_the_job_after_a_while_and_not_before():
    """Told, asked again, then failed with the ways on; a folder that does not answer fails nothing (M11)."""
    driver, servers = serving()
    servers[0].restart()
    driver.trainer("t1", declares=None)
    number = driver.state.number
    silent = RestoreFailed(lineage=number, message="the folder does not answer")
    damaged = RestoreFailed(lineage=number, message="file x: cut short", is_damaged=True)
    for said in (silent, damaged):
        driver.send(servers[0].key, said)
        driver.now += driver.config.unreadable_ns - 1
    driver.send(servers[0].key, damaged)
    assert driver.state.failed == ""
    driver.now += 1
    driver.send(servers[0].key, silent)
    assert driver.state.failed == ""
    driver.send(servers[0].key, damaged)
    assert "file x: cut short" in driver.state.failed
    assert "--from" in driver.state.failed
    assert [one.message for one in to(driver, key("t1"), Refused)] == [driver.state.failed]
    assert job.status(driver.state, driver.now).phase is JobPhase.FAILED


def test_a_file_that_stays_damaged_ends_the_term_of_a_job_that_falls_back():
    """Whoever reads the folder then chooses the checkpoint before; the job itself does not fail (M11, ADR 0189)."""
    driver, servers = serving(JobConfig(servers=2, bucket_count=4, falls_back=True))
    servers[0].restart()
    damaged = RestoreFailed(lineage=driver.state.number, message="file x: cut short", is_damaged=True)
    driver.send(servers[0].key, damaged)
    driver.now += driver.config.unreadable_ns
    driver.send(servers[0].key, damaged)
    assert [e.reason for e in driver.effects if isinstance(e, FallBack)] == ["s0 cannot restore: file x: cut short"]
    assert driver.state.is_over
    assert driver.state.failed == ""


def test_restored_of_an_older_lineage_does_not_count():
    """Rule 27."""
    driver, servers = serving()
    servers[0].restart()
    for server in servers:
        driver.send(server.key, Restored(lineage=1))
    assert driver.state.stage is RecoveryStage.RESTORING


def test_take_over_reads_the_marks_and_keeps_the_lineage():
    """Rule 17: DONE := head and what all buckets have."""
    driver, servers = serving()
    lease = train(driver, servers, 1)
    servers[0].applied |= PositionSet.span(50, 60)  # in one bucket only
    driver.start()
    driver.trainer("t0", declares=None)
    for server in servers:
        assert AskMarks not in map(type, server.register()) or server is servers[1]
    for server in servers:
        driver.send(server.key, server.answer(to(driver, server.key, AskMarks)[-1]))
    assert driver.state.stage is RecoveryStage.SERVING
    assert driver.state.number == 1
    assert driver.state.dispatch.done == lease.positions
    assert PositionSet.span(50, 60) <= driver.state.dispatch.todo


def test_a_new_master_commits_what_it_finds_before_anything_else():
    """Not a whole interval later: with each master that dies more work would be at risk (ADR 0202)."""
    driver, servers = serving()
    lease = train(driver, servers, 1)
    driver.start()
    driver.trainer("t0", declares=None)
    for server in servers:
        server.register()
    begun_s = driver.now
    run_servers(driver, servers)
    assert driver.state.head.data == lease.positions
    assert driver.now == begun_s
    assert driver.state.commit.due == begun_s + driver.state.config.checkpoint_every_ns


def test_a_server_that_came_back_puts_off_no_commit():
    """The model was kept: the next commit is due when it was."""
    driver, servers = serving()
    train(driver, servers, 1)
    driver.start()
    driver.trainer("t0", declares=None)
    for server in servers:
        server.register()
    run_servers(driver, servers)
    due, books = driver.state.commit.due, driver.state.dispatch
    books = replace(books, done=PositionSet.span(100, 140), todo=books.todo - PositionSet.span(100, 140))
    turn = Turn(replace(driver.state, dispatch=books), now=Instant(driver.now + 2 * SECOND))
    turn.recover(stage=RecoveryStage.READING_MARKS)
    model_recovery.serve(turn)
    assert turn.state.commit.due == due


def test_take_over_grants_nothing_before_the_marks_are_read():
    """Rule 17."""
    driver, servers = serving()
    driver.start()
    driver.trainer("t0", declares=None)
    servers[0].register()
    assert isinstance(driver.acquire(T0, 1), Wait)


def test_take_over_with_a_server_lost_meanwhile_rolls_back():
    """Rules 17, 26."""
    driver, servers = serving()
    train(driver, servers, 1)
    driver.start()
    servers[0].restart()
    servers[1].register()
    run_servers(driver, servers)
    assert driver.state.number == 2
    assert driver.state.dispatch.done == EMPTY


def test_take_over_in_mid_roll_back_finishes_it():
    """Rule 17: an unfinished roll-back is finished before anything else."""
    driver, servers = serving()
    train(driver, servers, 1)
    servers[0].restart()  # the raise is recorded, nobody has restored
    driver.start()
    for server in servers:
        server.register()
    run_servers(driver, servers)
    assert driver.state.stage is RecoveryStage.SERVING
    assert driver.state.number == 3
    assert {server.lineage for server in servers} == {3}


def test_lineage_is_above_that_of_every_living_server():
    """Rule 29: etcd was lost, a server was not."""
    driver = Driver(JobConfig(servers=1, bucket_count=2)).start()
    driver.trainer("t0")
    server = Marks(driver, 0, lineage=7)
    server.register()
    run_servers(driver, [server])
    assert driver.state.number == 8
    assert server.lineage == 8


def adoptable(*, change=None):
    """A master died between MANIFEST and the swap of head."""
    driver, servers = serving()
    lease = train(driver, servers, 1)
    driver.fire(CommitDue)
    driver.writes_go_through = False
    run_servers(driver, servers)
    assert [type(effect.write).__name__ for effect in driver.held_back] == ["SwapHead"]
    (manifest_id,) = driver.manifests
    if change:
        driver.manifests[manifest_id] = replace(driver.manifests[manifest_id], **change)
    driver.writes_go_through = True
    return driver, servers, lease


def test_take_over_adopts_a_verified_manifest_of_head_and_lineage():
    """Rule 24."""
    driver, _, lease = adoptable()
    driver.start()
    assert driver.head.data == lease.positions
    assert driver.state.dispatch.committed == lease.positions


@pytest.mark.parametrize("change", [{"parent": "another"}, {"lineage": 9}])
def test_manifest_of_another_parent_or_lineage_stays_an_orphan(change):
    """Rule 24: the core asks for itself, whatever was found."""
    driver, _, _ = adoptable(change=change)
    (found,) = driver.manifests.values()
    state = driver.start().state
    assert driver.head is None
    waiting = replace(state, recovery=replace(state.recovery, stage=RecoveryStage.ADOPTING))
    step = job.handle(waiting, AdoptableFound(manifest=found), driver.now)
    assert not [effect for effect in step.effects if isinstance(effect, Persist)]
    assert step.state.stage is not RecoveryStage.ADOPTING


def test_server_beyond_the_expected_number_is_refused():
    driver, _ = serving()
    member = key("s5")
    (answer,) = driver.send(
        member,
        RegisterServer(name=member.name, ordinal=5, incarnation=member.incarnation, address="s5:1", lineage=0),
    )
    assert isinstance(answer, Refused)
    assert answer.field == "ordinal"


def test_replaced_server_process_is_refused():
    """Late messages of a process that was replaced start no roll-back."""
    driver, servers = serving()
    old = servers[0].key
    servers[0].restart()
    run_servers(driver, servers)
    number = driver.state.number
    (answer,) = driver.send(
        old, RegisterServer(name=old.name, ordinal=0, incarnation=old.incarnation, address="s0:1", lineage=1)
    )
    assert isinstance(answer, Refused)
    assert driver.state.number == number


def test_trainer_keeps_its_lease_through_a_take_over():
    """M5, rule 18."""
    driver, servers = serving()
    (lease,) = driver.leases(T0, 1)
    driver.start()
    answers = driver.send(T0, RegisterTrainer(name=T0.name, ordinal=0, incarnation=T0.incarnation, held=(lease,)))
    assert [kept.positions for kept in answers[0].kept] == [lease.positions]
    for server in servers:
        server.register()
    run_servers(driver, servers)
    (registered,) = [said for said in answers if isinstance(said, Registered)]
    for server in servers:
        server.applied |= lease.positions
    driver.send(T0, Ack(token=registered.kept[0].token, positions=lease.positions))
    assert driver.state.dispatch.done == lease.positions


def test_raise_requires_head_to_be_its_base():
    """Rule 26: the one transaction."""
    driver, servers = serving()
    train(driver, servers, 1)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    servers[0].restart()
    raises = [e.write for e in driver.effects if isinstance(e, Persist) and isinstance(e.write, RaiseLineage)]
    assert raises[-1].new.base == driver.head.id
    assert raises[-1].old == LineageRecord(number=1, base=None)


def test_checkpoint_of_another_data_set_is_refused():
    """M1: positions would mean other records."""
    driver, servers = serving()
    train(driver, servers, 1)
    driver.fire(CommitDue)
    run_servers(driver, servers)
    other = replace(driver.durable.dataset, dataset=replace(driver.durable.dataset.dataset, seed=5))
    driver.durable = Durable(lineage=driver.durable.lineage, dataset=other, head=driver.head)
    driver.start()
    assert "another data set" in job.status(driver.state, driver.now).problem
    driver.trainer("t0", declares=None)
    assert isinstance(driver.acquire(T0, 1), Refused)
