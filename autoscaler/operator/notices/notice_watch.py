"""The watch for occasions of notices: every few seconds it looks at all jobs, and tells what is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from autoscaler.clusters.kubernetes.objects.fields import Raw, key_of
from autoscaler.domain import JobName
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.operator.notices.due_notices import NoticeHistory, NoticeRule, Occasion, plan_notices
from autoscaler.operator.notices.occasions import occasions_of_job

LOOK_EVERY_S: Final = 5.0

log = logging.getLogger(__name__)


class NoticeSink(Protocol):
    """Sender of notices to one channel: `notice_queue`.  `dropped` counts notices that its channel will not get."""

    dropped: int

    async def run(self) -> None:
        """Send until cancelled."""
        ...

    def offer(self, notice: Occasion) -> bool:
        """Take a notice to be sent; False: it is dropped."""
        ...


class NoticeWatch:
    """Looks while an operator leads.  `jobs`: TrainingJobs as last seen; `others`: occasions beside theirs.

    `held_back`: how many notices were due at the last look and wait for their turn.
    """

    def __init__(
        self,
        sinks: Sequence[NoticeSink],
        rule: NoticeRule,
        *,
        jobs: Callable[[], Iterable[Raw]],
        others: Callable[[], Iterable[Occasion]],
        errors: JobErrors,
        wall_s: Callable[[], float],
    ) -> None:
        self._sinks, self._rule, self._wall_s = tuple(sinks), rule, wall_s
        self._jobs, self._others, self._errors = jobs, others, errors
        self._history = NoticeHistory()
        self._expired = 0
        self.held_back = 0

    @property
    def lost(self) -> int:
        """How many notices a channel will not get, each channel counted for itself.

        It did not take them, or they were held back until they were no news.
        """
        return sum(sink.dropped for sink in self._sinks) + self._expired * len(self._sinks)

    async def run(self) -> None:
        """Look, and send, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for sink in self._sinks:
                tasks.create_task(sink.run(), name="notices to a channel")
            while True:
                self.look()
                await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Offer what is due now.  A job that cannot be read stops no other's notice (A11)."""
        occasions = list(self._others())
        for raw in self._jobs():
            with self._errors.isolate(JobName(key_of(raw)), GuardedTask.EVENT):
                occasions += occasions_of_job(raw, self._rule)
        plan = plan_notices(self._history, occasions, self._rule, self._wall_s())
        self._history = plan.history
        if plan.held_back and not self.held_back:
            log.warning("notices held back, because the limit lets no more go: %d", plan.held_back)
        self.held_back = plan.held_back
        for one in plan.lost:
            self._expired += 1
            log.warning(
                "notice %s of %s/%s is lost: it was held back until it was no news",
                one.kind.value,
                one.namespace,
                one.name,
            )
        for notice in plan.notices:
            for sink in self._sinks:
                sink.offer(notice)
