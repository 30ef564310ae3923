"""Pods that the API server did not want: a quota or a bound that changed, a webhook.  Asked again after pauses.

Quotas and LimitRanges are counted before anything is asked, as far as they speak of requests.  What is refused all the
same is met here: the job's pods of that tier are not tried again with every plan, but after 10, 20, then every 40 s,
and the other tier is not held up by it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy
from autoscaler.domain import JobName, Tier

PAUSES_S: Final = (10.0, 20.0, 40.0)
"""Pauses after the first, second and each later failure in a row; a lost gang start waits likewise."""

LASTING: Final = frozenset({RefusedBy.QUOTA, RefusedBy.LIMIT_RANGE, RefusedBy.POD_SECURITY, RefusedBy.ADMISSION})
"""What stands until somebody changes something; rights that are missing are the operator's matter, not a job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CreateRefusal:
    times: int
    until_s: float
    message: str


@dataclass(slots=True)
class CreateBackoff:
    """What is remembered of refusals, by job and tier.  A new leader asks afresh."""

    _known: dict[tuple[JobName, Tier], _CreateRefusal] = field(default_factory=dict)

    def refusal(self, job: JobName, tier: Tier, now_s: float) -> str:
        """What the server said, while it is too early to ask again; else empty."""
        known = self._known.get((job, tier))
        return known.message if known is not None and now_s < known.until_s else ""

    def record(self, job: JobName, tier: Tier, error: ForbiddenError, now_s: float) -> None:
        """The server refused a pod of this tier; those that were sent beside it count as one with it."""
        known = self._known.get((job, tier))
        if error.refused_by not in LASTING or (known is not None and now_s < known.until_s):
            return
        times = 0 if known is None else known.times
        pause_s = PAUSES_S[min(times, len(PAUSES_S) - 1)]
        self._known[job, tier] = _CreateRefusal(times=times + 1, until_s=now_s + pause_s, message=str(error))

    def forget(self, job: JobName, tier: Tier) -> None:
        """It took one."""
        self._known.pop((job, tier), None)

    def retain(self, jobs: Container[JobName]) -> None:
        """Forget all other jobs."""
        for key in [key for key in self._known if key[0] not in jobs]:
            del self._known[key]
