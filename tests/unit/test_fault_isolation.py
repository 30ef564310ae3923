"""The wall around each job: what one step of one job raises is that job's alone (A11)."""

import asyncio
import logging

import pytest

from autoscaler.clusters.kubernetes.api.errors import NotLeadingError
from autoscaler.errors import ClusterError, TemporaryError
from autoscaler.fault_isolation import EDIT_PAUSE_S, LONGEST_PAUSE_S, GuardedTask, JobErrors
from autoscaler.fault_log import LONGEST_TRACEBACK, FaultLog

JOB, OTHER = "team-a/digits", "team-b/letters"


class Heard:
    def __init__(self):
        self.failed_steps, self.mended_jobs = [], []

    def handle_failure(self, job, failure, error, *, has_changed):
        self.failed_steps.append((job, failure.task, failure.failures, has_changed))

    def handle_recovery(self, job):
        self.mended_jobs.append(job)


@pytest.fixture
def now():
    return [1_000.0]


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def errors(now, heard):
    return JobErrors(lambda: now[0], heard)


def fail(errors, error, job=JOB, task=GuardedTask.LIFE):
    with errors.isolate(job, task):
        raise error


def test_error_is_noted_on_its_job_and_step_alone(errors):
    """The other steps of the job, and other jobs, are taken as before."""
    fail(errors, ValueError("of\nthe job"))
    assert errors.is_paused(JOB, GuardedTask.LIFE)
    assert not errors.is_paused(JOB, GuardedTask.STATUS)
    assert not errors.is_paused(OTHER, GuardedTask.LIFE)
    assert errors.problem(OTHER) == ""
    assert "life: ValueError: of the job" in errors.problem(JOB)


@pytest.mark.parametrize(
    "error",
    [
        ClusterError("no"),
        TemporaryError("later", retry_after_s=1.0),
        NotLeadingError("no longer"),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        SystemExit(1),
    ],
)
def test_errors_of_the_cluster_and_ends_of_tasks_pass_through(errors, error):
    """The fence's among them: a deposed leader goes on with nothing."""
    with pytest.raises(type(error)):
        fail(errors, error)
    assert errors.problem(JOB) == ""


def test_pause_doubles_up_to_its_bound(errors, now):
    """1, 2, 4 s ... 5 min: a job at fault costs less and less."""
    pauses = []
    for _ in range(12):
        fail(errors, ValueError("again"))
        pauses.append(errors.retry_at_s(JOB, GuardedTask.LIFE) - now[0])
        now[0] += pauses[-1]
        assert not errors.is_paused(JOB, GuardedTask.LIFE)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_success_forgets_and_says_so_once(errors, heard):
    """The next failure is a first one again."""
    fail(errors, ValueError("once"))
    for _ in range(2):
        with errors.isolate(JOB, GuardedTask.LIFE):
            pass
    assert heard.mended_jobs == [JOB]
    fail(errors, ValueError("once"))
    assert heard.failed_steps == [(JOB, GuardedTask.LIFE, 1, True), (JOB, GuardedTask.LIFE, 1, True)]


def test_success_of_another_step_mends_nothing(errors, heard):
    """A job that is written to can still not be planned."""
    fail(errors, ValueError("once"), task=GuardedTask.PLAN)
    with errors.isolate(JOB, GuardedTask.LIFE):
        pass
    assert heard.mended_jobs == []
    assert errors.paused(GuardedTask.PLAN) == {JOB: "ValueError: once"}


def test_traceback_is_logged_with_the_jobs_name_once_for_each_error(errors, caplog):
    """Bounded, and not at every try."""
    errors.listener = FaultLog()
    for problem in ("long " * 100_000, "long " * 100_000, "another"):
        fail(errors, ValueError(problem))
    stories = [record.getMessage() for record in caplog.records]
    assert all(record.levelno == logging.ERROR and JOB in record.getMessage() for record in caplog.records)
    assert ["\n" in story for story in stories] == [True, False, True]
    assert max(map(len, stories)) < LONGEST_TRACEBACK + 1_000
    assert "ValueError: another" in stories[-1]


def test_edit_ends_a_pause_and_comes_no_more_often_than_every_ten_seconds(errors, now):
    """What failed was asked for by a definition that is no more; a row of edits buys no row of tries (A11)."""
    for _ in range(8):
        fail(errors, ValueError("again"))
    fail(errors, ValueError("again"), job=OTHER)
    failed_at_s = now[0]
    now[0] += 3.0
    errors.handle_edit(JOB)
    assert errors.retry_at_s(JOB, GuardedTask.LIFE) == failed_at_s + EDIT_PAUSE_S
    assert errors.retry_at_s(OTHER, GuardedTask.LIFE) == failed_at_s + 1.0, "a shorter pause stands"
    now[0] += 60.0
    fail(errors, ValueError("again"))
    assert errors.retry_at_s(JOB, GuardedTask.LIFE) == now[0] + 256.0, "the pauses go on doubling"
    now[0] += 60.0
    errors.handle_edit(JOB)
    assert not errors.is_paused(JOB, GuardedTask.LIFE)


def test_failures_of_jobs_that_are_gone_are_forgotten(errors, now):
    """Nothing is kept of them, once a job that is only missing for a while would have had its longest pause."""
    fail(errors, ValueError("once"), task=GuardedTask.PLAN)
    fail(errors, ValueError("once"))
    errors.keep_only({OTHER}, GuardedTask.PLAN)
    assert errors.fails(JOB, GuardedTask.PLAN)
    now[0] += LONGEST_PAUSE_S
    errors.keep_only({JOB}, GuardedTask.PLAN)
    assert errors.fails(JOB, GuardedTask.PLAN)
    errors.keep_only({OTHER}, GuardedTask.PLAN)
    assert not errors.fails(JOB, GuardedTask.PLAN)
    errors.forget(JOB)
    assert errors.problem(JOB) == ""
