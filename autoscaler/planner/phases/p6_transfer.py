"""P6: a step of a rich job goes to a poor one, voluntarily.

A job that does not fit may have a step of a richer job of its class if the gap is more than both steps (A4), or of a
job of a lower class. Each transfer is tried on the working copy: the giver's step is removed, water-filling runs
again, and the transfer is kept only if the poor job then grows and no third job loses. So the next plan confirms this
plan's decision. Windows, the victims' age and the cap per minute are checked first (`transfer_pairs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from autoscaler.domain import Bottleneck, Cause, JobName, Pod, Role
from autoscaler.planner.phases.p5_water_filling import fill_shares, record_bottlenecks
from autoscaler.planner.sharing.change_limits import changes_left, pays_off, transfers_allowed, transfers_left
from autoscaler.planner.sharing.step_down import share_below, victims_among, victims_of
from autoscaler.planner.sharing.transfer_pairs import (
    GiverReach,
    TransferSearch,
    fairness_keys,
    givers,
    gives_from,
    how_many_richer,
    is_open,
    is_owed,
    one_of_each_kind,
    pays_for_both,
    takers,
)
from autoscaler.planner.working_copy.fairness import divide_into_parts
from autoscaler.planner.working_copy.offers import Offers
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import offers_among, removal_order
from autoscaler.planner.working_copy.working_copy import WorkingCopy

# Bounds of one plan's search: all pairs of twenty jobs that lack capacity.  On larger clusters the poorest and
# richest come first; an unchanged cluster gets the same pairs again (ADR 0112).
MOST_PAIRS: Final = 400
MOST_GIVERS: Final = 20  # for one taker
TRIALS: Final = 8  # least number of failed trials; each repeats water-filling over all jobs
JOBS_TRIED: Final = TRIALS * 1_000  # so twenty jobs try all pairs
MOST_GIFTS_TRIED: Final = 32  # from a job whose trainers do no work, found among MOST_PAIRS
PAIRS_WHILE_CLOSED: Final = 16  # with no transfer left in this minute: only to report who waits for one

Sizes = Mapping[JobName, int]
"""Of all jobs, before anything is shared out."""


def share_capacity(copy: WorkingCopy) -> None:
    """Write growth and transfers on the kept state (P5 and P6 together), and record what keeps each job where it is."""
    search = TransferSearch(
        allowed=transfers_allowed(copy),
        left=transfers_left(copy),
        changes=changes_left(copy),
        pairs=MOST_PAIRS,
        trials=max(TRIALS, JOBS_TRIED // max(1, len(copy.jobs))),
    )
    divide_into_parts(copy)
    kept = copy.mark()
    sizes = {name: job.size for name, job in copy.jobs.items()}
    fill_paid(copy, sizes)
    while (given := next_idle_gift(copy, kept, sizes)) is not None:
        kept = given
    while (found := next_transfer(copy, kept, sizes, search)) is not None:
        kept = found
        search.closed.clear()
    record_bottlenecks(copy)
    for name, (bottleneck, message, until_s) in search.closed.items():
        copy.jobs[name].block(bottleneck, message, until_s=until_s)
    for name in copy.unpaid:
        message = f"its growth would not pay off within {copy.policy.payoff_s:g} s"
        copy.jobs[name].block(Bottleneck.RESIZE_COST, message)


def fill_paid(copy: WorkingCopy, sizes: Sizes) -> None:
    """Run water-filling in the present trial, and again without the jobs whose growth beyond these sizes does not
    pay.

    Growth that pays as a whole, and not by the part that has capacity now, waits until all of it has.
    """
    start = copy.trial_from
    fill_shares(copy)
    while True:
        grown = [(job, sizes[job.spec.name]) for job in copy.dirty_jobs() if job.is_running]
        unpaid = {job.spec.name for job, kept in grown if not is_paid(copy, job, kept, job.size)}
        parted = {job.spec.name for job, kept in grown if not is_paid(copy, job, kept, size_now(job))}
        if unpaid <= copy.unpaid and parted <= copy.whole:  # an empty set is: else each turn names one more
            return
        copy.unpaid |= unpaid
        copy.whole |= parted
        copy.roll_back(start)
        fill_shares(copy)


def is_paid(copy: WorkingCopy, job: PlannedJob, kept: int, target: int) -> bool:
    """True if `target` is not beyond the kept size, or growth to it pays off; a minimum is always refilled."""
    return target <= kept or pays_off(copy.policy, job.spec, kept, target)


def size_now(job: PlannedJob) -> int:
    """Return the trainers that the job has with this plan's actions: one resize, apart from those that come later."""
    return len(job.trainers) + sum(pod.role is Role.TRAINER for pod in job.created)


def next_transfer(copy: WorkingCopy, kept: int, sizes: Sizes, search: TransferSearch) -> int | None:
    """Apply the first transfer that succeeds, poorest and richest first, and return the mark of the new kept state.

    Returns None, with the copy as it was, if no transfer stands.
    """
    poor = takers(copy)
    if not poor:
        return None
    keys = fairness_keys(copy)
    ranked = sorted(
        (job.spec.priority, -keys[name], name)
        for name, job in copy.jobs.items()
        if len(job.trainers) > job.spec.trainer.min_replicas
    )
    rich = [copy.jobs[name] for _, _, name in ranked]
    if not search.left:  # only to report who waits for a transfer, which is not worth a search over the whole cluster
        search.pairs = min(search.pairs, PAIRS_WHILE_CLOSED)
    candidates = [
        (taker, how_many_richer(copy, taker, ranked))
        for taker in islice(one_of_each_kind(copy, poor), max(0, search.pairs))
    ]
    reach = GiverReach(copy, rich[: max((first for _, first in candidates), default=0)] if search.left else ())
    winners: dict[tuple[str, ...], set[JobName]] = {}  # who grew in the trials that failed, by who had left
    for taker, first in candidates:
        helpers = reach.jobs_freeing(taker.shapes[Role.TRAINER], first) if search.left else rich[:MOST_GIVERS]
        search.pairs -= 1  # looking for givers costs as much as a pair
        for giver, victims in open_transfers(copy, search, taker, helpers, keys):
            if not search.trials:
                return None
            names = tuple(pod.name for pod in victims)
            if taker.spec.name not in winners.get(names, {taker.spec.name}):
                continue
            grown = try_transfer(copy, kept, taker, giver, victims, sizes=sizes)
            if grown is None:
                search.left = max(0, search.left - len(victims))
                search.changes -= 1
                return copy.trial_from
            winners[names] = grown
            search.trials -= 1
    return None


def next_idle_gift(copy: WorkingCopy, kept: int, sizes: Sizes) -> int | None:
    """Give one step of trainers that do no work to the poorest job that can use it; return the mark of the new kept
    state, or None, with the copy as it was.

    Shares and windows do not matter: who does no work loses none.  What the others of the job lose while it is resized
    does.
    """
    idle = [job for job in copy.dirty_jobs() if job.spec.idle and job.spare and job.idle_trainers()]
    poor = list(islice(one_of_each_kind(copy, takers(copy)), MOST_PAIRS)) if idle else []
    gifts = (
        (taker, giver, victims)
        for taker, giver in islice(pairs_in_turn(poor, idle), MOST_PAIRS)
        if taker is not giver
        and pays_for_both(copy, taker, giver)
        and (victims := victims_among(copy, taker, giver, idle_offers(copy, giver)))
    )
    for taker, giver, victims in islice(gifts, MOST_GIFTS_TRIED):
        if try_transfer(copy, kept, taker, giver, victims, sizes=sizes, cause=Cause.IDLE) is None:
            return copy.trial_from
    return None


def pairs_in_turn(poor: Sequence[PlannedJob], idle: Sequence[PlannedJob]) -> Iterator[tuple[PlannedJob, PlannedJob]]:
    """Yield all pairs by the sum of their places, the poorest first, so that no job has its turn only after all pairs
    of another one."""
    for places in range(len(poor) + len(idle) - 1):
        for at in range(max(0, places - len(idle) + 1), min(places + 1, len(poor))):
            yield poor[at], idle[places - at]


def idle_offers(copy: WorkingCopy, giver: PlannedJob) -> Offers:
    """Return the trainers of the job that do no work, in removal order: core ones too, since the minimum is a count.

    A job whose working trainers are of tier surplus gets core ones in their place afterwards (ADR 0104).
    """
    idle = {pod.name for pod in giver.idle_trainers()}
    return offers_among(copy, [pod for pod in removal_order(copy, giver) if pod.name in idle])


def open_transfers(
    copy: WorkingCopy,
    search: TransferSearch,
    taker: PlannedJob,
    helpers: Sequence[PlannedJob],
    keys: Mapping[JobName, int],
) -> Iterator[tuple[PlannedJob, list[Pod]]]:
    """Yield the givers that may give the taker a step now, with the trainers that would leave."""
    owed = 0  # the most that a job has after a step down who will give only later
    for giver in islice(givers(copy, taker, helpers, keys), MOST_GIVERS):
        search.pairs -= 1
        if search.pairs < 0:
            return
        victims = [] if is_owed(copy, taker, giver, owed) else victims_of(copy, taker, giver)
        if not victims:
            continue
        if is_open(copy, search, taker, giver, victims):
            yield giver, victims
        elif not search.left:
            return
        elif giver.spec.priority == taker.spec.priority and copy.now_s < gives_from(copy, giver, victims):
            owed = max(owed, share_below(copy, giver))


def try_transfer(
    copy: WorkingCopy,
    kept: int,
    taker: PlannedJob,
    giver: PlannedJob,
    victims: list[Pod],
    *,
    sizes: Sizes,
    cause: Cause = Cause.TRANSFER,
) -> set[JobName] | None:
    """Take the step from the kept state and fill again; None on success, with a trial begun at the new state; on
    failure everything is rolled back and the jobs that would have grown are returned.
    """
    before = {job.spec.name: job.size for job in copy.dirty_jobs()}
    unpaid, whole = set(copy.unpaid), set(copy.whole)
    filled = copy.roll_back(kept)
    copy.remove(giver, victims, cause, beneficiary=taker.spec.name)
    mark = copy.mark()
    fill_paid(copy, sizes)
    after = [(job, before.get(job.spec.name, job.now)) for job in copy.dirty_jobs()]
    changed = [(job, size) for job, size in after if job.size != size]
    if is_better(changed, taker, giver):
        copy.trial_from = mark
        return None
    grown = {job.spec.name for job, size in changed if job.size > size}
    copy.roll_back(kept)
    copy.redo(filled)
    copy.unpaid, copy.whole = unpaid, whole
    return grown


def is_better(changed: Sequence[tuple[PlannedJob, int]], taker: PlannedJob, giver: PlannedJob) -> bool:
    """True if the taker has grown and no job but the giver has lost; the giver may place its step elsewhere."""
    return any(job is taker for job, _ in changed) and all(
        job.size < size if job is giver else job.size > size for job, size in changed
    )
