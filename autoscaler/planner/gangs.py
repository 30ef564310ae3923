"""P4: jobs that wait for their minimum, by (priority, share, age).

A job starts whole or not at all (A1): every core pod has a node with room that is free now.  One starts at a time;
those that could follow hold their room.  Where room is missing, surplus leaves for the gang: anybody's (`MinsFirst`),
or only that of lower classes and its own (`StrictClass`).  The seats for which room is made are remembered, so that
the next plan does not choose others.  After two minutes the oldest unfit gang of a priority bars younger ones of its
class and below from the nodes that it would use; surplus may use them meanwhile, since it can be taken back.
"""

from __future__ import annotations

from autoscaler.domain import (
    NOTHING,
    Admission,
    Bar,
    Bottleneck,
    Cause,
    JobName,
    JobState,
    NodeName,
    PodPhase,
    Tier,
)
from autoscaler.planner.draft import Draft
from autoscaler.planner.fit import fits_an_empty_node
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.seating import Force, Seats, core_of, largest_first, seat_all, seat_by_force, seat_on
from autoscaler.planner.share import fill_shares
from autoscaler.planner.words import describe


def admit_gangs(draft: Draft) -> None:
    """Start one gang at most; hold or make room for the others; say of each why it waits."""
    barred: frozenset[NodeName] = frozenset()
    reserved: set[int] = set()
    can_start = not is_gang_binding(draft)
    for name in queue(draft):
        if draft.policy.admission is Admission.STRICT_CLASS:
            fill_shares(draft, above_priority=draft.jobs[name].job.priority)
        job = draft.jobs[name]
        if not may_be_admitted(draft, job):
            continue
        if start_now(draft, name, barred, starts=can_start):
            can_start = False
        elif not wait_for_room(draft, name, barred) and is_aged(draft, job) and job.job.priority not in reserved:
            reserved.add(job.job.priority)
            barred |= bar_nodes(draft, name, barred)


def queue(draft: Draft) -> list[JobName]:
    """Return the waiting jobs: by priority; in it the oldest once it is aged, then the smallest share, then age."""
    waiting = [job for job in draft.jobs.values() if not job.is_running and job.job.state is JobState.ACTIVE]
    oldest: dict[int, JobName] = {}
    for job in sorted(waiting, key=lambda job: (job.job.submitted_at_s, job.job.name)):
        if is_aged(draft, job):
            oldest.setdefault(job.job.priority, job.job.name)

    def place(job: JobDraft) -> tuple[object, ...]:
        spec = job.job
        usage = sum((job.shape_of(role).requests for role in core_of(job)), start=job.usage)
        is_first = oldest.get(spec.priority) == spec.name
        return (-spec.priority, not is_first, draft.share(job, usage=usage), spec.submitted_at_s, spec.name)

    return [job.job.name for job in sorted(waiting, key=place)]


def is_gang_binding(draft: Draft) -> bool:
    """Whether core pods of an earlier start are still without a node."""
    unbound = (PodPhase.PENDING, PodPhase.GATED)
    return any(pod.tier is Tier.CORE and pod.phase in unbound for pod in draft.view.pods)


def may_be_admitted(draft: Draft, job: JobDraft) -> bool:
    """Whether room is the only question left."""
    if job.leaving:
        job.block(Bottleneck.ROOM_LEAVING, "its former pods are leaving")
        return False
    if draft.now_s < job.job.hold_until_s:
        job.block(Bottleneck.COOLDOWN, "pause after failures", until_s=job.job.hold_until_s)
        return False
    for role in sorted(set(core_of(job))):
        shape = job.shape_of(role)
        if not fits_an_empty_node(draft, shape):
            job.block(Bottleneck.NEVER_FITS, f"no node, even empty, holds its {role} ({describe(shape.requests)})")
            return False
    return True


def start_now(draft: Draft, name: JobName, barred: frozenset[NodeName], *, starts: bool) -> bool:
    """Start the gang, or hold its room when another one starts; False if it does not fit into free room."""
    trial = draft.copy()
    job = trial.jobs[name]
    seats = seat_all(trial, job, core_of(job), now=True, avoid=barred)
    if seats is None:
        trial = draft.copy()
        job = trial.jobs[name]
        seats = reserved_seats(trial, job, barred, now=True)
    if seats is None:
        return False
    if starts:
        job.is_starting = True
    else:
        trial = draft.copy()
        job = trial.jobs[name]
        seat_on(trial, job, seats, now=False)
        job.block(Bottleneck.GANG, "its room is free and held; one job starts at a time")
    draft.adopt(trial)
    return True


def wait_for_room(draft: Draft, name: JobName, barred: frozenset[NodeName]) -> bool:
    """Promise room that is being vacated, else have surplus vacate it; False, and a reason, if neither is enough."""
    for find_seats in (reserved_seats, leaving_seats, vacated_seats):
        trial = draft.copy()
        job = trial.jobs[name]
        seats = find_seats(trial, job, barred)
        if seats is not None:
            trial.reserve(job, seats)
            job.block(Bottleneck.ROOM_LEAVING, "its room is being vacated")
            draft.adopt(trial)
            return True
    job = draft.jobs[name]
    needs = describe(sum((job.shape_of(role).requests for role in core_of(job)), start=NOTHING))
    if fits_an_empty_cluster(draft, name):
        job.block(Bottleneck.NODE_FIT, f"its {len(core_of(job))} core pods ({needs} in all) do not fit all at once")
    else:
        job.block(Bottleneck.NEVER_FITS, f"even an empty cluster does not hold its core pods ({needs} in all)")
    return False


def reserved_seats(draft: Draft, job: JobDraft, barred: frozenset[NodeName], *, now: bool = False) -> Seats | None:
    """Take the seats for which an earlier plan made room, if all of them still stand."""
    for reservation in draft.view.history.reservations:
        if reservation.job == job.job.name:
            seats = [(seat.role, seat.node) for seat in reservation.seats]
            is_whole = sorted(role for role, _ in seats) == sorted(core_of(job))
            is_open = not barred.intersection(node for _, node in seats)
            return seats if is_whole and is_open and seat_on(draft, job, seats, now=now) else None
    return None


def leaving_seats(draft: Draft, job: JobDraft, barred: frozenset[NodeName]) -> Seats | None:
    """Take room that is free or being vacated."""
    return seat_all(draft, job, core_of(job), now=False, avoid=barred)


def vacated_seats(draft: Draft, job: JobDraft, barred: frozenset[NodeName]) -> Seats | None:
    """Take surplus: anybody's, or not that of higher classes."""
    is_strict = draft.policy.admission is Admission.STRICT_CLASS
    force = Force(cause=Cause.GANG, spare_priority=job.job.priority + 1 if is_strict else None)
    return seat_by_force(draft, job, core_of(job), force, avoid=barred)


def fits_an_empty_cluster(draft: Draft, name: JobName) -> bool:
    """Whether the gang would fit if nobody else were there."""
    trial = draft.copy()
    for room in trial.rooms.values():
        room.free = room.later = room.node.allocatable
    job = trial.jobs[name]
    return seat_all(trial, job, core_of(job), now=True) is not None


def is_aged(draft: Draft, job: JobDraft) -> bool:
    """Whether the gang has waited long enough to bar younger ones."""
    aged_at_s = job.job.submitted_at_s + draft.policy.gang_age_s
    if draft.now_s < aged_at_s:
        draft.wake_at_s.append(aged_at_s)
    return draft.now_s >= aged_at_s


def bar_nodes(draft: Draft, name: JobName, barred: frozenset[NodeName]) -> frozenset[NodeName]:
    """Return the nodes that the aged gang keeps from younger ones: those of the last plan, while they are open."""
    known = next((bar.nodes for bar in draft.view.history.bars if bar.job == name), frozenset[NodeName]())
    nodes = known if known and known <= draft.rooms.keys() else best_nodes(draft, name, barred)
    draft.bars.append(Bar(job=name, nodes=nodes))
    return nodes


def best_nodes(draft: Draft, name: JobName, barred: frozenset[NodeName]) -> frozenset[NodeName]:
    """Return the nodes on which as much of the gang as possible fits today, surplus counted as free."""
    trial = draft.copy()
    if not fits_an_empty_cluster(draft, name):
        return frozenset()
    nodes: set[NodeName] = set()
    for role in largest_first(trial, trial.jobs[name], core_of(trial.jobs[name])):
        seats = seat_by_force(trial, trial.jobs[name], [role], Force(cause=Cause.GANG), avoid=barred)
        nodes.update(node for _, node in seats or ())
    return frozenset(nodes)
