"""Fault isolation of jobs: a fault in one job's step is kept with that job, and the work for all others goes on.

The loops of the cluster side go over all jobs, and what a job's owner writes, or its master answers, may meet a fault
of EDL.  So every step that is taken for one job is taken inside `isolate`.  An exception that nobody expected is kept
with the job's name and step and passed to the `FaultListener` (log, event, metric, status); the step is not taken again
for that job before a pause that doubles with each failure.  A step that succeeds forgets its failures.  Source: A11.

What passes through: errors of the cluster (ClusterError, the fence's among them), which callers wait out, and what is
no Exception (a cancelled task, a signal).  A fault that is no job's ends the term as before.  Pure: `fault_log` logs.

A fault with an object that is no job's (a Deployment, a quota, somebody's pod) is kept under `object_key`.
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
"""An edit ends what is left of a pause beyond this: edits in a row buy a job no more of the pass that all share."""

MOST_JOBS: Final = 10_000  # with errors

TaskResult = TypeVar("TaskResult")
ReadItem = TypeVar("ReadItem")


class GuardedTask(StrEnum):
    """A step that EDL takes for one job."""

    KEEP = "keep"  # an object as the API server has it
    EXPECT = "expect"  # what a write of our own is yet to show
    READ = "read"  # its object
    PLAN_INPUT = "plan input"  # what the planner is to know of it
    PODS = "pods"  # to read them
    MASTER_NODES = "master nodes"  # of its masters
    PLAN = "plan"
    RECLAIM = "reclaim"  # planning for what stands in for it, so that its surplus gives way
    WRITE = "write"  # an action of the planner that creates
    DELETE = "delete"  # one that takes a pod away: never paused, for others wait for its room
    GANG = "gang"  # what stands of it
    POD_BINDING = "pod binding"  # whether its pods get to their nodes in time
    GANG_COMPLETE = "gang complete"  # whether its master may come
    START = "start"  # its master comes
    DROP = "drop"  # its gang that lost its room goes
    QUEUE = "queue"  # it has changed
    LIFE = "life"  # what stands of it, and what its life asks for
    POLL = "poll"  # its master
    CLOSE = "close"  # on its master, once the job is gone
    POD_END = "pod end"  # a pod that ended
    OBJECTS = "objects"  # Secrets, Service, budget
    PODS_OWNED = "pods owned"  # whether it has any, whose objects are to be kept
    REPORT = "report"  # what was decided
    REPORT_WRITES = "report writes"
    STATUS = "status"
    WRITE_STATUS = "write status"
    EVENT = "event"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """The last failure of one step of one job.  `retry_at_s`: not before, on the clock of `JobErrors`."""

    task: GuardedTask
    problem: str
    failures: int  # in a row
    at_s: float
    retry_at_s: float


class FaultListener(Protocol):
    """Listener to failures.  Its methods may neither raise nor block."""

    def handle_failure(self, job: JobName, failure: JobError, error: Exception, *, has_changed: bool) -> None:
        """A step of the job has failed.  `is_news`: it had not before, or otherwise."""
        ...

    def handle_recovery(self, job: JobName) -> None:
        """A step that had failed has succeeded."""
        ...


class JobErrors:
    """Failures by job and step.  `clock` is the cluster's; `listener` may be set later."""

    def __init__(self, clock: Callable[[], float], listener: FaultListener | None = None) -> None:
        self.listener = listener
        self._clock = clock
        self._errors: dict[JobName, dict[GuardedTask, JobError]] = {}

    def isolate(self, job: JobName, task: GuardedTask) -> IsolatedTask:
        """A context in which the step is taken.  What it raises beside ClusterError is noted, and goes no further."""
        return IsolatedTask(self, job, task)

    def is_paused(self, job: JobName, task: GuardedTask) -> bool:
        """True while the pause after the step's last failure lasts."""
        return bool(self._errors) and self._clock() < self.retry_at_s(job, task)

    def fails(self, job: JobName, task: GuardedTask) -> bool:
        """True if the step failed when it was taken last."""
        return task in self._errors.get(job, {})

    def retry_at_s(self, job: JobName, task: GuardedTask) -> float:
        """Return when the step may be taken again; 0: at any time."""
        error = self._errors.get(job, {}).get(task)
        return 0.0 if error is None else error.retry_at_s

    def paused(self, task: GuardedTask) -> Mapping[JobName, str]:
        """Return the jobs for which the step is not to be taken yet, and why."""
        now_s = self._clock()
        return {
            job: errors[task].problem
            for job, errors in self._errors.items()
            if task in errors and now_s < errors[task].retry_at_s
        }

    def paused_or_failing(
        self, task: GuardedTask, jobs: Collection[JobName], *, most_tried: int
    ) -> Mapping[JobName, str]:
        """Those of the jobs without which a round is made, and why: all that failed at the step but those tried again.

        Of those whose pause is over at most `most_tried` are tried in one round, who has waited longest first.
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
        """Return what is wrong, in words for the job's owner; empty: nothing."""
        if not (errors := self._errors.get(job)):
            return ""
        tasks = "; ".join(f"{error.task}: {error.problem}" for _, error in sorted(errors.items()))
        return f"EDL fails at a step of this job and tries again; other jobs go on ({tasks})"

    def attempt(self, job: JobName, task: GuardedTask, work: Callable[[], TaskResult]) -> TaskResult | None:
        """Do the work as this step of the job; return its result, None if it failed."""
        with self.isolate(job, task):
            return work()
        return None

    async def attempt_async(
        self, job: JobName, task: GuardedTask, work: Callable[[], Awaitable[TaskResult]]
    ) -> TaskResult | None:
        """Do as `attempt`, for work that is awaited."""
        with self.isolate(job, task):
            return await work()
        return None

    def read_each(
        self,
        things: Iterable[ReadItem],
        job_of: Callable[[ReadItem], JobName],
        task: GuardedTask,
        read: Callable[[ReadItem], TaskResult | None],
    ) -> tuple[TaskResult, ...]:
        """Read each item and return the results; items that cannot be read, or are not to be read yet, are left out."""
        named = [(job_of(thing), thing) for thing in things]
        found = [self.attempt(job, task, partial(read, thing)) for job, thing in named if not self.is_paused(job, task)]
        return tuple(answer for answer in found if answer is not None)

    def record_failure(self, job: JobName, task: GuardedTask, error: Exception) -> None:
        """Note that the step has failed."""
        before = self._errors.setdefault(job, {}).get(task)
        while len(self._errors) > MOST_JOBS:
            del self._errors[next(iter(self._errors))]  # of the oldest: it is noted anew if it fails again
        failures = 1 if before is None else before.failures + 1
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE_S)
        at_s, problem = self._clock(), error_text(error)
        now = JobError(task=task, problem=problem, failures=failures, at_s=at_s, retry_at_s=at_s + pause_s)
        self._errors[job][task] = now
        has_changed = before is None or before.problem != now.problem
        if self.listener is not None:
            with suppress(Exception):  # what cannot be told must not stop who works
                self.listener.handle_failure(job, now, error, has_changed=has_changed)

    def clear_failure(self, job: JobName, task: GuardedTask) -> None:
        """Note that the step has succeeded: its failures are forgotten."""
        errors = self._errors.get(job)
        if errors is None or errors.pop(task, None) is None:
            return
        if not errors:
            del self._errors[job]
        if self.listener is not None:
            with suppress(Exception):
                self.listener.handle_recovery(job)

    def handle_edit(self, job: JobName) -> None:
        """Try each failing step of an edited job again once `EDIT_PAUSE_S` since its failure are over."""
        for task, error in self._errors.get(job, {}).items():
            retry_at_s = min(error.retry_at_s, error.at_s + EDIT_PAUSE_S)
            self._errors[job][task] = replace(error, retry_at_s=retry_at_s)

    def forget(self, job: JobName) -> None:
        """The job is gone."""
        self._errors.pop(job, None)

    def keep_only(self, jobs: Collection[JobName], task: GuardedTask) -> None:
        """Forget the failures of this step of other jobs, once the longest pause since is over.

        A job that is missing for a round is not gone: its owner may have made it invalid.  Who knows that it is gone
        calls `forget`.
        """
        since_s = self._clock() - LONGEST_PAUSE_S
        old = [job for job, errors in self._errors.items() if task in errors and errors[task].at_s <= since_s]
        for job in old:
            if job not in jobs:
                self.clear_failure(job, task)


class IsolatedTask:
    """Context of one step of one job: an exception inside is noted and goes no further."""

    __slots__ = ("_errors", "_job", "_task")

    def __init__(self, errors: JobErrors, job: JobName, task: GuardedTask) -> None:
        self._errors = errors
        self._job = job
        self._task = task

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            self._errors.clear_failure(self._job, self._task)
        if not isinstance(error, Exception) or isinstance(error, ClusterError):
            return False
        self._errors.record_failure(self._job, self._task, error)
        return True


def object_key(kind: str, namespace: str, name: str) -> JobName:
    """Return the key for failures with an object that is no job's."""
    return JobName(f"{namespace}/{kind}/{name}")


def raw_object_key(kind: str, raw: Mapping[str, Any]) -> JobName:
    """Return the same key for an object as the API server has it, whose very name may be wrong."""
    metadata = raw.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return object_key(kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
