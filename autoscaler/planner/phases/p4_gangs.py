"""P4: admission of waiting jobs, by (priority, share, age).

A job starts whole or not at all (A1): every core pod fits into capacity that is free now. Several gangs start in one
plan, each in its own capacity (ADR 0159); gangs that could start in the next plan reserve theirs. If capacity is
missing, surplus is removed for the gang: of all jobs (`MinsFirst`), or only of lower classes and its own
(`StrictClass`). These placements are remembered, so that the next plan chooses the same ones.

After two minutes the oldest unfit gang of a priority bars younger ones of its class and below from the nodes that it
would use. Surplus may use them meanwhile, since it can be reclaimed.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from itertools import groupby
from typing import Final

from autoscaler.domain import NOTHING, Admission, Bar, Bottleneck, Cause, JobName, JobState, NodeName, Role
from autoscaler.planner.formatting import describe, describe_shape
from autoscaler.planner.phases.p1_external_pods import place_headroom
from autoscaler.planner.phases.p3_reclaim import reclaim_surplus
from autoscaler.planner.phases.p4_gang_capacity import (
    free_quota,
    leaving_placements,
    mask_of_barred,
    preempting_placements,
    protected_priority_of,
    reserved_placements,
    vacated_placements,
)
from autoscaler.planner.phases.p5_water_filling import fill_shares
from autoscaler.planner.placement.core_placement import (
    ReclaimPermit,
    core_roles,
    largest_first,
    search_placements,
    try_place_all,
    try_place_on,
    try_place_reclaiming,
)
from autoscaler.planner.sharing.growth_queue import can_take_step
from autoscaler.planner.working_copy.fairness import before_share, divide_into_parts, share_of
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

STARTS_PER_PLAN: Final = 16
"""Most starts per plan: as many as the loop writes concurrently, so that the next plan is not delayed."""


def admit_gangs(copy: WorkingCopy) -> tuple[JobName, ...]:
    """Start the gangs that fit, `STARTS_PER_PLAN` at most; reserve or vacate capacity for the others; record why each
    one waits.  Return all of them in their order."""
    barred: frozenset[NodeName] = frozenset()
    reserved: set[int] = set()
    refused: dict[object, PlannedJob] = {}  # by kind: the first that did not fit since the last start
    queue = admission_queue(copy)
    for name in queue:
        job = copy.jobs[name]
        if copy.policy.admission is Admission.STRICT_CLASS:
            finish_classes_above(copy, job.spec.priority)
        if not may_be_admitted(copy, job):
            continue
        if lack := copy.quotas.find_problem(job, core_roles(job), now=False):
            if wait_for_quota(copy, name, barred):
                refused.clear()
            else:
                job.block(Bottleneck.QUOTA, lack)
            continue
        kind = gang_kind(copy, job)
        if (first := refused.get(kind)) is not None:
            job.block(first.bottleneck or Bottleneck.NODE_FIT, first.message, held_up_by=first.held_up_by)
        elif start_now(copy, name, barred) or wait_for_capacity(copy, name, barred):
            refused.clear()
            continue
        refused.setdefault(kind, job)
        is_possible = job.bottleneck is not Bottleneck.NEVER_FITS
        if is_possible and is_aged(copy, job) and job.spec.priority not in reserved:
            reserved.add(job.spec.priority)
            barred |= bar_nodes(copy, name, barred)
    return tuple(queue)


def finish_classes_above(copy: WorkingCopy, priority: int) -> None:
    """Give higher classes their surplus before a gang its minimum.

    Headroom ranks above all surplus, so it is placed before the gang too.
    """
    if any(job.spec.priority > priority and can_take_step(copy, job) for job in copy.jobs.values()):
        reserve_headroom(copy)
        divide_into_parts(copy)
        fill_shares(copy, above_priority=priority)


def reserve_headroom(copy: WorkingCopy) -> None:
    """Place the policy's headroom, reclaiming surplus for it; once a plan."""
    if not any(demand.cause is Cause.HEADROOM for demand in copy.external.answers):
        place_headroom(copy)
        reclaim_surplus(copy)


def gang_kind(copy: WorkingCopy, job: PlannedJob) -> object:
    """Return a key that gangs share if they fit into the same capacity or not at all; one with a reservation is
    alone."""
    has_reservation = any(entry.job == job.spec.name for entry in copy.history.reservations)
    key = (job.spec.priority, job.spec.trainer.per_node, *job.shapes.items(), *core_roles(job))
    return (*key, job.spec.name if has_reservation else "")


def admission_queue(copy: WorkingCopy) -> list[JobName]:
    """Return the waiting jobs by priority, the oldest aged one first, then by smallest share, then by age.

    Jobs whose last start failed come after jobs without an attempt; otherwise failing jobs would block all others. A
    job that could not start even on an empty cluster never counts as the oldest (A11).
    """
    waiting = [job for job in copy.dirty_jobs() if not job.is_running and job.spec.state is JobState.ACTIVE]
    oldest: dict[int, JobName] = {}
    for job in sorted(waiting, key=lambda job: (job.spec.submitted_at_s, job.spec.name)):
        if is_aged(copy, job) and job.spec.priority not in oldest and could_start(copy, job):
            oldest[job.spec.priority] = job.spec.name

    def place(job: PlannedJob) -> tuple[object, ...]:
        spec = job.spec
        is_first = oldest.get(spec.priority) == spec.name
        return (
            -spec.priority,
            not is_first,
            spec.hold_until_s > 0.0,
            before_share(copy, job) + share_of(copy, job, core_roles(job)),
            spec.submitted_at_s,
            spec.name,
        )

    return [job.spec.name for job in sorted(waiting, key=place)]


def may_be_admitted(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if only capacity and quota keep the job from its start."""
    if job.leaving:
        job.block(Bottleneck.CAPACITY_DRAINING, "its former pods are terminating")
        return False
    if copy.now_s < job.spec.hold_until_s:
        job.block(Bottleneck.COOLDOWN, job.hold_text, until_s=job.spec.hold_until_s)
        return False
    for role in sorted(set(core_roles(job))):
        if not copy.capacity.fits_empty(job.shapes[role]):
            requests = describe_shape(job.shape_of(role))
            job.block(Bottleneck.NEVER_FITS, f"no node, even empty, holds its {role} ({requests})")
            return False
    if any(ordinal < job.spec.server_count for ordinal in job.ordinals.get(Role.SERVER, ())):
        job.block(Bottleneck.CAPACITY_DRAINING, "its former servers are terminating")
        return False
    return True


def could_start(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if only the capacity of other pods keeps the job from its start."""
    if not may_be_admitted(copy, job) or copy.quotas.find_problem(job, core_roles(job), now=False):
        return False
    return fits_an_empty_cluster(copy, job)


def start_now(copy: WorkingCopy, name: JobName, barred: frozenset[NodeName]) -> bool:
    """Start the gang, or reserve its capacity if enough others start; return False if it does not fit now."""
    mark, job = copy.mark(), copy.jobs[name]
    placements = try_place_all(copy, job, core_roles(job), now=True, avoid=mask_of_barred(copy, barred))
    if placements is None:
        copy.roll_back(mark)
        placements = reserved_placements(copy, job, barred, now=True)
    if placements is None:
        copy.roll_back(mark)
        return False
    if len(copy.starts) < STARTS_PER_PLAN:
        job.is_starting = True
        copy.starts.append(name)
        return True
    copy.roll_back(mark)
    try_place_on(copy, job, placements, now=False)
    job.block(Bottleneck.GANG, f"its capacity is free and reserved; {STARTS_PER_PLAN} jobs start at a time")
    return True


def wait_for_capacity(copy: WorkingCopy, name: JobName, barred: frozenset[NodeName]) -> bool:
    """Reserve capacity that is being vacated, else have surplus vacate it; return False, and record a reason, if
    neither is enough."""
    job = copy.jobs[name]
    for find in (reserved_placements, leaving_placements, vacated_placements, preempting_placements):
        mark = copy.mark()
        placements = find(copy, job, barred)
        if placements is not None:
            copy.carried.remember_placements(job.spec.name, placements)
            job.block(Bottleneck.CAPACITY_DRAINING, "its capacity is being vacated")
            return True
        copy.roll_back(mark)
    counts = Counter(core_roles(job)).items()
    needs = describe(reduce(lambda total, of: total.plus(job.shape_of(of[0]).requests, times=of[1]), counts, NOTHING))
    if barred and would_start(copy, job):
        holders = tuple(sorted(bar.job for bar in copy.carried.bars if barred & bar.nodes))
        message = f"the capacity that it could start in is reserved for {' and '.join(holders)}, waiting for longer"
        job.block(Bottleneck.GANG, message, held_up_by=holders)
    elif fits_an_empty_cluster(copy, job):
        job.block(
            Bottleneck.NODE_FIT,
            f"its {len(core_roles(job))} core pods ({needs} in all) do not all fit at the same time",
        )
    else:
        job.block(Bottleneck.NEVER_FITS, f"even an empty cluster does not hold its core pods ({needs} in all)")
    return False


def wait_for_quota(copy: WorkingCopy, name: JobName, barred: frozenset[NodeName]) -> bool:
    """Have surplus of the gang's own namespace give back the quota that it lacks; return False if that does not
    help."""
    mark, job = copy.mark(), copy.jobs[name]
    if free_quota(copy, job, core_roles(job), protected_priority_of(copy, job)) and wait_for_capacity(
        copy, name, barred
    ):
        return True
    copy.roll_back(mark)
    return False


def would_start(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if the gang would fit now if no older gang barred any nodes."""
    mark = copy.mark()
    placements = try_place_all(copy, job, core_roles(job), now=True)
    copy.roll_back(mark)
    return placements is not None


def fits_an_empty_cluster(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if the gang would fit on the nodes if they were empty."""
    empty = copy.on_empty_nodes()
    mark = empty.mark()
    placements = search_placements(empty, job, largest_first(copy, job, core_roles(job)), now=True, avoid=None)
    empty.roll_back(mark)
    return placements is not None


def is_aged(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if the gang has waited long enough to bar younger ones."""
    return copy.is_due(job.spec.submitted_at_s + copy.policy.gang_age_s)


def bar_nodes(copy: WorkingCopy, name: JobName, barred: frozenset[NodeName]) -> frozenset[NodeName]:
    """Return the nodes from which the aged gang bars younger ones: those of the last plan, while they are open."""
    known = next((bar.nodes for bar in copy.view.history.bars if bar.job == name), frozenset[NodeName]())
    is_known = bool(known) and all(copy.capacity.is_open_name(node) for node in known)
    nodes = known if is_known else best_nodes(copy, copy.jobs[name], barred)
    copy.carried.bars.append(Bar(job=name, nodes=nodes))
    return nodes


def best_nodes(copy: WorkingCopy, job: PlannedJob, barred: frozenset[NodeName]) -> frozenset[NodeName]:
    """Return the nodes on which as much of the gang as possible fits today, surplus counted as free."""
    if not fits_an_empty_cluster(copy, job):
        return frozenset()
    start = copy.mark()
    nodes: set[NodeName] = set()
    permit, avoid = ReclaimPermit(cause=Cause.GANG), mask_of_barred(copy, barred)
    for role, alike in groupby(largest_first(copy, job, core_roles(job))):
        for _ in alike:
            placements = try_place_reclaiming(copy, job, [role], permit, avoid=avoid)
            if placements is None:
                break  # nor does another one of the role fit
            nodes.update(node for _, node in placements)
    copy.roll_back(start)
    return frozenset(nodes)
