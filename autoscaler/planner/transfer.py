"""P6: from rich to poor, as a step of its own.

A job that found no room may have a step of a richer job of its class if the gap is more than both steps (A4), or of a
job of a lower class.  Each transfer is tried and undone: the step is taken, the water-fill runs again, and the transfer
stands only if the poor job then grows and nobody else loses.  So what is planned here is what the next plan finds.
Windows, the age of the victim and the cap per minute are asked first: a transfer that must wait is no transfer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from autoscaler.domain import Bottleneck, Cause, JobName, Pod, Role
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.rooms import copies_that_fit
from autoscaler.planner.share import fill_shares, is_starved, note_bottlenecks, share_after_step, step_of
from autoscaler.planner.windows import is_old_enough, shrink_opens_at, transfers_left

STARVED: Final = frozenset({Bottleneck.NODE_FIT, Bottleneck.STEP})

# Pairs of a poor and a rich job looked at in one plan: all of them for twenty jobs that all lack room.  On larger
# clusters the poorest and the richest come first, and later plans look further.
PAIRS_LOOKED_AT: Final = 400


@dataclass(slots=True)
class Search:
    """What one plan has looked at so far, and what its windows have turned away."""

    left: int  # trainers that may still be moved within this minute
    pairs: int = PAIRS_LOOKED_AT
    closed: dict[JobName, tuple[Bottleneck, str, float]] = field(default_factory=dict)


def share_out(draft: Draft) -> None:
    """Write growth and transfers on the kept state (P5 and P6 together), and say what keeps each job where it is."""
    search = Search(left=transfers_left(draft))
    kept = draft.mark()
    fill_shares(draft)
    while (found := next_transfer(draft, kept, search)) is not None:
        kept = found
        search.closed.clear()
    note_bottlenecks(draft)
    for name, (bottleneck, message, until_s) in search.closed.items():
        draft.jobs[name].block(bottleneck, message, until_s=until_s)


def next_transfer(draft: Draft, kept: int, search: Search) -> int | None:
    """Carry out the first transfer that stands, poorest and richest first, and return the mark of the new kept state.

    None, with the draft as it was, if none does.
    """
    fruitless: set[object] = set()  # kinds of takers for whom nobody's step makes room
    for taker in takers(draft):
        kind = (taker.shapes[Role.TRAINER], step_of(taker), taker.job.priority, taker.rates)
        if kind in fruitless:
            continue
        has_victims = False
        for giver in givers(draft, taker):
            if search.pairs <= 0:
                return None
            search.pairs -= 1
            victims = victims_of(draft, taker, giver)
            has_victims |= bool(victims)
            if victims and is_open(draft, search, taker, giver, victims):
                stands = try_transfer(draft, kept, taker, giver, victims)
                if stands is not None:
                    search.left -= len(victims)
                    return stands
        if not has_victims:
            fruitless.add(kind)
    return None


def try_transfer(draft: Draft, kept: int, taker: JobDraft, giver: JobDraft, victims: list[Pod]) -> int | None:
    """Take the step from the kept state and fill anew; if it does not stand, put everything back."""
    before = {name: job.size for name, job in draft.jobs.items()}
    filled = draft.roll_back(kept)
    draft.remove(giver, victims, Cause.TRANSFER, beneficiary=taker.job.name)
    mark = draft.mark()
    fill_shares(draft)
    if is_better(before, draft, taker.job.name, giver.job.name):
        return mark
    draft.roll_back(kept)
    draft.redo(filled)
    return None


def takers(draft: Draft) -> list[JobDraft]:
    """Return the jobs that lack nothing but room, poorest first."""
    poor = [job for job in draft.jobs.values() if is_starved(draft, job)]
    return sorted(poor, key=lambda job: (-job.job.priority, draft.share(job), job.job.name))


def givers(draft: Draft, taker: JobDraft) -> Iterator[JobDraft]:
    """Yield the jobs that may have to give a step: lower classes first, then the largest share."""
    after = share_after_step(draft, taker)
    shares = {
        job.job.name: share
        for job in draft.jobs.values()
        if job.spare
        and job is not taker
        and job.job.priority <= taker.job.priority
        and ((share := draft.share(job)) > after or job.job.priority < taker.job.priority)
    }
    rich = (draft.jobs[name] for name in shares)
    for job in sorted(rich, key=lambda job: (job.job.priority, -shares[job.job.name], job.job.name)):
        if job.job.priority < taker.job.priority or after < draft.share(job, more=-last_step_of(job)):
            yield job


def last_step_of(job: JobDraft) -> int:
    """Trainers that the job loses with one step down."""
    return job.size - job.job.trainer.largest_allowed(job.size - 1)


def victims_of(draft: Draft, taker: JobDraft, giver: JobDraft) -> list[Pod]:
    """Return the giver's step whose leaving makes most places for the taker; empty if even that is too little.

    The giver's trainers are alike, so it is a question of how many leave each node: a small knapsack over nodes.
    """
    rooms, shape = draft.rooms, taker.shapes[Role.TRAINER]
    count = len(giver.trainers) - giver.job.trainer.largest_allowed(len(giver.trainers) - 1)
    by_node: dict[int, list[Pod]] = {}
    for at, _, pods in draft.offers(giver):
        by_node.setdefault(at, []).extend(pods)
    best: dict[int, tuple[int, list[Pod]]] = {0: (0, [])}
    accepted = rooms.accepted(shape)
    for at, here in by_node.items():
        gains = [0] * (count + 1)
        if accepted[at]:
            gains = gains_on(draft, shape, at, here[:count])
            gains += [gains[-1]] * (count + 1 - len(gains))
        best = with_node(best, gains, here)
    gained, victims = best.get(count, (0, []))
    return victims if rooms.copies(shape) + gained >= step_of(taker) else []


def gains_on(draft: Draft, shape: int, at: int, pods: list[Pod]) -> list[int]:
    """Return how many more pods of the shape fit on the node once none, one, two ... of these are gone."""
    amounts = draft.shapes.amounts[shape]
    room = draft.rooms.later[:, at].tolist()
    places = [copies_that_fit(room, amounts)]
    for pod in pods:
        asked = draft.rooms.asked_amounts(draft.shapes.number(pod.shape))
        room = [offered + more for offered, more in zip(room, asked, strict=True)]
        places.append(copies_that_fit(room, amounts))
    return [count - places[0] for count in places]


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


def is_open(draft: Draft, search: Search, taker: JobDraft, giver: JobDraft, victims: list[Pod]) -> bool:
    """Whether windows and cap allow the transfer now; if not, the taker's bottleneck says which one."""
    policy, now_s = draft.policy, draft.now_s
    opens_at_s = shrink_opens_at(draft, giver.job)
    young = [pod for pod in victims if not is_old_enough(policy, pod, now_s)]
    opens_at_s = max([opens_at_s, *(pod.created_at_s + policy.victim_age_s for pod in young)])
    step = f"gets a step of {giver.job.name} in"
    if now_s < opens_at_s:
        message = f"{step} {ceil(opens_at_s - now_s)} s (calm time after a change)"
        search.closed[taker.job.name] = (Bottleneck.COOLDOWN, message, opens_at_s)
        return False
    if len(victims) > search.left:
        oldest_s = min(draft.history.transfers_at_s, default=now_s)
        opens_at_s = max(now_s + 1.0, oldest_s + 60.0)
        message = f"{step} {ceil(opens_at_s - now_s)} s (at most {policy.transfers_per_minute} moves a minute)"
        search.closed[taker.job.name] = (Bottleneck.BUDGET, message, opens_at_s)
        return False
    return True


def is_better(before: dict[JobName, int], draft: Draft, taker: JobName, giver: JobName) -> bool:
    """Whether the taker has grown and nobody but the giver lost; the giver may find other room for its step."""
    after = {name: job.size for name, job in draft.jobs.items()}
    return (
        after[taker] > before[taker]
        and after[giver] <= before[giver]
        and all(after[name] >= size for name, size in before.items() if name not in {taker, giver})
    )
