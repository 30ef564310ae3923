"""When each job's master is asked how far it is: in its own time, and never behind those that are silent.

Who answered is asked again soon; who did not, later and later, in a line of its own.  Many may fall silent together,
where a part of the network is lost: each of them stands in the line of those that answer once more, so that is wide.

A master may be any program of its job's owner, and to read a long answer takes seconds of a core.  So an answer that
was dear to read is followed by a rest, and what one job costs is in proportion to the pods that it has (A11).

Not here: the question (`asking`), what follows from the answer (`jobs`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import JobName
from autoscaler.fault_isolation import JobErrors, Step

TICK_S: Final = 0.5
ASK_EVERY_S: Final = 2.0
LONGEST_ASK_PAUSE_S: Final = 16.0  # of a master that does not answer
ASKED_AT_ONCE: Final = 64  # masters that answered when they were asked last: many may fall silent together
KNOCKED_AT_ONCE: Final = 48  # the others, in a line of their own: two hundred silent ones keep nobody else waiting
ASK_LIMIT_S: Final = 5.0  # of the whole question: up to three masters, a second each, and the job's Secrets

READING_SHARE: Final = 1 / 200
"""Of a core, for the answers of one job: twice that for one of `PODS_A_SHARE` pods, and so on."""

PODS_A_SHARE: Final = 25

log = logging.getLogger(__name__)


class Rounds:
    """`ask` is the question, True when it was answered; `jobs`: those whose masters may have something to say now.

    `hang_up` closes the connections to the masters of a job that is gone; `rest_s`: how long its masters are left alone
    at the least once one has answered.
    """

    def __init__(
        self,
        *,
        ask: Callable[[KubeJob], Awaitable[bool]],
        hang_up: Callable[[KubeJob], Awaitable[object]],
        jobs: Callable[[], Iterable[KubeJob]],
        rest_s: Callable[[KubeJob], float],
        clock: Callable[[], float],
        errors: JobErrors,
    ) -> None:
        self._ask = ask
        self._hang_up = hang_up
        self._jobs = jobs
        self._rest_s = rest_s
        self._clock = clock
        self._errors = errors
        self._next: dict[JobName, tuple[float, float]] = {}  # when, and the pause after that
        self._turn = asyncio.Semaphore(ASKED_AT_ONCE)
        self._knock = asyncio.Semaphore(KNOCKED_AT_ONCE)
        self._being_asked: set[JobName] = set()  # or waiting for its turn
        self._gone: list[KubeJob] = []  # whose masters are still to be hung up on

    def forget(self, job: KubeJob) -> None:
        """The job is gone: its masters are hung up on once nobody waits for their answer."""
        self._next.pop(job.key, None)
        self._gone.append(job)

    async def run(self) -> None:
        """Ask until cancelled.  What goes wrong with one job's question is that job's (`fault_isolation`)."""
        async with asyncio.TaskGroup() as asking:
            while True:
                now_s = self._clock()
                for job in self._jobs():
                    is_due = now_s >= self._next.get(job.key, (0.0, 0.0))[0]
                    if is_due and job.key not in self._being_asked and not self._errors.is_paused(job.key, Step.ASK):
                        self._being_asked.add(job.key)
                        work = self._errors.take(job.key, Step.ASK, partial(self._ask_in_turn, job))
                        asking.create_task(work).add_done_callback(partial(_discard, self._being_asked, job.key))
                for job in [job for job in self._gone if job.key not in self._being_asked]:
                    self._gone.remove(job)
                    with self._errors.around(job.key, Step.HANG_UP):
                        await self._hang_up(job)
                await asyncio.sleep(TICK_S)

    async def _ask_in_turn(self, job: KubeJob) -> None:
        is_answered = False
        _, pause_s = self._next.get(job.key, (0.0, 0.0))
        line = self._turn if pause_s == ASK_EVERY_S else self._knock  # the shortest pause: it answered when asked last
        try:
            async with line, asyncio.timeout(ASK_LIMIT_S):
                is_answered = await self._ask(job)
        except TimeoutError:
            log.debug("job %s: no answer within %g s", job.key, ASK_LIMIT_S)
        pause_s = ASK_EVERY_S if is_answered else min(2 * max(pause_s, ASK_EVERY_S), LONGEST_ASK_PAUSE_S)
        if all(gone.uid != job.uid for gone in self._gone):
            self._next[job.key] = (self._clock() + max(pause_s, self._rest_s(job)), pause_s)


def rest_after(reading_s: float, *, pods: int) -> float:
    """How long a master is left alone whose answer took so many seconds of a core; its job has so many pods."""
    return reading_s / (READING_SHARE * (1 + pods / PODS_A_SHARE))


def _discard(being_asked: set[JobName], job: JobName, _task: asyncio.Task[None]) -> None:
    being_asked.discard(job)
