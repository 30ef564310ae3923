"""What is remembered of pods that the API server did not want, and for how long."""

import pytest

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy
from autoscaler.clusters.kubernetes.writes.create_backoff import LASTING_REFUSALS, CreateBackoff
from autoscaler.domain import Tier

QUOTA = ForbiddenError("exceeded quota: small", RefusedBy.QUOTA)


def test_pauses_grow_with_each_refusal_and_end():
    """Refusals side by side count as one with the first."""
    turned, now_s, pauses = CreateBackoff(), 0.0, []
    for _ in range(4):
        turned.record("j", Tier.SURPLUS, QUOTA, now_s)
        turned.record("j", Tier.SURPLUS, QUOTA, now_s + 1.0)
        pauses.append(next(s for s in range(100) if not turned.refusal("j", Tier.SURPLUS, now_s + s)))
        now_s += pauses[-1]
    assert pauses == [10, 20, 40, 40]


def test_tiers_and_jobs_are_apart():
    turned = CreateBackoff()
    turned.record("j", Tier.SURPLUS, QUOTA, 0.0)
    assert turned.refusal("j", Tier.SURPLUS, 1.0) == "exceeded quota: small"
    assert turned.refusal("j", Tier.CORE, 1.0) == turned.refusal("k", Tier.SURPLUS, 1.0) == ""


@pytest.mark.parametrize("refusal", [*RefusedBy])
def test_only_what_lasts_is_remembered(refusal):
    """Rights that are missing are the operator's matter: somebody may give them at any moment."""
    turned = CreateBackoff()
    turned.record("j", Tier.CORE, ForbiddenError("no", refusal), 0.0)
    assert bool(turned.refusal("j", Tier.CORE, 1.0)) is (refusal in LASTING_REFUSALS)


def test_one_that_was_taken_or_whose_job_is_gone_is_forgotten():
    turned = CreateBackoff()
    for job in ("taken", "gone", "j"):
        turned.record(job, Tier.CORE, QUOTA, 0.0)
    turned.forget("taken", Tier.CORE)
    turned.retain({"taken", "j"})
    assert [job for job in ("taken", "gone", "j") if turned.refusal(job, Tier.CORE, 1.0)] == ["j"]
