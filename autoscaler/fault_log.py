"""Log of isolated faults (`fault_isolation`): the job, the task that failed, and the traceback of each new error."""

from __future__ import annotations

import logging
import traceback
from typing import Final

from autoscaler.domain import JobName
from autoscaler.fault_isolation import JobError

LONGEST_TRACEBACK: Final = 8_000  # characters of a traceback: its end, which says most

log = logging.getLogger(__name__)


class FaultLog:
    """Fault listener that logs the traceback of a new error once, however often its task is tried again."""

    def handle_failure(self, job: JobName, failure: JobError, error: Exception, *, has_changed: bool) -> None:
        """See `fault_isolation.FaultListener`."""
        traceback_text = f"\n{''.join(traceback.format_exception(error))[-LONGEST_TRACEBACK:]}" if has_changed else ""
        log.error(
            "job %s: task %s failed (%s); it is retried after a pause%s",
            job,
            failure.task,
            failure.problem,
            traceback_text,
        )

    def handle_recovery(self, job: JobName) -> None:
        """See `fault_isolation.FaultListener`."""
        log.info("job %s: all tasks succeed again", job)
