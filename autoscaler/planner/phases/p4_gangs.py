"""P4: jobs that wait for their minimum, by (priority, share, age).

A job starts whole or not at all (A1): every core pod has a node with room that is free now.  Several start side by
side, each in room that none of the others has (ADR 0159), and no start waits for the end of another; those that could
follow in the next plan hold their room.  Where room is missing, surplus leaves for the gang: anybody's (`MinsFirst`),
or only that of lower classes and its own (`StrictClass`).  The seats for which room is made are remembered, so that
the next plan does not choose others.  After two minutes the oldest unfit gang of a priority bars younger ones of its
class and below from the nodes that it would use; surplus may use them meanwhile, since it can be taken back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from autoscaler.domain import (
    NOTHING,
    Admission,
    Bar,
    Bottleneck,
    Cause,
    JobName,
    JobState,
    NodeName,
    Role,
)
from autoscaler.planner.formatting import describe, describe_shape
from autoscaler.planner.phases.p1_external_pods import keep_headroom
from autoscaler.planner.phases.p3_reclaim import make_room
from autoscaler.planner.phases.p4_gang_room import (
    free_quota,
    leaving_seats,
    mask_of,
    reserved_seats,
    spared_by,
    taken_seats,
    vacated_seats,
)
from autoscaler.planner.phases.p5_water_filling import fill_shares
from autoscaler.planner.placement.core_placement import (
    Force,
    core_of,
    find_seats,
    largest_first,
    seat_all,
    seat_by_force,
    seat_on,
)
from autoscaler.planner.placement.node_choice import fits_an_empty_node
from autoscaler.planner.sharing.growth_queue import is_thirsty
from autoscaler.planner.working_copy.fairness import before_share
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.working_copy import Draft

STARTS_PER_PLAN: Final = 16
"""As many as the loop writes at once; the next plan, which a web pod may wait for, comes a second later."""


def admit_gangs(draft: Draft) -> None:
    """Start those that fit, `STARTS_PER_PLAN` at most; hold or make room for the others; say of each why it waits."""
    barred: frozenset[NodeName] = frozenset()
    reserved: set[int] = set()
    refused: dict[object, JobDraft] = {}  # by kind: the first for which no room was found since the last start
    for name in queue(draft):
        job = draft.jobs[name]
        if draft.policy.admission is Admission.STRICT_CLASS:
            finish_classes_above(draft, job.job.priority)
        if not may_be_admitted(draft, job):
            continue
        if lack := draft.quota_lack(job, core_of(job), now=False):
            if wait_for_quota(draft, name, barred):
                refused.clear()
            else:
                job.block(Bottleneck.QUOTA, lack)
            continue
        kind = kind_of(draft, job)
        if (first := refused.get(kind)) is not None:
            job.block(first.bottleneck or Bottleneck.NODE_FIT, first.message, held_up_by=first.held_up_by)
        elif start_now(draft, name, barred) or wait_for_room(draft, name, barred):
            refused.clear()
            continue
        refused.setdefault(kind, job)
        is_possible = job.bottleneck is not Bottleneck.NEVER_FITS
        if is_possible and is_aged(draft, job) and job.job.priority not in reserved:
            reserved.add(job.job.priority)
            barred |= bar_nodes(draft, name, barred)


def finish_classes_above(draft: Draft, priority: int) -> None:
    """Give higher classes their surplus before a gang its minimum.

    Headroom stands above all surplus, so here it comes before the gang too.
    """
    if any(job.job.priority > priority and is_thirsty(draft, job) for job in draft.jobs.values()):
        settle_headroom(draft)
        fill_shares(draft, above_priority=priority)


def settle_headroom(draft: Draft) -> None:
    """Settle the room that the policy keeps free, by force where surplus stands in it; once a plan."""
    if not any(demand.cause is Cause.HEADROOM for demand in draft.demands):
        keep_headroom(draft)
        make_room(draft)


def kind_of(draft: Draft, job: JobDraft) -> object:
    """Return what gangs have in common that find room, or find none, alike; with a reservation each is of its own."""
    has_seats = any(entry.job == job.job.name for entry in draft.history.reservations)
    alike = (job.job.priority, job.job.trainer.per_node, *job.shapes.items(), *core_of(job))
    return (*alike, job.job.name if has_seats else "")


def queue(draft: Draft) -> list[JobName]:
    """Return the waiting jobs: by priority; in it the oldest once it is aged, then the smallest share, then age.

    Those whose last start failed come after those that have had no turn: refused for ever, they would use all turns.

    What cannot start whatever happens to others' room is not the oldest: it would keep that place for ever (A11).
    """
    waiting = [job for job in draft.stirred_jobs() if not job.is_running and job.job.state is JobState.ACTIVE]
    oldest: dict[int, JobName] = {}
    for job in sorted(waiting, key=lambda job: (job.job.submitted_at_s, job.job.name)):
        if is_aged(draft, job) and job.job.priority not in oldest and could_start(draft, job):
            oldest[job.job.priority] = job.job.name

    def place(job: JobDraft) -> tuple[object, ...]:
        spec = job.job
        is_first = oldest.get(spec.priority) == spec.name
        return (
            -spec.priority,
            not is_first,
            spec.hold_until_s > 0.0,
            before_share(draft, job) + draft.part(job, core_of(job)),
            spec.submitted_at_s,
            spec.name,
        )

    return [job.job.name for job in sorted(waiting, key=place)]


def may_be_admitted(draft: Draft, job: JobDraft) -> bool:
    """Whether room and quota are the only questions left."""
    if job.leaving:
        job.block(Bottleneck.ROOM_LEAVING, "its former pods are leaving")
        return False
    if draft.now_s < job.job.hold_until_s:
        job.block(Bottleneck.COOLDOWN, "pause after failures", until_s=job.job.hold_until_s)
        return False
    for role in sorted(set(core_of(job))):
        if not fits_an_empty_node(draft, job.shapes[role]):
            asked = describe_shape(job.shape_of(role))
            job.block(Bottleneck.NEVER_FITS, f"no node, even empty, holds its {role} ({asked})")
            return False
    if any(ordinal < job.job.server_count for ordinal in job.ordinals.get(Role.SERVER, ())):
        job.block(Bottleneck.ROOM_LEAVING, "its former servers are leaving")
        return False
    return True


def could_start(draft: Draft, job: JobDraft) -> bool:
    """Whether room alone, which others have, keeps the job from its start."""
    if not may_be_admitted(draft, job) or draft.quota_lack(job, core_of(job), now=False):
        return False
    return fits_an_empty_cluster(draft, job)


def start_now(draft: Draft, name: JobName, barred: frozenset[NodeName]) -> bool:
    """Start the gang, or hold its room when enough others start; False if it does not fit into free room."""
    mark, job = draft.mark(), draft.jobs[name]
    seats = seat_all(draft, job, core_of(job), now=True, avoid=mask_of(draft, barred))
    if seats is None:
        draft.roll_back(mark)
        seats = reserved_seats(draft, job, barred, now=True)
    if seats is None:
        draft.roll_back(mark)
        return False
    if len(draft.starts) < STARTS_PER_PLAN:
        job.is_starting = True
        draft.starts.append(name)
        return True
    draft.roll_back(mark)
    seat_on(draft, job, seats, now=False)
    job.block(Bottleneck.GANG, f"its room is free and held; {STARTS_PER_PLAN} jobs start at a time")
    return True


def wait_for_room(draft: Draft, name: JobName, barred: frozenset[NodeName]) -> bool:
    """Promise room that is being vacated, else have surplus vacate it; False, and a reason, if neither is enough."""
    job = draft.jobs[name]
    for find in (reserved_seats, leaving_seats, vacated_seats, taken_seats):
        mark = draft.mark()
        seats = find(draft, job, barred)
        if seats is not None:
            draft.reserve(job, seats)
            job.block(Bottleneck.ROOM_LEAVING, "its room is being vacated")
            return True
        draft.roll_back(mark)
    needs = describe(sum((job.shape_of(role).requests for role in core_of(job)), start=NOTHING))
    if barred and would_start(draft, job):
        holders = tuple(sorted(bar.job for bar in draft.bars if barred & bar.nodes))
        told = f"the room that it could start in is kept for {' and '.join(holders)}: waiting for longer"
        job.block(Bottleneck.GANG, told, held_up_by=holders)
    elif fits_an_empty_cluster(draft, job):
        job.block(Bottleneck.NODE_FIT, f"its {len(core_of(job))} core pods ({needs} in all) do not fit all at once")
    else:
        job.block(Bottleneck.NEVER_FITS, f"even an empty cluster does not hold its core pods ({needs} in all)")
    return False


def wait_for_quota(draft: Draft, name: JobName, barred: frozenset[NodeName]) -> bool:
    """Have surplus of the gang's own namespace give back the quota that it lacks; False if that does not help."""
    mark, job = draft.mark(), draft.jobs[name]
    if free_quota(draft, job, core_of(job), spared_by(draft, job)) and wait_for_room(draft, name, barred):
        return True
    draft.roll_back(mark)
    return False


def would_start(draft: Draft, job: JobDraft) -> bool:
    """Whether the gang fits into free room if nobody older keeps any for itself."""
    mark = draft.mark()
    seats = seat_all(draft, job, core_of(job), now=True)
    draft.roll_back(mark)
    return seats is not None


def fits_an_empty_cluster(draft: Draft, job: JobDraft) -> bool:
    """Whether the gang would fit if nobody else were there."""
    empty = replace(draft, rooms=draft.rooms.emptied(), waste=None)
    mark = empty.mark()
    seats = find_seats(empty, job, largest_first(draft, job, core_of(job)), now=True, avoid=None)
    empty.roll_back(mark)
    return seats is not None


def is_aged(draft: Draft, job: JobDraft) -> bool:
    """Whether the gang has waited long enough to bar younger ones."""
    aged_at_s = job.job.submitted_at_s + draft.policy.gang_age_s
    if draft.now_s < aged_at_s:
        draft.wake_at_s.append(aged_at_s)
    return draft.now_s >= aged_at_s


def bar_nodes(draft: Draft, name: JobName, barred: frozenset[NodeName]) -> frozenset[NodeName]:
    """Return the nodes that the aged gang keeps from younger ones: those of the last plan, while they are open."""
    known = next((bar.nodes for bar in draft.view.history.bars if bar.job == name), frozenset[NodeName]())
    is_known = bool(known) and all(draft.rooms.is_open_name(node) for node in known)
    nodes = known if is_known else best_nodes(draft, draft.jobs[name], barred)
    draft.bars.append(Bar(job=name, nodes=nodes))
    return nodes


def best_nodes(draft: Draft, job: JobDraft, barred: frozenset[NodeName]) -> frozenset[NodeName]:
    """Return the nodes on which as much of the gang as possible fits today, surplus counted as free."""
    if not fits_an_empty_cluster(draft, job):
        return frozenset()
    start = draft.mark()
    nodes: set[NodeName] = set()
    for role in largest_first(draft, job, core_of(job)):
        seats = seat_by_force(draft, job, [role], Force(cause=Cause.GANG), avoid=mask_of(draft, barred))
        nodes.update(node for _, node in seats or ())
    draft.roll_back(start)
    return frozenset(nodes)
