"""Whether a transfer may happen now: windows of the giver, age of its trainers, caps per minute, cost against gain.

What is turned away is noted with the instant at which it may happen: that is what the job waits for.  Who could give to
whom is `pairing`, which trainers that takes `step_down`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from autoscaler.domain import Bottleneck, Fairness, JobName, Pod
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.payoff import gain_of
from autoscaler.planner.thirst import step_of
from autoscaler.planner.windows import leaves_at, next_change_at, shrink_opens_at


@dataclass(slots=True)
class Search:
    """What one plan has looked at so far, and what its windows have turned away."""

    allowed: int  # trainers that may be moved in a minute
    left: int  # that may still be moved within this one
    changes: float  # jobs that may still change their size within this minute
    pairs: int  # of a taker and a giver, that may still be looked at
    trials: int  # that may still come to nothing
    closed: dict[JobName, tuple[Bottleneck, str, float]] = field(default_factory=dict)


def is_open(draft: Draft, search: Search, taker: JobDraft, giver: JobDraft, victims: list[Pod]) -> bool:
    """Whether windows and cap allow the transfer now; if not, the taker's bottleneck says which one.

    A step of more trainers than may move in a minute is a minute's only one: steps of powers of two would never move.
    """
    policy, now_s = draft.policy, draft.now_s
    opens_at_s = gives_from(draft, giver, victims)
    step = f"gets a step of {giver.job.name} in"
    if now_s < opens_at_s:
        message = f"{step} {ceil(opens_at_s - now_s)} s (calm time after a change)"
        search.closed[taker.job.name] = (Bottleneck.COOLDOWN, message, opens_at_s)
        return False
    if search.changes < 1:
        opens_at_s = next_change_at(draft)
        message = f"{step} {ceil(opens_at_s - now_s)} s (at most {policy.resizes_per_minute} resizes a minute)"
        search.closed[taker.job.name] = (Bottleneck.BUDGET, message, opens_at_s)
        return False
    if not is_worth_it(draft, taker, giver):
        return False
    if len(victims) > search.left and (search.left < search.allowed or not search.allowed):
        oldest_s = min(draft.history.transfers_at_s, default=now_s)
        opens_at_s = max(now_s + 1.0, oldest_s + 60.0)
        message = f"{step} {ceil(opens_at_s - now_s)} s (at most {search.allowed} moves a minute)"
        search.closed[taker.job.name] = (Bottleneck.BUDGET, message, opens_at_s)
        return False
    return True


def gives_from(draft: Draft, giver: JobDraft, victims: list[Pod]) -> float:
    """When the windows allow the giver its step down."""
    return max([shrink_opens_at(draft, giver.job), *(leaves_at(draft.policy, giver.job, pod) for pod in victims)])


def is_owed(draft: Draft, taker: JobDraft, giver: JobDraft, owed: int) -> bool:
    """Whether the giver, a step down, would be entitled to a step of a richer job that will give only later.

    Then the richer one is waited for: what such a giver gave would be moved twice.
    """
    is_between_jobs = draft.policy.fairness is Fairness.JOB and giver.job.priority == taker.job.priority
    return is_between_jobs and draft.share(giver) < owed


def is_worth_it(draft: Draft, taker: JobDraft, giver: JobDraft) -> bool:
    """Whether the taker's step makes good what it costs both jobs to change their size."""
    policy, size = draft.policy, taker.size
    lost = giver.size * giver.job.resize_cost_s
    return not policy.payoff_s or gain_of(policy, taker.job, size, size + step_of(taker)) > lost
