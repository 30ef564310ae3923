"""Nothing is written on a view that is known to be old (A7, `kubernetes.md` 21): kube-scheduler stays the fail-safe.

The planner asks before it plans.  This is asked once more at each write, because writes come from elsewhere too: a gang
that has waited too long for its nodes, a job that ends.  On an old view every pod looks as if it had not been bound.
"""

from __future__ import annotations

from typing import Final

from autoscaler.clusters.kubernetes.store import Store
from autoscaler.clusters.kubernetes.views import AGEING
from autoscaler.errors import TemporaryError

STALE_LIMIT_S: Final = 10.0  # as `Policy.stale_limit_s` is by default


class StaleViewError(TemporaryError):
    """What is known of the cluster is too old to act on."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=1.0)


def check_fresh(store: Store, now_s: float) -> None:
    """Raise StaleViewError unless the server has lately said how things stand."""
    heard_at_s = store.oldest_heard_at_s(AGEING)
    if heard_at_s is None:
        raise StaleViewError("not all of the cluster has been listed yet")
    if now_s - heard_at_s > STALE_LIMIT_S:
        raise StaleViewError(f"the view is {now_s - heard_at_s:.1f} s old; at most {STALE_LIMIT_S:g} s")
