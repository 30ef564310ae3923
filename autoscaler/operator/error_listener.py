"""Tells of what goes wrong with one job at a step of EDL's own: an event, its status, a metric (`job_errors`, A11)."""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.domain import JobName
from autoscaler.error_log import ErrorLog
from autoscaler.job_errors import JobError, JobErrors
from autoscaler.operator.events import Speaker, subject_of
from autoscaler.operator.ground import Ground
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.records import Note


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
        """See `job_errors.Listener`.  Objects that are no job's count, and have nobody to be told."""
        super().failed(job, noted, error, is_news=is_news)
        self._metrics.count_error(job, noted.step, noted.again_at_s)
        raw = self._ground.raw(job) if job.count("/") == 1 else None
        if raw is None or not is_news:
            return
        self._say(subject_of(raw), Note(reason="InternalError", message=self._errors.problem(job), is_warning=True))
        self._touch(job)

    def mended(self, job: JobName) -> None:
        """See `job_errors.Listener`."""
        super().mended(job)
        self._touch(job)
