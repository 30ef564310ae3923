"""The log of faults at steps of single jobs (`fault_isolation`): job, step, and the traceback of what is new."""

from __future__ import annotations

import logging
import traceback
from typing import Final

from autoscaler.domain import JobName
from autoscaler.fault_isolation import JobError

LONGEST_STORY: Final = 8_000  # characters of a traceback: its end, which says most

log = logging.getLogger(__name__)


class FaultLog:
    """`fault_isolation.FaultListener`.  However often a step is tried again, each new error logs its traceback once."""

    def failed(self, job: JobName, noted: JobError, error: Exception, *, is_news: bool) -> None:
        """See `fault_isolation.FaultListener`."""
        story = f"\n{''.join(traceback.format_exception(error))[-LONGEST_STORY:]}" if is_news else ""
        log.error("job %s: %s failed, %s; tried again after a pause%s", job, noted.step, noted.problem, story)

    def mended(self, job: JobName) -> None:
        """See `fault_isolation.FaultListener`."""
        log.info("job %s: what had failed goes on", job)
