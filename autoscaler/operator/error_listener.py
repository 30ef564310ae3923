"""Tells of what goes wrong with one job at a step of EDL's own: an event, its status, a metric (`job_errors`, A11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.clusters.kubernetes.building.names import split_key
from autoscaler.clusters.kubernetes.reading.raw import text
from autoscaler.domain import JobName
from autoscaler.error_log import ErrorLog
from autoscaler.job_errors import JobError, JobErrors
from autoscaler.operator.events import Speaker
from autoscaler.operator.ground import Ground
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.records import Note


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A TrainingJob that need not be one that EDL can read."""

    name: str
    namespace: str
    uid: str


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
        self._metrics.count_error(job, noted.step)
        raw = self._ground.raw(job) if job.count("/") == 1 else None
        if raw is None or not is_news:
            return
        namespace, name = split_key(job)
        subject = _Subject(name=name, namespace=namespace, uid=text(raw, "metadata", "uid"))
        self._say(subject, Note(reason="InternalError", message=self._errors.problem(job), is_warning=True))
        self._touch(job)

    def mended(self, job: JobName) -> None:
        """See `job_errors.Listener`."""
        super().mended(job)
        self._touch(job)
