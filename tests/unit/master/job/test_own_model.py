"""A single trainer with a model of its own, in a job without servers (rules 33 to 35)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import Ack, Declare, Leave, OfferCheckpoint, RegisterTrainer
from master.api.messages.to_members import Declared, Ended, Fenced, OfferAnswered, Refused, Registered, Wait
from master.api.positions import EMPTY, PositionSet
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import LeaseExpired
from tests.unit.master.job.driver import SPEC, Driver, key

OWN = Declare(dataset=SPEC, own_model=True)
T0 = key("t0")


@pytest.fixture
def driver():
    driver = Driver(JobConfig(servers=0)).start()
    driver.trainer("t0", declares=OWN)
    return driver


def register(driver, member, *, lineage=0, applied=EMPTY, held=()):
    """The answers; as often as it is fenced it registers again, as the SDK does."""
    said = RegisterTrainer(
        name=member.name, ordinal=0, incarnation=member.incarnation, lineage=lineage, applied=applied, held=held
    )
    answers = driver.send(member, said)
    if any(isinstance(answer, Fenced) for answer in answers):
        answers = driver.send(member, said)
    return next(answer for answer in answers if isinstance(answer, Registered))


def train(driver, member, request):
    (lease,) = driver.leases(member, request)
    driver.send(member, Ack(token=lease.token, positions=lease.positions))
    return lease.positions


def file_of(driver, data, **changes):
    marks = (BucketMarks(buckets=PositionSet.of(0), applied=data),)
    fields = {"name": f"model-{len(data)}", "size_bytes": 1, "digest": "d", "lineage": driver.state.number}
    return FileRecord(**{**fields, **changes}, marks=marks)


def offer(driver, member, data, number=1, **changes):
    answers = driver.send(
        member, OfferCheckpoint(offer=number, world=driver.state.number, file=file_of(driver, data, **changes))
    )
    return next(answer for answer in answers if isinstance(answer, OfferAnswered))


def test_offer_commits_model_and_marks_together(driver):
    """Rule 35: the data state is the file's own marks, not what was acked."""
    done = train(driver, T0, 1)
    train(driver, T0, 2)
    answer = offer(driver, T0, done)
    assert answer.manifest == driver.head.id
    assert driver.head.data == done
    assert driver.head.files[0].marks[0].applied == done


def test_offer_of_another_world_is_refused(driver):
    """Rule 35: its world must be current."""
    done = train(driver, T0, 1)
    answers = driver.send(T0, OfferCheckpoint(offer=1, world=9, file=file_of(driver, done, lineage=9)))
    assert answers[0].manifest is None
    assert "world" in answers[0].reason
    assert driver.head is None


@pytest.mark.parametrize(("world", "lineage"), [(9, 1), (1, 9)])
def test_offer_is_refused_where_world_or_file_alone_is_of_another(driver, world, lineage):
    """Rule 35: what was said and what the file carries are both of the current world."""
    done = train(driver, T0, 1)
    assert driver.state.number == 1
    answers = driver.send(T0, OfferCheckpoint(offer=1, world=world, file=file_of(driver, done, lineage=lineage)))
    assert (answers[0].manifest, driver.head) == (None, None)


def test_no_commit_is_due_where_trainers_have_the_model(driver):
    """They offer checkpoints: nothing may wait for the master to begin one."""
    train(driver, T0, 1)
    assert not driver.state.is_commit_due


def test_names_of_checkpoints_sort_by_time(driver):
    """Rule 4: each has a number of its own, higher than those before."""
    names = []
    done = EMPTY
    for number in (1, 2, 3):
        done |= train(driver, T0, number)
        names.append(offer(driver, T0, done, number=number).manifest)
    assert names == [f"000001-0000000001-{sequence:06d}-{driver.state.origin.fresh}" for sequence in (1, 2, 3)]


def test_offer_that_lacks_what_head_has_is_refused(driver):
    """Rule 35: its data contain head's."""
    done = train(driver, T0, 1)
    offer(driver, T0, done)
    answer = offer(driver, T0, done.first(10), number=2)
    assert answer.manifest is None
    assert "lacks" in answer.reason


def test_refused_offer_is_a_problem_of_commits_until_one_goes_through(driver):
    """Nothing else says that the job makes no checkpoint: its trainer alone was told."""
    done = train(driver, T0, 1)
    offer(driver, T0, done)
    offer(driver, T0, done.first(10), number=2)
    assert "t0 offered was refused: it lacks" in driver.state.commit.problem
    more = done | train(driver, T0, 2)
    assert offer(driver, T0, more, number=3).manifest is not None
    assert driver.state.commit.problem == ""


def test_same_offer_again_gets_the_same_answer(driver):
    """A lost answer is asked for again."""
    done = train(driver, T0, 1)
    assert offer(driver, T0, done) == offer(driver, T0, done)


def test_new_process_starts_from_heads_file_in_a_new_world(driver):
    """Rule 34: DONE := head's data; an ack does not outlive the replica."""
    done = train(driver, T0, 1)
    offer(driver, T0, done)
    lost = train(driver, T0, 2)
    world = driver.state.number
    again = key("t0", 2)
    registered = register(driver, again)
    assert registered.lineage == world + 1 == driver.durable.lineage.number
    assert registered.restore == driver.head.files[0]
    assert registered.restored_data == done
    assert lost <= driver.state.dispatch.todo


def test_without_a_checkpoint_a_new_process_starts_from_nothing(driver):
    """Rule 35: the only trainer lost: head, and there is none."""
    train(driver, T0, 1)
    registered = register(driver, key("t0", 2))
    assert registered.restore is None
    assert driver.state.dispatch.todo == SPEC.everything


def test_file_of_the_lost_process_is_not_committed_over_the_new_one(driver):
    """Rule 34: the world was raised before the new process began."""
    done = train(driver, T0, 1)
    late = OfferCheckpoint(offer=1, world=driver.state.number, file=file_of(driver, done))
    register(driver, key("t0", 2))
    driver.send(T0, late)
    assert driver.head is None


def test_same_process_keeps_its_model_through_a_take_over(driver):
    """Rule 34, M5: DONE := its marks."""
    done = train(driver, T0, 1)
    driver.start()
    registered = register(driver, T0, lineage=driver.state.number, applied=done)
    assert registered.lineage == 1
    assert registered.restore is None
    assert driver.state.dispatch.done == done


def test_new_process_after_a_take_over_starts_from_head(driver):
    """Rule 34: the new master cannot know who held the world, so it closes it."""
    train(driver, T0, 1)
    driver.start()
    registered = register(driver, key("t0", 2))
    assert registered.lineage == 2
    assert driver.state.dispatch.todo == SPEC.everything


def test_trainer_that_was_evicted_goes_on_with_its_own_marks(driver):
    """Rule 34: the most advanced living replica is its own."""
    done = train(driver, T0, 1)
    driver.leases(T0, 2)
    driver.fire(LeaseExpired)
    assert driver.state.owner is None
    registered = register(driver, T0, lineage=1, applied=done)
    assert registered.lineage == 1
    assert driver.state.owner == T0
    assert driver.state.dispatch.done == done


def test_second_trainer_is_refused_with_the_reason(driver):
    """Rule 36: a model each is not supported."""
    other = key("t1")
    register(driver, other)
    answers = driver.send(other, OWN)
    assert isinstance(answers[0], Refused)
    assert answers[0].field == "trainers"
    assert isinstance(driver.acquire(other, 1), Refused)
    assert offer(driver, other, EMPTY).manifest is None


def test_waiting_trainer_takes_over_when_the_owner_leaves(driver):
    """Rule 34."""
    done = train(driver, T0, 1)
    offer(driver, T0, done)
    other = key("t1")
    register(driver, other)
    driver.send(T0, Leave())
    registered = register(driver, other)
    assert registered.restore == driver.head.files[0]
    assert driver.state.owner == other


def test_world_is_durable_before_the_new_process_is_told(driver):
    """Rule 34: persist before reply."""
    driver.writes_go_through = False
    member = key("t0", 2)
    said = RegisterTrainer(name=member.name, ordinal=0, incarnation=member.incarnation, lineage=0)
    assert not [answer for answer in driver.send(member, said) if isinstance(answer, Registered)]
    driver.let_go()
    assert register(driver, member).lineage == 2


def test_raise_while_an_offer_is_being_written_drops_the_offer(driver):
    """Rules 23, 34: its world is over."""
    done = train(driver, T0, 1)
    driver.manifests_go_through = False
    driver.send(T0, OfferCheckpoint(offer=1, world=1, file=file_of(driver, done)))
    register(driver, key("t0", 2))
    driver.let_go()
    assert driver.head is None


def test_end_comes_only_with_a_checkpoint_of_everything(driver):
    """M3, rule 32: all done and committed."""
    request, applied = 0, EMPTY
    while driver.state.dispatch.todo:
        request += 1
        applied |= train(driver, T0, request)
    assert isinstance(driver.acquire(T0, 99), Wait)
    offer(driver, T0, applied)
    assert isinstance(driver.acquire(T0, 100), Ended)


def test_declaration_is_remembered_by_the_next_master(driver):
    """The kind of job is durable with its data set."""
    driver.start()
    assert driver.state.has_own_model
    assert driver.state.is_model_kept
    register(driver, T0, lineage=1)
    (answer,) = driver.send(T0, OWN)
    assert isinstance(answer, Declared)
    (refused,) = driver.send(T0, replace(OWN, own_model=False))
    assert refused.field == "own_model"


def test_manifest_of_an_own_model_is_known_by_its_file_without_tables(driver):
    """A store that forgot the job is founded anew from the manifest: this is how the kind of job is known."""
    done = train(driver, T0, 1)
    offer(driver, T0, done)
    assert driver.head.files
    assert not driver.head.tables
    assert driver.head.bucket_count == 1


@pytest.mark.parametrize(
    ("change", "word"), [({"lineage": 9}, "world"), ({"data": PositionSet.span(0, 500)}, "data set")]
)
def test_offer_that_is_no_checkpoint_of_this_job_is_refused(driver, change, word):
    """Rule 35: what the file says is compared, not believed."""
    data = change.pop("data", PositionSet.span(0, 10))
    answer = offer(driver, T0, data, **change)
    assert answer.manifest is None
    assert word in answer.reason


def test_offer_while_another_is_written_is_to_be_repeated(driver):
    """One commit at a time."""
    done = train(driver, T0, 1)
    driver.manifests_go_through = False
    driver.send(T0, OfferCheckpoint(offer=1, world=1, file=file_of(driver, done)))
    assert "offer it again" in offer(driver, T0, done, number=2, name="other").reason
    assert driver.state.commit.problem == "", "the commit under way decides"
    driver.let_go()
    assert driver.head.data == done


def test_offer_in_a_job_without_own_model_is_refused():
    """Rule 36."""
    driver = Driver(JobConfig(servers=0)).start()
    driver.trainer("t0")
    assert "own_model" in offer(driver, T0, EMPTY).reason
