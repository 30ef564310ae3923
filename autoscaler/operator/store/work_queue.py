"""Work queues of jobs between controllers.

A job that is added twice before it is taken is in the queue once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from autoscaler.domain import JobName
from autoscaler.fault_isolation import GuardedTask, JobErrors

SETTLE_S: Final = 1.0  # changes of one job that come together are one write of its status
LONGEST_SETTLING: Final = 3.0  # times that, however its changes go on


class WorkQueue:
    """Queue of jobs to reconcile now."""

    def __init__(self) -> None:
        self._jobs: set[JobName] = set()
        self._added = asyncio.Event()

    def add(self, job: JobName) -> None:
        """Add a job."""
        self._jobs.add(job)
        self._added.set()

    def add_all(self, jobs: Iterable[JobName]) -> None:
        """Add these jobs."""
        for job in jobs:
            self.add(job)

    def pop_all(self) -> set[JobName]:
        """Remove and return all jobs of the queue."""
        jobs, self._jobs = self._jobs, set()
        return jobs

    async def wait(self, timeout_s: float) -> None:
        """Return once a job has been added since the last call, or after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._added.wait()
        except TimeoutError:
            pass
        self._added.clear()


class StatusQueue:
    """Queue of jobs whose status may need a write, with the earliest time for each.

    A job is due once nothing has changed for `settle_s`, at the latest three times that after the first change, and
    not before the pause after a write that failed.
    """

    def __init__(self, clock: Callable[[], float], errors: JobErrors, *, settle_s: float = SETTLE_S) -> None:
        self._settle_s = settle_s
        self._clock = clock
        self._errors = errors
        self._due_s: dict[JobName, float] = {}
        self._since_s: dict[JobName, float] = {}  # the first change since the last write
        self._added = asyncio.Event()

    def add(self, job: JobName) -> None:
        """Mark the job's status as possibly changed."""
        now_s = self._clock()
        since_s = self._since_s.setdefault(job, now_s)
        due_s = min(now_s + self._settle_s, since_s + LONGEST_SETTLING * self._settle_s)
        self._due_s[job] = max(due_s, self._errors.retry_at_s(job, GuardedTask.WRITE_STATUS))
        self._added.set()

    def delay(self, job: JobName, until_s: float) -> None:
        """Postpone the write of the job's status to this instant."""
        self._due_s[job] = until_s

    def remove(self, job: JobName) -> None:
        """Remove the job; its status is being written."""
        self._due_s.pop(job, None)
        self._since_s.pop(job, None)

    def due(self) -> list[JobName]:
        """Return the jobs whose status may be written now."""
        now_s = self._clock()
        return [job for job, due_s in self._due_s.items() if due_s <= now_s]

    async def wait(self) -> None:
        """Return once a job is due, or has been added."""
        next_s = min(self._due_s.values(), default=None)
        try:
            async with asyncio.timeout(None if next_s is None else max(0.02, next_s - self._clock())):
                await self._added.wait()
        except TimeoutError:
            pass
        self._added.clear()
