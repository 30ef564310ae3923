"""P6: from rich to poor, as a step of its own.

A job that found no room may have a step of a richer job of its class if the gap is more than both steps (A4), or of a
job of a lower class.  Each transfer is tried on a copy: the step is taken, the water-fill runs again, and the transfer
stands only if the poor job then grows and nobody else loses.  So what is planned here is what the next plan finds.
Windows, the age of the victim and the cap per minute are asked first: a transfer that must wait is no transfer.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from autoscaler.domain import Bottleneck, Cause, JobName, NodeName, Pod
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.share import fill_shares, share_after_step, step_of
from autoscaler.planner.windows import is_old_enough, shrink_opens_at, transfers_left

STARVED = frozenset({Bottleneck.NODE_FIT, Bottleneck.STEP})


def share_out(kept: Draft) -> Draft:
    """Return the kept state with growth and transfers on it (P5 and P6 together)."""
    filled = filled_from(kept)
    left = transfers_left(kept.view, kept.policy, kept.now_s)
    while (found := next(transfers(kept, filled, left), None)) is not None:
        kept, filled, taken = found
        left -= taken
    return filled


def filled_from(kept: Draft) -> Draft:
    """Return a copy of the kept state after the water-fill."""
    filled = kept.copy()
    fill_shares(filled)
    return filled


def transfers(kept: Draft, filled: Draft, left: int) -> Iterator[tuple[Draft, Draft, int]]:
    """Yield (kept state, filled state, trainers taken) of each transfer that stands, poorest and richest first."""
    poor = [job for job in filled.jobs.values() if job.bottleneck in STARVED]
    for taker in sorted(poor, key=lambda job: (-job.job.priority, filled.share(job), job.job.name)):
        for giver in givers(filled, taker):
            victims = victims_of(kept, filled, taker, giver)
            if not victims or not is_open(kept, taker, giver, victims, left):
                continue
            trial = kept.copy()
            trial.remove(trial.jobs[giver.job.name], victims, Cause.TRANSFER, beneficiary=taker.job.name)
            result = filled_from(trial)
            if is_better(filled, result, taker.job.name, giver.job.name):
                yield trial, result, len(victims)


def givers(filled: Draft, taker: JobDraft) -> list[JobDraft]:
    """Return the jobs that may have to give a step: lower classes first, then the largest share."""
    rich = [job for job in filled.jobs.values() if job is not taker and may_give(filled, taker, job)]
    return sorted(rich, key=lambda job: (job.job.priority, -filled.share(job), job.job.name))


def may_give(filled: Draft, taker: JobDraft, giver: JobDraft) -> bool:
    """Whether class or gap entitle the taker to a step of this job."""
    if not giver.spare or giver.job.priority > taker.job.priority:
        return False
    if giver.job.priority < taker.job.priority:
        return True
    step = giver.usage.plus(giver.job.trainer.shape.requests, times=-last_step_of(giver))
    return share_after_step(filled, taker) < filled.share(giver, usage=step)


def last_step_of(job: JobDraft) -> int:
    """Trainers that the job loses with one step down."""
    return job.size - job.job.trainer.largest_allowed(job.size - 1)


def victims_of(kept: Draft, filled: Draft, taker: JobDraft, giver: JobDraft) -> list[Pod]:
    """Return the giver's step whose leaving makes most places for the taker; empty if even that is too little.

    The giver's trainers are alike, so it is a question of how many leave each node: a small knapsack over nodes.
    """
    standing = kept.jobs[giver.job.name]
    count = len(standing.trainers) - standing.job.trainer.largest_allowed(len(standing.trainers) - 1)
    by_node: dict[NodeName, list[Pod]] = {}
    for pod in kept.takeable(standing):
        if pod.place in filled.rooms:
            by_node.setdefault(pod.place, []).append(pod)
    best: dict[int, tuple[int, list[Pod]]] = {0: (0, [])}
    for node, pods in by_node.items():
        best = with_node(best, [places_gained(filled, taker, node, pods[:number]) for number in range(count + 1)], pods)
    places = sum(places_on(filled, taker, node) for node in filled.rooms)
    gained, victims = best.get(count, (0, []))
    return victims if places + gained >= step_of(taker) else []


def with_node(
    best: dict[int, tuple[int, list[Pod]]], gains: list[int], pods: list[Pod]
) -> dict[int, tuple[int, list[Pod]]]:
    """Add one node to the knapsack: `best[n]` is the largest gain with n trainers, and which they are."""
    result = dict(best)
    for taken, (gain, victims) in best.items():
        for number in range(1, min(len(pods), len(gains) - 1 - taken) + 1):
            candidate = gain + gains[number]
            if taken + number not in result or candidate > result[taken + number][0]:
                result[taken + number] = (candidate, victims + pods[:number])
    return result


def places_gained(filled: Draft, taker: JobDraft, node: NodeName, pods: list[Pod]) -> int:
    """How many more of the taker's trainers fit on the node when these pods are gone."""
    return places_on(filled, taker, node, pods) - places_on(filled, taker, node)


def places_on(filled: Draft, taker: JobDraft, node: NodeName, without: list[Pod] | None = None) -> int:
    """How many of the taker's trainers fit on the node, with some pods gone."""
    room = filled.rooms[node]
    shape = taker.job.trainer.shape
    if not room.node.accepts(shape):
        return 0
    return shape.requests.copies_that_fit(sum((pod.requests for pod in without or ()), start=room.later))


def is_open(kept: Draft, taker: JobDraft, giver: JobDraft, victims: list[Pod], left: int) -> bool:
    """Whether windows and cap allow the transfer now; if not, the taker's bottleneck says which one."""
    opens_at_s = shrink_opens_at(kept.view, kept.policy, giver.job)
    young = [pod for pod in victims if not is_old_enough(kept.policy, pod, kept.now_s)]
    opens_at_s = max([opens_at_s, *(pod.created_at_s + kept.policy.victim_age_s for pod in young)])
    if kept.now_s < opens_at_s:
        message = f"gets a step of {giver.job.name} in {ceil(opens_at_s - kept.now_s)} s (calm time after a change)"
        taker.block(Bottleneck.COOLDOWN, message, until_s=opens_at_s)
        return False
    if len(victims) > left:
        oldest_s = min(kept.view.history.transfers_at_s, default=kept.now_s)
        opens_at_s = max(kept.now_s + 1.0, oldest_s + 60.0)
        limit = kept.policy.transfers_per_minute
        message = (
            f"gets a step of {giver.job.name} in {ceil(opens_at_s - kept.now_s)} s (at most {limit} moves a minute)"
        )
        taker.block(Bottleneck.BUDGET, message, until_s=opens_at_s)
        return False
    return True


def is_better(before: Draft, after: Draft, taker: JobName, giver: JobName) -> bool:
    """Whether the taker has grown and nobody but the giver lost; the giver may find other room for its step."""
    others = (name for name in before.jobs if name not in {taker, giver})
    return (
        after.jobs[taker].size > before.jobs[taker].size
        and after.jobs[giver].size <= before.jobs[giver].size
        and all(after.jobs[name].size >= before.jobs[name].size for name in others)
    )
