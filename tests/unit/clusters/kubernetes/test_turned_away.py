"""What is remembered of pods that the API server did not want, and for how long."""

import pytest

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, Refusal
from autoscaler.clusters.kubernetes.writes.create_backoff import LASTING, TurnedAway
from autoscaler.domain import Tier

QUOTA = ForbiddenError("exceeded quota: small", Refusal.QUOTA)


def test_pauses_grow_with_each_refusal_and_end():
    """Refusals side by side count as one with the first."""
    turned, now_s, pauses = TurnedAway(), 0.0, []
    for _ in range(4):
        turned.note("j", Tier.SURPLUS, QUOTA, now_s)
        turned.note("j", Tier.SURPLUS, QUOTA, now_s + 1.0)
        pauses.append(next(s for s in range(100) if not turned.why("j", Tier.SURPLUS, now_s + s)))
        now_s += pauses[-1]
    assert pauses == [10, 20, 40, 40]


def test_tiers_and_jobs_are_apart():
    turned = TurnedAway()
    turned.note("j", Tier.SURPLUS, QUOTA, 0.0)
    assert turned.why("j", Tier.SURPLUS, 1.0) == "exceeded quota: small"
    assert turned.why("j", Tier.CORE, 1.0) == turned.why("k", Tier.SURPLUS, 1.0) == ""


@pytest.mark.parametrize("refusal", [*Refusal])
def test_only_what_lasts_is_remembered(refusal):
    """Rights that are missing are the operator's matter: somebody may give them at any moment."""
    turned = TurnedAway()
    turned.note("j", Tier.CORE, ForbiddenError("no", refusal), 0.0)
    assert bool(turned.why("j", Tier.CORE, 1.0)) is (refusal in LASTING)


def test_one_that_was_taken_or_whose_job_is_gone_is_forgotten():
    turned = TurnedAway()
    for job in ("taken", "gone", "j"):
        turned.note(job, Tier.CORE, QUOTA, 0.0)
    turned.forget("taken", Tier.CORE)
    turned.keep({"taken", "j"})
    assert [job for job in ("taken", "gone", "j") if turned.why(job, Tier.CORE, 1.0)] == ["j"]
