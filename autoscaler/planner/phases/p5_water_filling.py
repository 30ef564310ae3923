"""P5: free capacity is shared out by water-filling.

Repeatedly, the job with the lowest weighted dominant share takes its next step; ties go to the larger next share,
then to the name. For one resource and equal replicas this greedy is exactly leximin, and only with that tie rule.
Higher priorities are served first. A job whose next step does not fit is done. This phase only grows jobs; P6 takes
from rich ones, and only then is each job's bottleneck recorded (`record_bottlenecks`).
"""

from __future__ import annotations

from typing import Final

from autoscaler.domain import Bottleneck, Cause, Role
from autoscaler.planner.formatting import counted, describe_shape
from autoscaler.planner.placement.colocation import Bundle, bundles_of, nodes_for, unit_shape
from autoscaler.planner.placement.node_choice import least_waste
from autoscaler.planner.sharing.efficiency import block_by_efficiency
from autoscaler.planner.sharing.elastic_servers import awaits_servers, place_servers, servers_missing
from autoscaler.planner.sharing.growth_queue import GrowthQueue, is_held_back, may_grow, step_of
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

TRAINER: Final = (Role.TRAINER,)


def fill_shares(copy: WorkingCopy, *, above_priority: int | None = None) -> None:
    """Grow jobs until none can take its next step; with `above_priority` only those of higher classes.

    Free capacity only shrinks here, so a job that does not fit once does not fit until the end and costs nothing
    more.
    """
    capacity = copy.capacity
    dirty: dict[int, list[PlannedJob]] = {}
    for name in copy.dirty:
        dirty.setdefault(copy.jobs[name].shapes[Role.TRAINER], []).append(copy.jobs[name])
    fitting_shapes = capacity.fit_somewhere(copy.growable.keys() | dirty.keys())  # shapes that fit somewhere
    queue = GrowthQueue(copy, above_priority)
    for shape in fitting_shapes:
        queue.add(shape, dirty.get(shape, ()))
    while fitting_shapes and (job := queue.first(fitting_shapes)) is not None:
        if capacity.tightest(job.shapes[Role.TRAINER], now=False) < 0:
            fitting_shapes = capacity.fit_somewhere(fitting_shapes)
        else:
            has_grown = take_step(copy, job)
            queue.advance(can_still_grow=has_grown and step_of(job) > 0 and not is_held_back(copy, job))


def take_step(copy: WorkingCopy, job: PlannedJob) -> bool:
    """Place the trainers of the next size; return False, with nothing changed, if they do not all fit."""
    count, size = step_of(job), job.size
    needs_servers = servers_missing(copy, job, size + count) > 0
    if count == 1 and job.spec.trainer.per_node == 1 and not needs_servers:
        return place_one(copy, job)
    mark = copy.mark()
    has_servers = not needs_servers or place_servers(copy, job, size + count, Cause.FREE_CAPACITY)
    if has_servers and grow(copy, job, count) == count:
        return True
    copy.roll_back(mark)
    return False


def grow(copy: WorkingCopy, job: PlannedJob, count: int) -> int:
    """Place up to `count` trainers, in bundles if the job has `perNode`; return the number placed."""
    placed = 0
    if job.spec.trainer.per_node == 1:
        while placed < count and place_one(copy, job):
            placed += 1
        return placed
    for bundle in bundles_of(copy, job, [Role.TRAINER] * count):
        if not place_unit(copy, job, bundle):
            break
        placed += bundle.copies
    return placed


def place_one(copy: WorkingCopy, job: PlannedJob) -> bool:
    """Create a trainer in free capacity, else reserve capacity that is being vacated; return False if there is
    neither."""
    if copy.quotas.find_problem(job, TRAINER, now=False):
        return False
    shape, names = job.shapes[Role.TRAINER], copy.capacity.names
    tier = job.next_trainer_tier()
    must_wait = awaits_others(copy, job, job.size + 1) or copy.quotas.find_problem(job, TRAINER, now=True)
    at = None if must_wait else least_waste(copy, shape, now=True)
    if at is not None:
        copy.create(job, Role.TRAINER, tier, names[at], Cause.FREE_CAPACITY)
    elif (at := least_waste(copy, shape, now=False)) is not None:
        copy.reserve(job, Role.TRAINER, tier, names[at])
    return at is not None


def awaits_others(copy: WorkingCopy, job: PlannedJob, trainers: int) -> bool:
    """True if new trainers come later even where they fit now: with others of the job, or after a server."""
    return job.spec.name in copy.whole or awaits_servers(copy, job, trainers)


def place_unit(copy: WorkingCopy, job: PlannedJob, bundle: Bundle) -> bool:
    """Place the trainers that come to one node together, as `place_one` does."""
    roles = [bundle.role] * bundle.copies
    if copy.quotas.find_problem(job, roles, now=False):
        return False
    must_wait = awaits_others(copy, job, job.size + bundle.copies) or copy.quotas.find_problem(job, roles, now=True)
    at = None if must_wait else next(nodes_for(copy, job, bundle, now=True), None)
    is_free = at is not None
    if at is None:
        at = next(nodes_for(copy, job, bundle, now=False), None)
    if at is None:
        return False
    node = copy.capacity.names[at]
    for _ in roles:
        tier = job.next_trainer_tier()
        if is_free:
            copy.create(job, Role.TRAINER, tier, node, Cause.FREE_CAPACITY)
        else:
            copy.reserve(job, Role.TRAINER, tier, node)
    return True


def record_bottlenecks(copy: WorkingCopy) -> None:
    """Record for each job that may grow what keeps it from its next size. To be called after `fill_shares`.

    A job that has not started keeps the bottleneck of its gang. `explain` finds the jobs that occupy the capacity.
    """
    fitting_shapes = copy.capacity.fit_somewhere(copy.by_trainer)
    for shape, jobs in copy.by_trainer.items():
        of_one: dict[int, tuple[Bottleneck, str]] = {}  # by trainers to a node: for a step of one trainer
        for job in jobs:
            is_steady = job.spec.name not in copy.dirty
            if not is_steady and not has_minimum(copy, job):
                continue
            count = 0 if is_steady and not job.can_grow else step_of(job)
            per_node = job.spec.trainer.per_node
            if count == 0:
                block_at_ceiling(job)
            elif is_held_back(copy, job):
                message = f"during a burst of submissions no job grows beyond 1/{copy.policy.burst_part} of the cluster"
                job.block(Bottleneck.COOLDOWN, message, until_s=copy.burst_until_s)
            elif count > 1 or copy.quotas.has_limits or servers_missing(copy, job, job.size + 1):
                job.block(*reason_of_misfit(copy, job, count, fits=shape in fitting_shapes))
            else:
                if per_node not in of_one:
                    of_one[per_node] = reason_of_misfit(copy, job, 1, fits=shape in fitting_shapes)
                job.block(*of_one[per_node])


def has_minimum(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if the job runs or starts with its minimum, so that its next size has a bottleneck."""
    is_there = (job.is_running or job.is_starting) and job.spec.name not in copy.carried.shortfalls
    return is_there and may_grow(copy, job)


def block_at_ceiling(job: PlannedJob) -> None:
    """Record that the job has all that it may have, or all that pays."""
    spec = job.spec.trainer
    following = spec.next_size(job.size)
    if job.is_probing:
        job.block(Bottleneck.EFFICIENCY, f"its throughput is measured at {job.size} trainers")
    elif following is not None:
        block_by_efficiency(job, following)
    elif spec.pinned_replicas:
        job.block(Bottleneck.PINNED, f"trainer.replicas pins it at {spec.pinned_replicas}")
    else:
        job.block(Bottleneck.MAX, f"at maxReplicas {spec.max_replicas}")


def reason_of_misfit(copy: WorkingCopy, job: PlannedJob, count: int, *, fits: bool) -> tuple[Bottleneck, str]:
    """Return why the next size does not fit, as text too if room for a trainer is left. `fits`: for one, on some
    node."""
    if not copy.capacity.fits_empty(job.shapes[Role.TRAINER]):
        return Bottleneck.NEVER_FITS, f"no node, even empty, holds a trainer ({describe_shape(job.spec.trainer.shape)})"
    servers = servers_missing(copy, job, job.size + count)
    if why := copy.quotas.find_problem(job, [Role.SERVER] * servers + [Role.TRAINER] * count, now=False):
        return Bottleneck.QUOTA, why
    placed = places_left(copy, job, count) if fits else 0
    if 0 < placed < count:
        sizes = job.spec.trainer.sizes
        of_what = (
            f"to its next size, {job.size + count} of {', '.join(map(str, sizes))}," if sizes else "of its next step"
        )
        return Bottleneck.STEP, f"{placed} of the {count} trainers {of_what} fit"
    if placed and servers:
        coming, shape = counted([Role.SERVER] * servers), describe_shape(job.shape_of(Role.SERVER))
        trainers = counted([Role.TRAINER] * count)
        return Bottleneck.NODE_FIT, f"{trainers} would fit alone, but the next size takes {coming} too ({shape})"
    if fits and not placed and copy.capacity.tightest(unit_shape(copy, job), now=False) >= 0:
        return Bottleneck.NODE_FIT, "the free cpu and memory of the nodes are reserved for their free devices"
    return Bottleneck.NODE_FIT, ""


def places_left(copy: WorkingCopy, job: PlannedJob, count: int) -> int:
    """Return how many of the next step's trainers still fit."""
    mark = copy.mark()
    placed = grow(copy, job, count)
    copy.roll_back(mark)
    return placed
