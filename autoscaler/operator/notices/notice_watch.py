"""The watch for occasions of notices: every few seconds it looks at all jobs, and offers what is due to the webhook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from autoscaler.clusters.kubernetes.objects.fields import Raw, key_of
from autoscaler.domain import JobName
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.operator.notices.due_notices import NoticeHistory, NoticeRule, Occasion, plan_notices
from autoscaler.operator.notices.occasions import occasions_of_job

LOOK_EVERY_S: Final = 5.0


class NoticeSink(Protocol):
    """Sender of notices: `webhook`."""

    async def run(self) -> None:
        """Send until cancelled."""
        ...

    def offer(self, notice: Occasion) -> bool:
        """Take a notice to be sent; False: it is dropped."""
        ...


class NoticeWatch:
    """Looks while an operator leads.  `jobs`: TrainingJobs as last seen; `others`: occasions beside theirs."""

    def __init__(
        self,
        sink: NoticeSink,
        rule: NoticeRule,
        *,
        jobs: Callable[[], Iterable[Raw]],
        others: Callable[[], Iterable[Occasion]],
        errors: JobErrors,
        wall_s: Callable[[], float],
    ) -> None:
        self._sink, self._rule, self._wall_s = sink, rule, wall_s
        self._jobs, self._others, self._errors = jobs, others, errors
        self._history = NoticeHistory()

    async def run(self) -> None:
        """Look, and send, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sink.run(), name="webhook")
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
        for notice in plan.notices:
            self._sink.offer(notice)
