"""What would give a job more, on pages that are only looked at: answers of the planner that nobody waits for.

The problem: in a large cluster an answer takes seconds of a core, and pages of many jobs are open at once.  So one
question is under way at a time, never beside another one to the planner, and all of them together take a small share of
the time; the page shows the newest answer, with its time, or that it is being asked.  All viewers share an answer, and
each is shown what they may read of it (`readable_why`; ADR 0277).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from autoscaler.errors import AutoscalerError
from autoscaler.page.content.planner_questions import PlannerQuestions
from autoscaler.views.jobs.job_view import JobView
from autoscaler.views.pages.job_page_view import WhyView

KEPT_S: Final = 30.0
"""After this long the job is asked for again while somebody looks."""

FORGOTTEN_S: Final = 300.0
"""An older answer is not shown."""

MOST_KEPT: Final = 256
"""Jobs with an answer, and jobs that wait for one."""

SHARE: Final = 0.2
"""Of the time, at most, that is spent on such answers, the reading of the cluster included."""

PATIENCE_S: Final = 0.2
"""A page waits so long for an answer that it has asked for: in a small cluster it is there by then."""


log = logging.getLogger(__name__)


class JobAnswers:
    """Answers for all viewers of one place.  `clock` runs evenly, in seconds."""

    def __init__(self, questions: PlannerQuestions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._questions = questions
        self._clock = clock
        self._kept: dict[str, tuple[float, WhyView]] = {}  # the oldest first
        self._wanted: dict[str, JobView] = {}
        self._task: asyncio.Task[None] | None = None
        self._rests_until_s = float("-inf")

    async def why(self, job: JobView) -> WhyView:
        """Return the newest answer that is known, which is pending at first; ask for a newer one where it is due."""
        if self._is_due(job) and (job.key in self._wanted or len(self._wanted) < MOST_KEPT):
            self._wanted[job.key] = job
            self._begin()
            if self._task is not None:
                await asyncio.wait((self._task,), timeout=PATIENCE_S)
        at_s, found = self._kept.get(job.key, (float("-inf"), WhyView(answer=None, is_pending=True)))
        return found if self._clock() - at_s < FORGOTTEN_S else WhyView(answer=None, is_pending=True)

    async def close(self) -> None:
        """Cancel the question that is under way."""
        self._wanted.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _is_due(self, job: JobView) -> bool:
        at_s, _ = self._kept.get(job.key, (float("-inf"), None))
        return self._clock() - at_s >= KEPT_S

    def _begin(self) -> None:
        """Ask for the job that waits longest, unless it is not time, or the planner is busy."""
        if self._task is None and not self._questions.is_busy and self._clock() >= self._rests_until_s:
            job = self._wanted.pop(next(iter(self._wanted)))
            self._task = asyncio.create_task(self._ask(job), name="page job answer")
            self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("a job cannot be explained", exc_info=fault)

    async def _ask(self, job: JobView) -> None:
        began_s = self._clock()
        try:
            found = await self._questions.explain(job)
        except AutoscalerError as error:
            found = WhyView(answer=None, problem=str(error))
        except web.HTTPServiceUnavailable:  # others ask more than is answered: later
            return
        finally:
            self._rests_until_s = self._clock() + (self._clock() - began_s) * (1 / SHARE - 1)
        self._kept.pop(job.key, None)
        self._kept[job.key] = (self._clock(), found)
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
