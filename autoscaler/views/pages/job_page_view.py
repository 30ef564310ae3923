"""One job with what is beside it: its pods, the planner's answer, the newest lines about it, and a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.views.cluster.pod_view import PodView
from autoscaler.views.history.journal import JournalLine
from autoscaler.views.jobs.growth_words import growth_words
from autoscaler.views.jobs.job_view import JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the next plans hold for a job: why it waits for more, and until when if time alone lifts that."""

    bottleneck: str
    message: str
    target: int
    wait_s: float | None

    @property
    def growth(self) -> str:
        """When it will grow, in words."""
        return growth_words(self.bottleneck)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyView:
    """The planner's answer.  `answer`: as `edl why -o json` prints it; None and `problem` where it has none.

    `at_s`: Unix time of what it was planned from.  `is_pending`: none is known yet, and the planner is asked.
    `is_part`: what names or measures more than its viewer may read is left out.
    """

    answer: Mapping[str, Any] | None
    problem: str = ""
    outlook: Outlook | None = None
    at_s: float | None = None
    is_pending: bool = False
    is_part: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPageView:
    """`log`: the last lines of `log_pod`, for a job in trouble."""

    job: JobView
    pods: tuple[PodView, ...]
    why: WhyView | None
    lines: tuple[JournalLine, ...]
    log_pod: str
    log: tuple[str, ...]
