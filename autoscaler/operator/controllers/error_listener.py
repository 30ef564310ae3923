"""Event, status and metric of each fault at a step of one job (`fault_isolation`, A11)."""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.domain import JobName
from autoscaler.fault_isolation import JobError, JobErrors
from autoscaler.fault_log import ErrorLog
from autoscaler.operator.controllers.event_recorder import Speaker, subject_of
from autoscaler.operator.controllers.ground import Ground
from autoscaler.operator.controllers.job_store import Note
from autoscaler.operator.metrics import Metrics


class ErrorListener(ErrorLog):
    """Logs as well.  `say` takes events, `touch` the jobs whose status is to be made anew."""

    def __init__(
        self,
        errors: JobErrors,
        ground: Ground,
        say: Callable[[Speaker, Note], None],
        touch: Callable[[JobName], None],
        metrics: Metrics,
    ) -> None:
        self._errors = errors
        self._ground = ground
        self._say = say
        self._touch = touch
        self._metrics = metrics

    def failed(self, job: JobName, noted: JobError, error: Exception, *, is_news: bool) -> None:
        """See `fault_isolation.Listener`.  Objects that are no job's count, and have nobody to be told."""
        super().failed(job, noted, error, is_news=is_news)
        self._metrics.count_error(job, noted.step, noted.again_at_s)
        raw = self._ground.raw(job) if job.count("/") == 1 else None
        if raw is None or not is_news:
            return
        self._say(subject_of(raw), Note(reason="InternalError", message=self._errors.problem(job), is_warning=True))
        self._touch(job)

    def mended(self, job: JobName) -> None:
        """See `fault_isolation.Listener`."""
        super().mended(job)
        self._touch(job)
