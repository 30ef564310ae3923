"""P6: from rich to poor, as a step of its own.

A job that found no room may have a step of a richer job of its class if the gap is more than both steps (A4), or of a
job of a lower class.  Each transfer is tried and undone: the step is taken, the water-fill runs again, and the transfer
stands only if the poor job then grows and nobody else loses.  So what is planned here is what the next plan finds.
Windows, the age of the victim and the cap per minute are asked first: a transfer that must wait is no transfer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from autoscaler.domain import Bottleneck, Cause, JobName, Pod, Role
from autoscaler.planner.phases.p5_water_filling import fill_shares, note_bottlenecks
from autoscaler.planner.sharing.change_limits import changes_left, pays_off, transfers_allowed, transfers_left
from autoscaler.planner.sharing.step_down import share_below, victims_of
from autoscaler.planner.sharing.transfer_pairs import (
    Reach,
    Search,
    claims,
    givers,
    gives_from,
    how_many_richer,
    is_open,
    is_owed,
    one_of_each_kind,
    takers,
)
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.working_copy import Draft

# How far one plan looks: every pair of twenty jobs that all lack room.  On larger clusters the poorest and the richest
# come first, and what a plan that does nothing has not looked at, the next one does not either (ADR 0112).
PAIRS_LOOKED_AT: Final = 400
GIVERS_LOOKED_AT: Final = 20  # for one taker
TRIALS: Final = 8  # that come to nothing, at least; each fills shares anew, which costs by the number of jobs
JOBS_TRIED: Final = TRIALS * 1_000  # so twenty jobs try all pairs
PAIRS_WHILE_CLOSED: Final = 16  # with no move left in this minute: only to say who waits for one

Sizes = Mapping[JobName, int]
"""Of all jobs, before anything is shared out."""


def share_out(draft: Draft) -> None:
    """Write growth and transfers on the kept state (P5 and P6 together), and say what keeps each job where it is."""
    search = Search(
        allowed=transfers_allowed(draft),
        left=transfers_left(draft),
        changes=changes_left(draft),
        pairs=PAIRS_LOOKED_AT,
        trials=max(TRIALS, JOBS_TRIED // max(1, len(draft.jobs))),
    )
    kept = draft.mark()
    sizes = {name: job.size for name, job in draft.jobs.items()}
    fill_paid(draft, sizes)
    while (found := next_transfer(draft, kept, sizes, search)) is not None:
        kept = found
        search.closed.clear()
    note_bottlenecks(draft)
    for name, (bottleneck, message, until_s) in search.closed.items():
        draft.jobs[name].block(bottleneck, message, until_s=until_s)
    for name in draft.unpaid:
        message = f"what growth there is would not make good its cost within {draft.policy.payoff_s:g} s"
        draft.jobs[name].block(Bottleneck.BUDGET, message)


def fill_paid(draft: Draft, sizes: Sizes) -> None:
    """Fill shares in the present trial; whose growth beyond these sizes does not pay is left out, the others share."""
    start = draft.trial_from
    fill_shares(draft)
    while unpaid := {job.job.name for job in draft.stirred_jobs() if not is_paid(draft, job, sizes[job.job.name])}:
        draft.unpaid |= unpaid
        draft.roll_back(start)
        fill_shares(draft)


def is_paid(draft: Draft, job: JobDraft, kept: int) -> bool:
    """Whether the job does not grow beyond the kept size in this plan, or to its own good: a minimum is refilled."""
    return not job.is_running or job.size <= kept or pays_off(draft.policy, job.job, kept, job.size)


def next_transfer(draft: Draft, kept: int, sizes: Sizes, search: Search) -> int | None:
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
        (taker, how_many_richer(draft, taker, ranked))
        for taker in islice(one_of_each_kind(draft, poor), max(0, search.pairs))
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
            grown = try_transfer(draft, kept, taker, giver, victims, sizes=sizes)
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


def try_transfer(
    draft: Draft, kept: int, taker: JobDraft, giver: JobDraft, victims: list[Pod], *, sizes: Sizes
) -> set[JobName] | None:
    """Take the step from the kept state and fill anew: None if that stands, with a trial begun at the new kept state.

    If it does not stand, everything is put back and the jobs that would have grown are returned.
    """
    before, unpaid = {job.job.name: job.size for job in draft.stirred_jobs()}, set(draft.unpaid)
    filled = draft.roll_back(kept)
    draft.remove(giver, victims, Cause.TRANSFER, beneficiary=taker.job.name)
    mark = draft.mark()
    fill_paid(draft, sizes)
    after = [(job, before.get(job.job.name, job.now)) for job in draft.stirred_jobs()]
    changed = [(job, size) for job, size in after if job.size != size]
    if is_better(changed, taker, giver):
        draft.trial_from = mark
        return None
    grown = {job.job.name for job, size in changed if job.size > size}
    draft.roll_back(kept)
    draft.redo(filled)
    draft.unpaid = unpaid
    return grown


def is_better(changed: Sequence[tuple[JobDraft, int]], taker: JobDraft, giver: JobDraft) -> bool:
    """Whether the taker has grown and nobody but the giver lost; the giver may find other room for its step."""
    return any(job is taker for job, _ in changed) and all(
        job.size < size if job is giver else job.size > size for job, size in changed
    )
