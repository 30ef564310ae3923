"""P8: pods of others that hold GPUs and do not use them, for pods and gangs that wait for lack of capacity.

This supply comes after surplus: who finds room without it is served by then, and surplus counts beside it.  Pods are
chosen by how long they have been unused, the longest first, and only where all of them together make the waiting one
fit; those that are not needed for it stay.  None is chosen for somebody of lower priority, before the time that its
owner agreed on, or while somebody keeps it.  Where pods would help whose owners did not agree, the waiting one is told
(`IdleHeld`).

Nothing of this plan's actions rests on it: pods that leave are capacity once the view shows them leaving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final

from autoscaler.domain import (
    Bottleneck,
    Cause,
    DemandState,
    IdlePod,
    IdleReclaim,
    JobName,
    JobState,
    Pod,
    PodName,
    PodPhase,
    ReclaimMode,
    Role,
)
from autoscaler.planner.formatting import listed
from autoscaler.planner.phases.p4_gang_capacity import protected_priority_of
from autoscaler.planner.phases.p4_gangs import gang_kind
from autoscaler.planner.placement.core_placement import (
    ReclaimPermit,
    core_roles,
    try_place_all,
    try_place_reclaiming,
)
from autoscaler.planner.placement.node_choice import emptiest_node
from autoscaler.planner.placement.victims import cheapest_victims
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import full_rank, shrink
from autoscaler.planner.working_copy.working_copy import WorkingCopy

MOST_CANDIDATES: Final = 64  # for one that waits: each is a trial
MOST_WAITING: Final = 16  # of pods, and as many of gangs, for which pods are looked for in one plan
TOLD_STEPS: Final = (
    (5, "5 min"),
    (10, "10 min"),
    (30, "30 min"),
    (60, "1 h"),
    (120, "2 h"),
    (240, "4 h"),
    (480, "8 h"),
    (24 * 60, "1 day"),
    (2 * 24 * 60, "2 days"),
    (7 * 24 * 60, "7 days"),
    (30 * 24 * 60, "30 days"),
)
"""Minutes, and what is told of them: each change of a text is a write of the status of each that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGpus:
    """An idle pod with what it holds."""

    idle: IdlePod
    pod: Pod
    at: int

    @property
    def gpu_count(self) -> int:
        return self.pod.requests.gpu_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pod or a gang that lacks capacity.  `place` takes its capacity on the copy, or returns False.

    `kind`: what the first of a kind does not get, no other of it gets.
    """

    name: PodName | JobName
    priority: int
    kind: object
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
                mine = [one for one in held if one.pod.priority <= waiting.priority]
                agreed = fewest_that_help(copy, waiting, [one for one in mine if is_due(copy, one.idle)])
                found += [reclaim_of(copy, one, waiting) for one in agreed]
                held = [one for one in held if one not in agreed]
                if not agreed:
                    unmet[waiting.kind] = fewest_that_help(copy, waiting, mine, keep=False)
            if helpful := agreed or unmet.get(waiting.kind, []):
                told.append((waiting, held_text(copy, helpful, is_agreed=bool(agreed)), helpful))
    copy.roll_back(start)
    for waiting, message, helpful in told:
        waiting.tell(message, helpful)
    return tuple(found)


def is_due(copy: WorkingCopy, idle: IdlePod) -> bool:
    """True if the pod may be given back now; if it may be later, the next plan is made then."""
    return isfinite(idle.due_at_s) and copy.is_due(idle.due_at_s)


def held_gpus(copy: WorkingCopy) -> list[HeldGpus]:
    """Return the idle pods of others that hold GPUs on an open node, those that are unused for longest first."""
    by_name = {idle.pod: idle for idle in copy.view.idle_pods}
    found = []
    for pod in copy.view.pods:
        idle = by_name.get(pod.name)
        at = None if idle is None else copy.capacity.open_place_of(pod)
        is_held = pod.role is Role.EXTERNAL and pod.phase is PodPhase.READY and pod.requests.gpu_count > 0
        if idle is not None and at is not None and is_held and pod.created_at_s <= idle.since_s <= copy.now_s:
            found.append(HeldGpus(idle=idle, pod=pod, at=at))
    return sorted(found, key=lambda one: (one.idle.since_s, one.pod.name))[:MOST_CANDIDATES]


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

        kind = (copy.shapes.number(pod.shape), pod.priority)
        yield Waiting(name=pod.name, priority=pod.priority, kind=kind, place=place, tell=tell)


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
        yield Waiting(name=job.spec.name, priority=job.spec.priority, kind=kind, place=place, tell=tell)


def is_waiting_gang(job: PlannedJob) -> bool:
    """True if the job lacks nothing but capacity for its start."""
    is_out = not job.is_running and not job.is_starting and job.spec.state is JobState.ACTIVE
    return is_out and not job.coming and job.bottleneck is Bottleneck.NODE_FIT


def fewest_that_help(
    copy: WorkingCopy, waiting: Waiting, held: Sequence[HeldGpus], *, keep: bool = True
) -> list[HeldGpus]:
    """Return the pods without which the waiting one fits; none if all of them together are not enough.

    First as few of the longest unused as are enough, then without those of them that do not matter.  `keep`: the room
    is taken for it on the copy, so that another one does not count on the same pods.
    """
    if not fits_without(copy, waiting, held, keep=False):
        return []
    count = next(number for number in range(1, len(held) + 1) if fits_without(copy, waiting, held[:number], keep=False))
    chosen = list(held[:count])
    for one in held[: count - 1]:
        others = [other for other in chosen if other is not one]
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


def held_text(copy: WorkingCopy, held: Sequence[HeldGpus], *, is_agreed: bool) -> str:
    """Return who holds the GPUs, since when unused, and what would free them, in one line."""
    count, pods = sum(one.gpu_count for one in held), listed(sorted({one.pod.name for one in held}))
    nodes = listed(sorted({copy.capacity.names[one.at] for one in held}))
    unused = unused_text(min(copy.now_s - one.idle.since_s for one in held))
    gpus = "1 GPU" if count == 1 else f"{count} GPUs"
    is_are = "is" if count == 1 else "are"
    text = f"{gpus} on {nodes} {is_are} held by {pods}, unused {unused}"
    if not is_agreed:
        kept = all((one.idle.kept_until_s or 0.0) > copy.now_s for one in held)
        return (
            f"{text}, and kept by their owner"
            if kept
            else f"{text}; opt-in would free {'it' if count == 1 else 'them'}"
        )
    if copy.policy.idle_reclaim is ReclaimMode.ACT and not copy.policy.is_frozen:
        return f"{text}; given back after a notice"
    return f"{text}; idleReclaim: act frees them"


def unused_text(seconds: float) -> str:
    """Return for how long somebody has not used a GPU, in words that seldom change."""
    told = [text for minutes, text in TOLD_STEPS if minutes * 60 <= seconds]
    return f"for over {told[-1]}" if told else "for under 5 min"
