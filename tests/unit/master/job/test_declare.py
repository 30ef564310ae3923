"""What is trained is said once (rule 1); END and the final save (rule 32); ranks; status."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from master import job
from master.api.document import decode_document, encode_document
from master.api.identities import DatasetSpec, Lineage, OptimiserSpec, TableSpec
from master.api.master_status import JobPhase, JobStatus
from master.api.messages.from_members import (
    Ack,
    Acquire,
    Declare,
    Failed,
    FinalSaved,
    Leave,
    Progress,
    RegisterServer,
    RegisterTrainer,
    ServerMessage,
    TrainerMessage,
)
from master.api.messages.generations import RegisterReplica
from master.api.messages.to_members import Declared, Ended, Granted, RankChanged, Refused, Registered, ServerWelcome
from master.api.positions import EMPTY
from master.job import machine
from master.job.domain.durable_records import (
    SECOND,
    DatasetRecord,
    Durable,
    Instant,
    LineageRecord,
    RecordDataset,
)
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import CoreEvent, ReclaimWindowEnded, ReconnectWindowEnded, StreamBroken
from master.job.servers import server_handlers
from tests.unit.master.job.driver import SPEC, TABLES, Driver, key, serving

T0 = key("t0")


def plain(**config):
    driver = Driver(JobConfig(servers=0, **config)).start()
    driver.trainer("t0", declares=None)
    return driver


def test_declared_is_answered_only_when_it_is_durable():
    """Persist before reply."""
    driver = plain()
    driver.writes_go_through = False
    assert driver.send(T0, Declare(dataset=SPEC)) == []
    driver.let_go()
    assert isinstance(driver.sent[-1][1], Declared)
    assert driver.durable.dataset.dataset == SPEC


def test_two_that_declare_at_once_are_both_answered_and_one_write_is_made():
    driver = plain()
    driver.trainer("t1", declares=None)
    driver.writes_go_through = False
    driver.send(T0, Declare(dataset=SPEC))
    driver.send(key("t1"), Declare(dataset=SPEC))
    assert len([e for e in driver.held_back if isinstance(e.write, RecordDataset)]) == 1
    driver.let_go()
    assert {to.name for to, message in driver.sent if isinstance(message, Declared)} == {"t0", "t1"}


@pytest.mark.parametrize("change", [{"size": 99}, {"seed": 1}, {"epochs": 3}, {"name": "other"}])
def test_other_data_set_is_refused_by_the_fields_name(change):
    """Refused with the field's path and a hint, nothing started."""
    driver = plain()
    driver.send(T0, Declare(dataset=SPEC))
    (answer,) = driver.send(T0, Declare(dataset=replace(SPEC, **change)))
    assert isinstance(answer, Refused)
    assert answer.field == f"dataset.{next(iter(change))}"
    assert driver.durable.dataset.dataset == SPEC


def test_other_data_set_is_refused_while_the_first_is_being_recorded():
    driver = plain()
    driver.writes_go_through = False
    driver.send(T0, Declare(dataset=SPEC))
    (answer,) = driver.send(T0, Declare(dataset=replace(SPEC, size=7)))
    assert isinstance(answer, Refused)


def test_batch_size_may_change():
    """It does not change what is trained."""
    driver = plain()
    driver.send(T0, Declare(dataset=SPEC))
    (answer,) = driver.send(T0, Declare(dataset=replace(SPEC, batch_size=5)))
    assert answer == Declared(dataset=replace(SPEC, batch_size=5), tables=())


@pytest.mark.parametrize(
    ("tables", "field"),
    [
        ((), "tables"),
        ((TableSpec(name="v", shape=(4,)),), "tables.v"),
        ((TableSpec(name="w", shape=(5,)),), "tables.w.shape"),
        ((replace(TABLES[0], optimiser=OptimiserSpec(kind="adam")),), "tables.w.optimiser"),
        ((TABLES[0], TABLES[0]), "tables"),
    ],
)
def test_other_tables_are_refused_by_the_tables_name(tables, field):
    driver, _ = serving()
    (answer,) = driver.send(T0, Declare(dataset=SPEC, tables=tables))
    assert isinstance(answer, Refused)
    assert answer.field == field


@pytest.mark.parametrize(
    ("declare", "field"),
    [
        (Declare(dataset=replace(SPEC, size=0)), "dataset.size"),
        (Declare(dataset=replace(SPEC, epochs=0)), "dataset.epochs"),
        (Declare(dataset=replace(SPEC, batch_size=-1)), "dataset.batch_size"),
        (Declare(dataset=DatasetSpec(name="x", size=2**40, epochs=2**40, batch_size=1)), "dataset.size"),
        (Declare(dataset=SPEC, tables=TABLES), "tables"),
    ],
)
def test_what_cannot_be_trained_is_refused(declare, field):
    driver = plain()
    (answer,) = driver.send(T0, declare)
    assert isinstance(answer, Refused)
    assert answer.field == field
    assert driver.durable.dataset is None


def test_no_tables_beside_servers_are_refused():
    """The job's file asks for servers, the script has nothing to put on them: the refusal names both."""
    driver = Driver(JobConfig(servers=2)).start()
    driver.trainer("t0", declares=None)
    (answer,) = driver.send(T0, Declare(dataset=SPEC))
    assert (type(answer), answer.field) == (Refused, "tables")
    assert "spec.parameterServer gives the job 2 parameter servers" in answer.message
    assert "session.tables" in answer.message
    assert driver.durable.dataset is None


def test_a_script_that_ends_on_such_a_refusal_fails_the_job_at_once():
    """The next process would declare the same: nothing is tried again; a script that caught it would be heard on."""
    driver = Driver(JobConfig(servers=2, backoff_limit=6)).start()
    driver.trainer("t0", declares=None)
    driver.send(T0, Declare(dataset=SPEC))
    assert phase(driver) is not JobPhase.FAILED
    driver.send(T0, Failed(positions=EMPTY, message="UsageError: tables: ..."))
    assert phase(driver) is JobPhase.FAILED
    problem = job.status(driver.state, driver.now).problem
    assert problem.startswith("the declaration of t0 is refused: tables: no tables are declared")
    assert driver.durable.dataset is None


@pytest.mark.parametrize("comes_first", [True, False])
def test_one_that_declares_otherwise_than_the_others_fails_alone(comes_first):
    """Others train: it is counted like any failure."""
    driver = plain()
    if comes_first:
        driver.send(T0, Declare(dataset=replace(SPEC, size=0)))
    driver.trainer("t1")
    if not comes_first:
        driver.send(T0, Declare(dataset=replace(SPEC, size=7)))
    driver.send(T0, Failed(positions=EMPTY, message="UsageError"))
    assert phase(driver) is not JobPhase.FAILED
    assert job.status(driver.state, driver.now).failures_in_a_row == 1


# ---- the end --------------------------------------------------------------------------------------------------------


def phase(driver):
    return job.status(driver.state, driver.now).phase


def finished(*members):
    driver = Driver(JobConfig(servers=0)).start()
    for name in members:
        driver.trainer(name, has_final_hook=True)
    request = 0
    while isinstance(answer := driver.acquire(key(members[0]), request := request + 1), Granted):
        for lease in answer.leases:
            driver.send(key(members[0]), Ack(token=lease.token, positions=lease.positions))
    return driver, answer


def test_another_jobs_checkpoint_fails_the_job_at_once_too():
    """A new job on the folder of an old one: its checkpoint is of another data set, whoever declares this one."""
    driver, _ = finished("t0")
    driver.durable = Durable(lineage=driver.durable.lineage, head=driver.head)
    driver.start()
    driver.trainer("t5", declares=Declare(dataset=replace(SPEC, size=7)))
    driver.send(key("t5"), Failed(positions=EMPTY, message="UsageError: dataset.size: ..."))
    assert phase(driver) is JobPhase.FAILED
    assert "the declaration of t5 is refused: dataset.size: is 7" in (job.status(driver.state, driver.now).problem)


def test_one_trainer_saves_at_the_end():
    """Rule 32: a single final saver."""
    driver, answer = finished("t0", "t1")
    assert answer == Ended(request=answer.request, final_saver=True)
    assert driver.acquire(key("t1"), 50) == Ended(request=50)
    assert job.status(driver.state, driver.now).phase is JobPhase.SAVING
    driver.send(T0, FinalSaved())
    assert job.status(driver.state, driver.now).phase is JobPhase.COMPLETE
    assert driver.acquire(T0, 60) == Ended(request=60)


def test_another_saves_when_the_saver_is_gone():
    driver, _ = finished("t0", "t1")
    driver.send(T0, Leave())
    assert driver.acquire(key("t1"), 50) == Ended(request=50, final_saver=True)


def test_a_saver_that_died_leaves_the_save_to_a_trainer_that_is_still_to_come():
    """Rule 32: a job with nobody here is not complete while the save that it asked for is owed."""
    driver, _ = finished("t0")
    driver.feed(StreamBroken(member=T0))
    driver.fire(ReconnectWindowEnded)
    assert phase(driver) is JobPhase.SAVING
    driver.trainer("t1", declares=None, has_final_hook=True)
    assert driver.acquire(key("t1"), 1) == Ended(request=1, final_saver=True)
    driver.send(key("t1"), FinalSaved())
    assert phase(driver) is JobPhase.COMPLETE


def test_end_is_end_for_the_next_master_too():
    """M3."""
    driver, _ = finished("t0")
    driver.start()
    driver.trainer("t5", declares=None)
    assert isinstance(driver.acquire(key("t5"), 1), Ended)


def test_next_master_waits_for_a_saver_before_it_says_complete():
    """Complete ends the pods: a hook that is running would be cut short."""
    driver, _ = finished("t0")
    driver.start()
    assert phase(driver) is JobPhase.SAVING
    driver.trainer("t0", declares=None, has_final_hook=True)
    driver.fire(ReclaimWindowEnded)
    assert phase(driver) is JobPhase.SAVING
    driver.send(T0, FinalSaved())
    assert phase(driver) is JobPhase.COMPLETE, "who saved was appointed by the master before"


def test_next_master_of_a_job_that_has_ended_says_complete_with_nobody_left():
    """Once nobody can claim to be saving."""
    driver, _ = finished("t0")
    driver.send(T0, FinalSaved())
    driver.send(T0, Leave())
    driver.start()
    driver.fire(ReclaimWindowEnded)
    assert phase(driver) is JobPhase.COMPLETE


def begun_again(**config):
    """A new start in the folder of a finished job: its checkpoint is all that is left of the store."""
    ended, _ = finished("t0")
    head = ended.durable.head
    lineage = LineageRecord(number=Lineage(head.lineage + 1), base=head.id)
    durable = Durable(head=head, lineage=lineage, dataset=DatasetRecord(dataset=head.dataset, tables=head.tables))
    return Driver(JobConfig(servers=0, **config), durable=durable).start()


@pytest.mark.parametrize("declare", [Declare(dataset=SPEC), None])
def test_a_finished_job_that_is_started_again_is_complete_once_a_trainer_says_the_same(declare):
    """One that declared before it registered, and was told the same then, only asks for work."""
    driver = begun_again()
    assert phase(driver) is JobPhase.STARTING
    driver.trainer("t0", declares=declare)
    assert isinstance(driver.acquire(T0, 1), Ended)
    assert phase(driver) is JobPhase.COMPLETE


@pytest.mark.parametrize("masters", [1, 2])
def test_a_finished_job_that_is_started_again_with_more_epochs_fails_by_their_name(masters):
    """It was completed before its first trainer had said what it wants, and the trainer failed after the end.

    The first master may be lost before that.
    """
    driver = begun_again()
    for _ in range(masters - 1):
        driver.start()
    driver.trainer("t0", declares=None)
    (refused,) = driver.send(T0, Declare(dataset=replace(SPEC, epochs=3)))
    assert driver.send(T0, Acquire(request=1, shards=1)) == []
    assert phase(driver) is JobPhase.STARTING
    driver.send(T0, Failed(positions=EMPTY, message="UsageError"))
    told = job.status(driver.state, driver.now)
    assert (refused.field, told.phase) == ("dataset.epochs", JobPhase.FAILED)
    assert told.problem.startswith("the declaration of t0 is refused: dataset.epochs: is 3, this job's is 2.")
    assert "Without a group a job keeps its number of epochs" in told.problem


# ---- members --------------------------------------------------------------------------------------------------------


def test_ranks_are_dense_and_told_when_they_change():
    """session.rank and world_size as of now."""
    driver = Driver(JobConfig(servers=0)).start()
    for name in ("t2", "t0", "t1"):
        driver.trainer(name)
    assert [driver.state.members.trainers[name].rank for name in ("t0", "t1", "t2")] == [(0, 3), (1, 3), (2, 3)]
    before = len(driver.sent)
    driver.send(T0, Leave())
    told = {to.name: message for to, message in driver.sent[before:] if isinstance(message, RankChanged)}
    assert told == {"t1": RankChanged(rank=0, world_size=2), "t2": RankChanged(rank=1, world_size=2)}


def test_rank_is_not_told_again_when_it_stays():
    driver = Driver(JobConfig(servers=0)).start()
    driver.trainer("t0")
    said = RegisterTrainer(name=T0.name, ordinal=0, incarnation=T0.incarnation)
    assert not [message for message in driver.send(T0, said) if isinstance(message, RankChanged)]


def test_members_are_told_how_often_to_report():
    """In seconds."""
    driver, servers = serving(JobConfig(servers=2, bucket_count=4, report_every_ns=2 * SECOND))
    assert [said.report_every_s for to, said in driver.sent if isinstance(said, Registered | ServerWelcome)] == [
        2.0
    ] * (len(servers) + 2)


def test_status_adds_up_and_has_an_outside_form():
    """M4: the six places are all there is; the CLI reads it as JSON."""
    driver, _ = serving()
    (lease,) = driver.leases(T0, 1)
    driver.send(T0, Ack(token=lease.token, positions=lease.positions.first(10)))
    driver.send(T0, Progress(steps=3, samples_per_s=12.5, metrics={"loss": 0.25}))
    told = job.status(driver.state, Instant(driver.now + 5))
    counts = told.positions
    places = (counts.todo, counts.leased, counts.done, counts.skipping, counts.committed, counts.quarantined)
    assert places == (160, 30, 10, 0, 0, 0)
    assert sum(places) == counts.total == 200
    assert told.phase is JobPhase.TRAINING
    assert told.members[0].metrics == {"loss": 0.25}
    assert decode_document(JobStatus, encode_document(told)) == told


def test_metric_that_is_no_number_does_not_hide_the_status():
    """A diverged loss must not keep the cluster from seeing the job."""
    driver = plain()
    metrics = {"loss": float("nan"), "norm": float("inf"), "step": 3.0}
    driver.send(T0, Progress(steps=1, metrics=metrics))
    told = decode_document(JobStatus, encode_document(job.status(driver.state, driver.now)))
    assert told.members[0].metrics == {"step": 3.0}


def test_status_of_a_job_that_waits_says_for_what():
    driver = Driver(JobConfig(servers=2)).start()
    assert job.status(driver.state, driver.now).phase is JobPhase.WAITING_FOR_SERVERS


def test_every_event_has_a_handler():
    """The table is complete."""
    assert set(machine.HANDLERS) == set(get_args(CoreEvent))


def test_every_message_of_a_member_has_a_handler():
    """A message without one would be answered as if its sender were not registered."""
    assert {RegisterServer, *server_handlers.HANDLERS} == set(get_args(ServerMessage))
    assert {RegisterTrainer, *machine._TRAINER_HANDLERS} == set(get_args(TrainerMessage))


def test_a_trainer_of_a_group_is_refused_where_the_job_is_none():
    """Its script declares a replica; the words say what is missing."""
    driver = plain()
    said = RegisterReplica(
        name=T0.name, ordinal=0, incarnation=T0.incarnation, address="unix:/x", left=0, generation=0, state=None
    )
    (answer,) = driver.send(T0, said)
    assert isinstance(answer, Refused)
    assert (answer.field, "spec.group" in answer.message) == ("group", True)
