"""P8: pods of others that hold GPUs and do not use them, for pods and gangs that wait for lack of capacity.

This supply comes after surplus: who finds room without it is served by then, and surplus counts beside it.  Pods are
chosen by how long they have been unused, the longest first, and only where all of them together make the waiting one
fit; those that are not needed for it stay.  None is chosen for somebody of lower priority, before the time that its
owner agreed on, while somebody keeps it, or without those after whom it leaves (`IdlePod.goes_after`).  Where pods
would help whose owners did not agree, the waiting one is told (`IdleHeld`).  Which pods there are, and in which order
they leave: `p8_held_gpus`.

Nothing of this plan's actions rests on it: pods that leave are capacity once the view shows them leaving.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import Final

from autoscaler.domain import (
    Bottleneck,
    Cause,
    DemandState,
    IdleReclaim,
    JobName,
    JobState,
    Pod,
    PodName,
    ReclaimMode,
)
from autoscaler.planner.phases.p4_gang_capacity import protected_priority_of
from autoscaler.planner.phases.p4_gangs import gang_kind
from autoscaler.planner.phases.p8_held_gpus import (
    HeldGpus,
    after_their_own,
    candidates,
    held_gpus,
    held_text,
    is_due,
)
from autoscaler.planner.placement.core_placement import (
    ReclaimPermit,
    core_roles,
    try_place_all,
    try_place_reclaiming,
)
from autoscaler.planner.placement.node_choice import emptiest_node
from autoscaler.planner.placement.victims import cheapest_victims
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import full_rank, shrink
from autoscaler.planner.working_copy.working_copy import WorkingCopy

MOST_WAITING: Final = 16  # of pods, and as many of gangs, for which pods are looked for in one plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pod or a gang that lacks capacity.  `place` takes its capacity on the copy, or returns False.

    `kind`: what the first of a kind does not get, no other of it gets.  `shapes`: of its pods, by number, of
    those with GPUs where it has some: where these may run, pods are looked for.
    """

    name: PodName | JobName
    priority: int
    kind: object
    shapes: Collection[int]
    place: Callable[[], bool]
    tell: Callable[[str, Sequence[HeldGpus]], None]


def reclaim_idle_pods(copy: WorkingCopy) -> tuple[IdleReclaim, ...]:
    """Return which idle pods are to be given back and for whom; tell those who wait which pods would help.

    The copy stays as it is, but for what is told.  Call it after all other phases.
    """
    if copy.policy.idle_reclaim is ReclaimMode.OFF or not copy.view.idle_pods:
        return ()
    held = held_gpus(copy)
    found: list[IdleReclaim] = []
    told: list[tuple[Waiting, str, list[HeldGpus]]] = []
    start = copy.mark()
    for group in (waiting_pods(copy), waiting_gangs(copy)):
        left = MOST_WAITING
        unmet: dict[object, list[HeldGpus]] = {}  # by kind: the pods that would help it if their owners agreed
        for waiting in group:
            agreed: list[HeldGpus] = []
            if waiting.kind not in unmet and left:
                left -= 1
                gone = frozenset(one.pod for one in found)
                accepted = accepted_by(copy, waiting)
                due = candidates(held, accepted, gone, partial(is_due_for, copy, waiting))
                agreed = fewest_that_help(copy, waiting, due, gone)
                found += [reclaim_of(copy, one, waiting) for one in agreed]
                for one in agreed:
                    del held[one.pod.name]
                if not agreed:
                    mine = candidates(held, accepted, gone, partial(may_leave_for, waiting))
                    unmet[waiting.kind] = fewest_that_help(copy, waiting, mine, gone, keep=False)
            if helpful := agreed or unmet.get(waiting.kind, []):
                told.append((waiting, held_text(copy, helpful, is_agreed=bool(agreed)), helpful))
    copy.roll_back(start)
    for waiting, message, helpful in told:
        waiting.tell(message, helpful)
    return tuple(found)


def may_leave_for(waiting: Waiting, one: HeldGpus) -> bool:
    """True if the waiting one may have the pod's GPUs, whatever its owner says."""
    return one.pod.priority <= waiting.priority


def is_due_for(copy: WorkingCopy, waiting: Waiting, one: HeldGpus) -> bool:
    """True if the waiting one may have the pod's GPUs now."""
    return may_leave_for(waiting, one) and is_due(copy, one.idle)


def accepted_by(copy: WorkingCopy, waiting: Waiting) -> Mask:
    """Return the nodes that accept a pod of the waiting one."""
    masks: list[Mask] = [copy.capacity.accepted(shape) for shape in waiting.shapes]
    return reduce(or_, masks)


def waiting_pods(copy: WorkingCopy) -> Iterator[Waiting]:
    """Yield the pods of others that exist and lack capacity, in the order of the plan's answers."""
    pods = {pod.name: pod for pod in copy.external.waiting}
    for number, answer in enumerate(copy.external.answers):
        pod = pods.get(answer.pod)
        if pod is None or answer.state is not DemandState.NO_CAPACITY or not pod.requests.gpu_count:
            continue

        def place(pod: Pod = pod) -> bool:
            shape = copy.shapes.number(pod.shape)
            at = emptiest_node(copy, shape, now=False, exists=True)
            victims = None if at is not None else cheapest_victims(copy, shape, full_rank(pod.priority))
            for job, pods in () if victims is None else victims.taken:
                shrink(copy, job, pods, Cause.POD)
            at = at if victims is None else victims.at
            if at is not None:
                copy.capacity.allocate(at, shape, now=False)
            return at is not None

        def tell(_: str, helpful: Sequence[HeldGpus], number: int = number) -> None:
            victims = tuple(one.pod.name for one in helpful)
            answers = copy.external.answers
            answers[number] = replace(answers[number], state=DemandState.IDLE_HELD, victims=victims)

        shape = copy.shapes.number(pod.shape)
        kind = (shape, pod.priority)
        yield Waiting(name=pod.name, priority=pod.priority, kind=kind, shapes=(shape,), place=place, tell=tell)


def waiting_gangs(copy: WorkingCopy) -> Iterator[Waiting]:
    """Yield the jobs that wait for room for their minimum, highest priority first, then the oldest."""
    jobs = [job for job in copy.dirty_jobs() if is_waiting_gang(job)]
    for job in sorted(jobs, key=lambda job: (-job.spec.priority, job.spec.submitted_at_s, job.spec.name)):

        def place(job: PlannedJob = job) -> bool:
            roles, permit = (
                core_roles(job),
                ReclaimPermit(cause=Cause.GANG, protected_priority=protected_priority_of(copy, job)),
            )
            found = try_place_all(copy, job, roles, now=False) or try_place_reclaiming(copy, job, roles, permit)
            return found is not None

        def tell(message: str, _: Sequence[HeldGpus], job: PlannedJob = job) -> None:
            job.block(Bottleneck.IDLE_HELD, message)

        kind = (gang_kind(copy, job), job.spec.namespace)  # a namespace has quotas of its own
        shapes = {job.shapes[role] for role in core_roles(job)}
        with_gpus = {shape for shape in shapes if copy.shapes.shapes[shape].requests.gpu_count}
        yield Waiting(
            name=job.spec.name,
            priority=job.spec.priority,
            kind=kind,
            shapes=with_gpus or shapes,
            place=place,
            tell=tell,
        )


def is_waiting_gang(job: PlannedJob) -> bool:
    """True if the job lacks nothing but capacity for its start."""
    is_out = not job.is_running and not job.is_starting and job.spec.state is JobState.ACTIVE
    return is_out and not job.coming and job.bottleneck is Bottleneck.NODE_FIT


def fewest_that_help(
    copy: WorkingCopy, waiting: Waiting, held: Sequence[HeldGpus], gone: Collection[PodName], *, keep: bool = True
) -> list[HeldGpus]:
    """Return the pods without which the waiting one fits; none if all of them together are not enough.

    First as few of the longest unused as are enough, then without those of them that do not matter, for whom nobody
    has to leave either.  `gone` leave anyway.  `keep`: the room is taken for it on the copy, so that another one does
    not count on the same pods.
    """
    if not fits_without(copy, waiting, held, keep=False):
        return []
    count = next(number for number in range(1, len(held) + 1) if fits_without(copy, waiting, held[:number], keep=False))
    chosen = list(held[:count])
    for one in held[: count - 1]:
        others = after_their_own([other for other in chosen if other is not one], gone)
        if fits_without(copy, waiting, others, keep=False):
            chosen = others
    fits_without(copy, waiting, chosen, keep=keep)
    return chosen


def fits_without(copy: WorkingCopy, waiting: Waiting, gone: Sequence[HeldGpus], *, keep: bool) -> bool:
    """True if the waiting one fits once these pods are gone; with nobody gone it does not, by the phases before."""
    if not gone:
        return False
    mark = copy.mark()
    for one in gone:
        copy.capacity.move(one.at, copy.shapes.number(one.pod.shape), later=1)
    fits = waiting.place()
    if not (fits and keep):
        copy.roll_back(mark)
    return fits


def reclaim_of(copy: WorkingCopy, one: HeldGpus, waiting: Waiting) -> IdleReclaim:
    """Return the decision on one pod."""
    return IdleReclaim(
        pod=one.pod.name,
        node=copy.capacity.names[one.at],
        gpu_count=one.gpu_count,
        since_s=one.idle.since_s,
        beneficiary=waiting.name,
    )
