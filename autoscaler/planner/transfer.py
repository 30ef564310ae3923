"""P6: from rich to poor, as a step of its own.

A job that found no room may have a step of a richer job of its class if the gap is more than both steps (A4), or of a
job of a lower class.  Each transfer is tried and undone: the step is taken, the water-fill runs again, and the transfer
stands only if the poor job then grows and nobody else loses.  So what is planned here is what the next plan finds.
Windows, the age of the victim and the cap per minute are asked first: a transfer that must wait is no transfer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf
from operator import add
from typing import Final

import numpy as np

from autoscaler.domain import Bottleneck, Cause, Fairness, JobName, Pod, Role
from autoscaler.planner.draft import Draft
from autoscaler.planner.fairness import claim_of, is_entitled
from autoscaler.planner.fit import fits_an_empty_node
from autoscaler.planner.job_draft import JobDraft, Offers
from autoscaler.planner.payoff import gain_of, pays_off
from autoscaler.planner.reach import Reach
from autoscaler.planner.rooms import copies_that_fit
from autoscaler.planner.share import fill_shares, is_starved, note_bottlenecks
from autoscaler.planner.thirst import is_held_back, share_after_step, step_of, thirst
from autoscaler.planner.windows import (
    changes_left,
    is_old_enough,
    next_change_at,
    shrink_opens_at,
    transfers_allowed,
    transfers_left,
)

STARVED: Final = frozenset({Bottleneck.NODE_FIT, Bottleneck.STEP})

# How far one plan looks: every pair of twenty jobs that all lack room.  On larger clusters the poorest and the richest
# come first, and later plans look further.
PAIRS_LOOKED_AT: Final = 400
GIVERS_LOOKED_AT: Final = 20  # for one taker
TRIALS: Final = 8  # that come to nothing; each fills shares anew
PAIRS_WHILE_CLOSED: Final = 16  # with no move left in this minute: only to say who waits for one


@dataclass(slots=True)
class Search:
    """What one plan has looked at so far, and what its windows have turned away."""

    allowed: int  # trainers that may be moved in a minute
    left: int  # that may still be moved within this one
    changes: float  # jobs that may still change their size within this minute
    pairs: int = PAIRS_LOOKED_AT
    trials: int = TRIALS
    closed: dict[JobName, tuple[Bottleneck, str, float]] = field(default_factory=dict)


def share_out(draft: Draft) -> None:
    """Write growth and transfers on the kept state (P5 and P6 together), and say what keeps each job where it is."""
    search = Search(allowed=transfers_allowed(draft), left=transfers_left(draft), changes=changes_left(draft))
    kept = draft.mark()
    sizes = {name: job.size for name, job in draft.jobs.items()}
    fill_shares(draft)
    while unpaid := {job.job.name for job in draft.stirred_jobs() if not is_paid(draft, job, sizes[job.job.name])}:
        draft.unpaid |= unpaid
        draft.roll_back(kept)
        fill_shares(draft)
    while (found := next_transfer(draft, kept, search)) is not None:
        kept = found
        search.closed.clear()
    note_bottlenecks(draft)
    for name, (bottleneck, message, until_s) in search.closed.items():
        draft.jobs[name].block(bottleneck, message, until_s=until_s)
    for name in draft.unpaid:
        message = f"what growth there is would not make good its cost within {draft.policy.payoff_s:g} s"
        draft.jobs[name].block(Bottleneck.BUDGET, message)


def is_paid(draft: Draft, job: JobDraft, kept: int) -> bool:
    """Whether the job does not grow beyond the kept size in this plan, or to its own good: a minimum is refilled."""
    return not job.is_running or job.size <= kept or pays_off(draft.policy, job.job, kept, job.size)


def next_transfer(draft: Draft, kept: int, search: Search) -> int | None:
    """Carry out the first transfer that stands, poorest and richest first, and return the mark of the new kept state.

    None, with the draft as it was, if none does.
    """
    poor = takers(draft)
    if not poor:
        return None
    shares = claims(draft)
    ranked = sorted(
        (job.job.priority, -shares[name], name)
        for name, job in draft.jobs.items()
        if len(job.trainers) > job.job.trainer.min_replicas
    )
    rich = [draft.jobs[name] for _, _, name in ranked]
    if not search.left:  # only to say who waits for a move: no look over the whole cluster is worth that
        search.pairs = min(search.pairs, PAIRS_WHILE_CLOSED)
    askers = [
        (taker, how_many_richer(draft, taker, ranked)) for taker in islice(one_of_each_kind(poor), max(0, search.pairs))
    ]
    reach = Reach(draft, rich[: max((first for _, first in askers), default=0)] if search.left else ())
    winners: dict[tuple[str, ...], set[JobName]] = {}  # who grew in the trials that failed, by who had left
    for taker, first in askers:
        helpers = reach.who(taker.shapes[Role.TRAINER], first) if search.left else rich[:GIVERS_LOOKED_AT]
        search.pairs -= 1  # looking for givers costs as much as a pair
        for giver, victims in chances(draft, search, taker, helpers, shares):
            if not search.trials:
                return None
            names = tuple(pod.name for pod in victims)
            if taker.job.name not in winners.get(names, {taker.job.name}):
                continue
            grown = try_transfer(draft, kept, taker, giver, victims)
            if grown is None:
                search.left = max(0, search.left - len(victims))
                search.changes -= 1
                return draft.trial_from
            winners[names] = grown
            search.trials -= 1
    return None


def chances(
    draft: Draft, search: Search, taker: JobDraft, helpers: Sequence[JobDraft], shares: Mapping[JobName, int]
) -> Iterator[tuple[JobDraft, list[Pod]]]:
    """Yield who may give the taker a step now, and which trainers that takes."""
    owed = 0  # the most that a job has after a step down who will give only later
    for giver in islice(givers(draft, taker, helpers, shares), GIVERS_LOOKED_AT):
        search.pairs -= 1
        if search.pairs < 0:
            return
        victims = [] if is_owed(draft, taker, giver, owed) else victims_of(draft, taker, giver)
        if not victims:
            continue
        if is_open(draft, search, taker, giver, victims):
            yield giver, victims
        elif not search.left:
            return
        elif giver.job.priority == taker.job.priority and draft.now_s < gives_from(draft, giver, victims):
            owed = max(owed, share_below(draft, giver))


def how_many_richer(draft: Draft, taker: JobDraft, ranked: Sequence[tuple[int, int, str]]) -> int:
    """Return how many come before all those from whom the taker may have nothing: see `givers`."""
    if draft.policy.fairness is Fairness.JOB:
        return bisect_left(ranked, (taker.job.priority, -share_after_step(draft, taker), ""))
    return bisect_left(ranked, (taker.job.priority + 1, -inf, ""))


def claims(draft: Draft) -> Mapping[JobName, int]:
    """Return what each job has of its fair claim; between jobs that stands in its thirst already."""
    if draft.policy.fairness is Fairness.JOB:
        return {name: thirst(draft, job)[1] for name, job in draft.jobs.items()}
    return {name: claim_of(draft, job) for name, job in draft.jobs.items()}


def one_of_each_kind(takers: Sequence[JobDraft]) -> Iterator[JobDraft]:
    """Yield the first of each kind: what the poorest of a kind does not get, no other of it gets."""
    seen: set[object] = set()
    for taker in takers:
        spec, step = taker.job, step_of(taker)
        kind = (taker.shapes[Role.TRAINER], spec.trainer.per_node, step, spec.priority, spec.namespace, taker.rates)
        if kind not in seen:
            seen.add(kind)
            yield taker


def try_transfer(draft: Draft, kept: int, taker: JobDraft, giver: JobDraft, victims: list[Pod]) -> set[JobName] | None:
    """Take the step from the kept state and fill anew: None if that stands, with a trial begun at the new kept state.

    If it does not stand, everything is put back and the jobs that would have grown are returned.
    """
    before = {job.job.name: job.size for job in draft.stirred_jobs()}
    filled = draft.roll_back(kept)
    draft.remove(giver, victims, Cause.TRANSFER, beneficiary=taker.job.name)
    mark = draft.mark()
    fill_shares(draft)
    sizes = [(job, before.get(job.job.name, job.now)) for job in draft.stirred_jobs()]
    changed = [(job, size) for job, size in sizes if job.size != size]
    if is_better(changed, taker, giver):
        draft.trial_from = mark
        return None
    grown = {job.job.name for job, size in changed if job.size > size}
    draft.roll_back(kept)
    draft.redo(filled)
    return grown


def takers(draft: Draft) -> list[JobDraft]:
    """Return the jobs that lack nothing but room, in the order in which they would drink: poorest first."""
    stirred = draft.stirred
    poor = [
        job
        for shape, jobs in draft.drinkers.items()
        if fits_an_empty_node(draft, shape)
        for job in jobs
        if job.job.name not in stirred
    ]
    poor += [
        job
        for job in draft.stirred_jobs()
        if fits_an_empty_node(draft, job.shapes[Role.TRAINER]) and is_starved(draft, job)
    ]
    if draft.now_s < draft.burst_until_s:
        poor = [job for job in poor if not is_held_back(draft, job)]
    if draft.quotas is not None:
        poor = [job for job in poor if not draft.quota_lack(job, [Role.TRAINER] * step_of(job), now=False)]
    return sorted(poor, key=lambda job: thirst(draft, job))


def givers(
    draft: Draft, taker: JobDraft, helpers: Sequence[JobDraft], shares: Mapping[JobName, int]
) -> Iterator[JobDraft]:
    """Yield those of the helpers, lower classes first, then the largest share, that may have to give a step."""
    after, priority = share_after_step(draft, taker), taker.job.priority
    between_jobs = draft.policy.fairness is Fairness.JOB
    for job in helpers:
        is_lower = job.job.priority < priority
        if job.job.priority > priority or (not is_lower and between_jobs and shares[job.job.name] <= after):
            return  # in this order nobody who follows has more
        if job is taker:
            continue
        if is_lower or (after < share_below(draft, job) if between_jobs else is_poorer(draft, taker, job)):
            yield job


def share_below(draft: Draft, job: JobDraft) -> int:
    """The share that one step less would leave the job; kept until a pod of the job comes or goes."""
    present = thirst(draft, job)
    if job.share_below is None or job.share_below[0] is not present:
        job.share_below = (present, draft.share(job, more=-last_step_of(job)))
    return job.share_below[1]


def is_poorer(draft: Draft, taker: JobDraft, giver: JobDraft) -> bool:
    """Whether the taker still has less once each of the two has moved by a step."""
    return is_entitled(draft, taker, step_of(taker), giver, last_step_of(giver))


def last_step_of(job: JobDraft) -> int:
    """Trainers that the job loses with one step down."""
    return job.size - job.job.trainer.largest_allowed(job.size - 1)


def victims_of(draft: Draft, taker: JobDraft, giver: JobDraft) -> list[Pod]:
    """Return the giver's step whose leaving makes most places for the taker; empty if even that is too little.

    The giver's trainers are alike, so it is a question of how many leave each node: a small knapsack over the nodes
    where leaving helps.  Whoever is missing for a whole step is the last in line.
    """
    rooms, shape = draft.rooms, taker.shapes[Role.TRAINER]
    count = len(giver.trainers) - giver.job.trainer.largest_allowed(len(giver.trainers) - 1)
    offers = draft.offers(giver)
    offered = list(zip(offers.pods, offers.places.tolist(), offers.shapes.tolist(), strict=True))
    by_node: dict[int, list[tuple[Pod, int]]] = {at: [] for at in helpful_nodes(draft, shape, offers, count)}
    for pod, at, number in offered:
        if at in by_node and len(by_node[at]) < count:
            by_node[at].append((pod, number))
    best: dict[int, tuple[int, list[Pod]]] = {0: (0, [])}
    for at, leaving in by_node.items():
        places = places_on(draft, shape, at, [number for _, number in leaving])
        if places[-1] > 0:
            gains = [number - places[0] for number in places]
            best = with_node(best, gains + gains[-1:] * (count - len(leaving)), [pod for pod, _ in leaving])
    gained, number = max((gain, -number) for number, (gain, _) in best.items())
    if rooms.copies(shape) + gained < step_of(taker):
        return []
    victims = best[-number][1]
    chosen = {pod.name for pod in victims}
    others = [pod for pod in offers.pods if pod.name not in chosen]
    victims = victims + others[: count - len(victims)]
    return victims if len(victims) == count else []


def helpful_nodes(draft: Draft, shape: int, offers: Offers, count: int) -> list[int]:
    """Return the nodes, first offers first, where the shape may fit if `count` of the largest trainer there left."""
    rooms, places = draft.rooms, offers.places
    helps = rooms.accepted(shape)[places]
    for column, amount in enumerate(draft.shapes.amounts[shape]):
        if amount > 0:
            largest = max((rooms.asked_amounts(number)[column] for number in set(offers.shapes.tolist())), default=0)
            helps &= (rooms.later[column][places] + count * largest >= amount).astype(np.bool_)
    return list(dict.fromkeys(places[helps].tolist()))


def places_on(draft: Draft, shape: int, at: int, leaving: Sequence[int]) -> list[int]:
    """Return how many pods of the shape fit on the node once none, one, two ... of these shapes are gone."""
    amounts = draft.shapes.amounts[shape]
    room = [later for later, _, _ in draft.rooms.plain(at)]
    places = [copies_that_fit(room, amounts)]
    for number in leaving:
        room = list(map(add, room, draft.rooms.asked_amounts(number)))
        places.append(copies_that_fit(room, amounts))
    return places


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
    policy = draft.policy
    young = [pod for pod in victims if not is_old_enough(policy, pod, draft.now_s)]
    return max([shrink_opens_at(draft, giver.job), *(pod.created_at_s + policy.victim_age_s for pod in young)])


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


def is_better(changed: Sequence[tuple[JobDraft, int]], taker: JobDraft, giver: JobDraft) -> bool:
    """Whether the taker has grown and nobody but the giver lost; the giver may find other room for its step."""
    return any(job is taker for job, _ in changed) and all(
        job.size < size if job is giver else job.size > size for job, size in changed
    )
