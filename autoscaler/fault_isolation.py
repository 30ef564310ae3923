"""Fault isolation of jobs: a fault in a task of one job is recorded with that job, and the work for other jobs
continues.

The loops of the cluster side go over all jobs, and a job's spec, or its master's answer, may trigger a fault of EDL.
So every task of one job runs inside `isolate`.  An unexpected exception is recorded with job and task and passed to
the `FaultListener` (log, event, metric, status).  The task is retried for that job after a pause that doubles with
each failure; a success clears the record.  Source: A11.

ClusterErrors, unless `passing` says otherwise, and BaseExceptions (cancellation, signals) pass through.  A fault
outside `isolate` ends the term.  Pure: `fault_log` logs.  A fault with an object of no job (a Deployment, a quota, an
external pod) is recorded under `object_key`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from autoscaler.domain import JobName
from autoscaler.errors import ClusterError, error_text

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0
EDIT_PAUSE_S: Final = 10.0
"""Shortest pause after a failure that an edit cannot end: otherwise edits in a row would take time from all jobs."""

MOST_JOBS: Final = 10_000  # with errors

TaskResult = TypeVar("TaskResult")
ReadItem = TypeVar("ReadItem")


PassingErrors = type[Exception] | tuple[()]
"""Exceptions that no job is to blame for; an empty tuple where the task depends on nothing outside EDL."""


class GuardedTask(StrEnum):
    """A task of EDL for one job."""

    KEEP = "keep"  # store an object in the cache
    EXPECT = "expect"  # settle the expectation of an own write
    READ = "read"  # parse its object
    PLAN_INPUT = "plan input"  # convert it for the planner
    PODS = "pods"  # parse its pods
    MASTER_NODES = "master nodes"  # number its masters' pods
    PLAN = "plan"
    RECLAIM = "reclaim"  # plan with its stand-in, so that its surplus can be reclaimed
    WRITE = "write"  # a creation by the planner
    DELETE = "delete"  # a deletion by the planner; never paused, since others wait for the capacity
    GANG = "gang"  # observe its gang
    POD_BINDING = "pod binding"  # check that its pods are bound in time
    GANG_COMPLETE = "gang complete"  # check whether its master may be created
    START = "start"  # create its master
    DROP = "drop"  # delete a gang that lost its capacity
    QUEUE = "queue"  # queue it after a change
    LIFE = "life"  # reconcile its lifecycle
    POLL = "poll"  # poll its master
    HANG = "hang"  # check whether its master or a server hangs
    CLOSE = "close"  # close connections to masters of a deleted job
    POD_END = "pod end"  # handle a pod's end
    OBJECTS = "objects"  # create or restore its Secrets, Service and budget
    PODS_OWNED = "pods owned"  # check whether it has pods, whose objects are kept
    REPORT = "report"  # report a decision
    REPORT_WRITES = "report writes"
    STATUS = "status"
    WRITE_STATUS = "write status"
    EVENT = "event"
    IDLE_GPUS = "idle GPUs"  # join reports with its pods, or give back what a pod of others does not use


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """The last failure of one task of one job.  `retry_at_s`: on the clock of `JobErrors`."""

    task: GuardedTask
    problem: str
    failures: int  # in a row
    at_s: float
    retry_at_s: float


class FaultListener(Protocol):
    """Listener to failures.  Its methods may neither raise nor block."""

    def handle_failure(self, job: JobName, failure: JobError, error: Exception, *, has_changed: bool) -> None:
        """A task of the job has failed.  `has_changed`: it is the first failure, or the error differs."""
        ...

    def handle_recovery(self, job: JobName) -> None:
        """A task that had failed has succeeded."""
        ...


class JobErrors:
    """Failures by job and task.  `clock` is the cluster's; `listener` may be set later."""

    def __init__(self, clock: Callable[[], float], listener: FaultListener | None = None) -> None:
        self.listener = listener
        self._clock = clock
        self._errors: dict[JobName, dict[GuardedTask, JobError]] = {}

    def isolate(self, job: JobName, task: GuardedTask, *, passing: PassingErrors = ClusterError) -> IsolatedTask:
        """Context in which the task runs.  Exceptions other than `passing` are recorded and suppressed."""
        return IsolatedTask(self, job, task, passing)

    def is_paused(self, job: JobName, task: GuardedTask) -> bool:
        """True while the pause after the task's last failure lasts."""
        return bool(self._errors) and self._clock() < self.retry_at_s(job, task)

    def fails(self, job: JobName, task: GuardedTask) -> bool:
        """True if the task's last attempt failed."""
        return task in self._errors.get(job, {})

    def retry_at_s(self, job: JobName, task: GuardedTask) -> float:
        """Return when the task may be retried; 0: at any time."""
        error = self._errors.get(job, {}).get(task)
        return 0.0 if error is None else error.retry_at_s

    def paused(self, task: GuardedTask) -> Mapping[JobName, str]:
        """Return the jobs for which the task is paused, and why."""
        now_s = self._clock()
        return {
            job: errors[task].problem
            for job, errors in self._errors.items()
            if task in errors and now_s < errors[task].retry_at_s
        }

    def paused_or_failing(
        self, task: GuardedTask, jobs: Collection[JobName], *, most_tried: int
    ) -> Mapping[JobName, str]:
        """Jobs to leave out of this round, and why: all jobs that failed at the task, except up to `most_tried` whose
        pause is over (longest wait first).
        """
        now_s = self._clock()
        failing = {job: errors[task] for job, errors in self._errors.items() if task in errors and job in jobs}
        due = sorted((error.retry_at_s, job) for job, error in failing.items() if error.retry_at_s <= now_s)
        tried = {job for _, job in due[:most_tried]}
        return {job: error.problem for job, error in failing.items() if job not in tried}

    @property
    def has_failures(self) -> bool:
        """True while any step of anybody fails."""
        return bool(self._errors)

    def problem(self, job: JobName) -> str:
        """Problem text for the job's owner; empty: none."""
        if not (errors := self._errors.get(job)):
            return ""
        tasks = "; ".join(f"{error.task}: {error.problem}" for _, error in sorted(errors.items()))
        return f"EDL failed at a task of this job and retries it; other jobs are not affected ({tasks})"

    def attempt(
        self,
        job: JobName,
        task: GuardedTask,
        work: Callable[[], TaskResult],
        *,
        passing: PassingErrors = ClusterError,
    ) -> TaskResult | None:
        """Run `work` as this task of the job; return its result, or None after a failure."""
        with self.isolate(job, task, passing=passing):
            return work()
        return None

    async def attempt_async(
        self, job: JobName, task: GuardedTask, work: Callable[[], Awaitable[TaskResult]]
    ) -> TaskResult | None:
        """Like `attempt`, for work that is awaited."""
        with self.isolate(job, task):
            return await work()
        return None

    def read_each(
        self,
        things: Iterable[ReadItem],
        job_of: Callable[[ReadItem], JobName],
        task: GuardedTask,
        read: Callable[[ReadItem], TaskResult | None],
        *,
        passing: PassingErrors = ClusterError,
    ) -> tuple[TaskResult, ...]:
        """Read each item and return the results; items that cannot be read, or are not to be read yet, are left out."""
        named = [(job_of(thing), thing) for thing in things]
        found = [
            self.attempt(job, task, partial(read, thing), passing=passing)
            for job, thing in named
            if not self.is_paused(job, task)
        ]
        return tuple(answer for answer in found if answer is not None)

    def record_failure(self, job: JobName, task: GuardedTask, error: Exception) -> None:
        """Record a failure of the task."""
        before = self._errors.setdefault(job, {}).get(task)
        while len(self._errors) > MOST_JOBS:
            del self._errors[next(iter(self._errors))]  # the oldest: it is recorded again with its next failure
        failures = 1 if before is None else before.failures + 1
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE_S)
        at_s, problem = self._clock(), error_text(error)
        now = JobError(task=task, problem=problem, failures=failures, at_s=at_s, retry_at_s=at_s + pause_s)
        self._errors[job][task] = now
        has_changed = before is None or before.problem != now.problem
        if self.listener is not None:
            with suppress(Exception):  # a listener's error must not stop the work
                self.listener.handle_failure(job, now, error, has_changed=has_changed)

    def clear_failure(self, job: JobName, task: GuardedTask) -> None:
        """Record a success of the task: its failures are dropped."""
        errors = self._errors.get(job)
        if errors is None or errors.pop(task, None) is None:
            return
        if not errors:
            del self._errors[job]
        if self.listener is not None:
            with suppress(Exception):
                self.listener.handle_recovery(job)

    def handle_edit(self, job: JobName) -> None:
        """Retry each failing task of an edited job, at the earliest `EDIT_PAUSE_S` after its failure."""
        for task, error in self._errors.get(job, {}).items():
            retry_at_s = min(error.retry_at_s, error.at_s + EDIT_PAUSE_S)
            self._errors[job][task] = replace(error, retry_at_s=retry_at_s)

    def forget(self, job: JobName) -> None:
        """Drop all failures of a deleted job."""
        self._errors.pop(job, None)

    def keep_only(self, jobs: Collection[JobName], task: GuardedTask) -> None:
        """Drop failures of this task of all other jobs once the longest pause has passed.

        A job missing in one round may only be invalid; the caller that sees its deletion calls `forget`.
        """
        since_s = self._clock() - LONGEST_PAUSE_S
        old = [job for job, errors in self._errors.items() if task in errors and errors[task].at_s <= since_s]
        for job in old:
            if job not in jobs:
                self.clear_failure(job, task)


class IsolatedTask:
    """Context of one task of one job: an exception inside is recorded and suppressed."""

    __slots__ = ("_errors", "_job", "_passing", "_task")

    def __init__(self, errors: JobErrors, job: JobName, task: GuardedTask, passing: PassingErrors) -> None:
        self._errors = errors
        self._job = job
        self._task = task
        self._passing = passing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            self._errors.clear_failure(self._job, self._task)
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return False
        self._errors.record_failure(self._job, self._task, error)
        return True


def object_key(kind: str, namespace: str, name: str) -> JobName:
    """Return the key for failures with an object of no job."""
    return JobName(f"{namespace}/{kind}/{name}")


def raw_object_key(kind: str, raw: Mapping[str, Any]) -> JobName:
    """Return the same key for an object as the API server has it, whose very name may be wrong."""
    metadata = raw.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return object_key(kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
