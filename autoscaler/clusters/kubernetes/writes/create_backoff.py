"""Backoff of pod creations that the API server refused: a quota or LimitRange that changed, or a webhook.

The planner counts quotas and LimitRanges beforehand, as far as they limit requests.  After any other refusal EDL waits
10, 20, then 40 s each time before it creates a pod of that job and tier again.  The other tier is not held up.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy
from autoscaler.domain import JobName, Tier

PAUSES_S: Final = (10.0, 20.0, 40.0)
"""Pauses after the first, second and each later failure in a row; a lost gang start waits likewise."""

LASTING_REFUSALS: Final = frozenset(
    {RefusedBy.QUOTA, RefusedBy.LIMIT_RANGE, RefusedBy.POD_SECURITY, RefusedBy.ADMISSION}
)
"""Refusals that last until somebody changes something.  Missing rights (RBAC) concern the operator, not a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CreateRefusal:
    times: int
    until_s: float
    message: str


@dataclass(slots=True)
class CreateBackoff:
    """Refusals by job and tier.  A new leader starts without any."""

    _known: dict[tuple[JobName, Tier], _CreateRefusal] = field(default_factory=dict)

    def refusal(self, job: JobName, tier: Tier, now_s: float) -> str:
        """Return the server's message while the pause lasts; else an empty text."""
        known = self._known.get((job, tier))
        return known.message if known is not None and now_s < known.until_s else ""

    def record(self, job: JobName, tier: Tier, error: ForbiddenError, now_s: float) -> None:
        """Record that the server refused a pod of this tier; refusals within one pause count once."""
        known = self._known.get((job, tier))
        if error.refused_by not in LASTING_REFUSALS or (known is not None and now_s < known.until_s):
            return
        times = 0 if known is None else known.times
        pause_s = PAUSES_S[min(times, len(PAUSES_S) - 1)]
        self._known[job, tier] = _CreateRefusal(times=times + 1, until_s=now_s + pause_s, message=str(error))

    def forget(self, job: JobName, tier: Tier) -> None:
        """Clear the refusals: the server accepted a pod."""
        self._known.pop((job, tier), None)

    def retain(self, jobs: Container[JobName]) -> None:
        """Forget the refusals of all other jobs."""
        for key in [key for key in self._known if key[0] not in jobs]:
            del self._known[key]
