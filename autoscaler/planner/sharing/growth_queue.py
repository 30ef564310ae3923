"""Growth queue: which job takes the next step, by lowest weighted dominant share, then by larger next share.

A steady job's key (`growth_key`) stands until a pod of it comes or goes, so growable jobs of one shape are kept as a
sorted list between plans. A fill merges the lists of the shapes that fit somewhere and reads only their first jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Final

from autoscaler.domain import DEFAULT_WEIGHT, Bottleneck, Cause, Fairness, JobState, Role
from autoscaler.planner.working_copy.fairness import fairness_key
from autoscaler.planner.working_copy.planned_job import GrowthKey, PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

END_OF_LINE: Final[Iterator[PlannedJob]] = iter(())

CAPACITY_BOTTLENECKS: Final = frozenset({Bottleneck.NODE_FIT, Bottleneck.STEP})
"""A job with one of these lacks only capacity: `explain` names the jobs that occupy it."""


class GrowthQueue:
    """The jobs of one fill that may take a step, lowest key first; with `above_priority` only those of higher
    classes."""

    def __init__(self, copy: WorkingCopy, above_priority: int | None) -> None:
        self._copy = copy
        self._above = above_priority
        # Heap of the first job of each list, and the position of the next.  A key ends in the job's name, so no two
        # are equal; keys only rise, so an old one comes too early.
        self._fronts: list[tuple[GrowthKey, PlannedJob, Iterator[PlannedJob]]] = []

    def add(self, shape: int, dirty: Sequence[PlannedJob]) -> None:
        """Add the growable jobs of a shape, and those of its dirty jobs that may take a step."""
        copy = self._copy
        if copy.policy.fairness is not Fairness.NAMESPACE:
            self._push_next(iter(growth_line(copy, shape)))
        else:  # what one job takes changes others' keys
            for job in copy.growable.get(shape, ()):
                self._push_next(iter([job]))
        for job in dirty:
            if can_take_step(copy, job) and self._is_included(job):
                heappush(self._fronts, (growth_key(copy, job), job, END_OF_LINE))

    def first(self, shapes: Collection[int]) -> PlannedJob | None:
        """Return the first job of these shapes, which stays in front; None if there is none."""
        while self._fronts:
            key, job, behind = self._fronts[0]
            if job.shapes[Role.TRAINER] not in shapes:
                heappop(self._fronts)
            elif (present := growth_key(self._copy, job)) != key:
                heapreplace(self._fronts, (present, job, behind))
            else:
                return job
        return None

    def advance(self, *, can_still_grow: bool) -> None:
        """Let the next job of the line come after the first one, which waits for another step or leaves the queue."""
        _, job, behind = heappop(self._fronts)
        self._push_next(behind)
        if can_still_grow:
            heappush(self._fronts, (growth_key(self._copy, job), job, END_OF_LINE))

    def _push_next(self, line: Iterator[PlannedJob]) -> None:
        """Push the next job of the line that is as in the view; dirty jobs are pushed one by one."""
        copy = self._copy
        job = next((job for job in line if job.spec.name not in copy.dirty and not is_held_back(copy, job)), None)
        if job is not None and self._is_included(job):  # later jobs have lower classes, so none of them is either
            heappush(self._fronts, (growth_key(self._copy, job), job, line))

    def _is_included(self, job: PlannedJob) -> bool:
        return self._above is None or job.spec.priority > self._above


def growth_line(copy: WorkingCopy, shape: int) -> Sequence[PlannedJob]:
    """Return the growable jobs of a shape, lowest key first; dirty ones are not in order."""
    line = copy.growth_lines.get(shape)
    if line is None:
        growable = copy.growable.get(shape, ())
        line = sorted(growable, key=lambda job: growth_key(copy, job))
        if not any(job.spec.name in copy.dirty for job in growable):
            copy.growth_lines[shape] = line
    return line


def can_take_step(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if the job has its minimum, or a reservation for it, and may take its next size."""
    if is_held_back(copy, job):
        return False
    if job.spec.name not in copy.dirty:
        return job.can_grow
    return step_of(job) > 0 and may_grow(copy, job)


def is_held_back(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if the next size is too large during a burst of submissions (`Policy.burst_window_s`)."""
    if copy.now_s >= copy.burst_until_s:
        return False
    return job.share(more=step_of(job)) * DEFAULT_WEIGHT * copy.policy.burst_part > copy.share_unit


def may_grow(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if the job has its minimum, or a reservation for it, and may have more."""
    if job.spec.state is not JobState.ACTIVE or job.size < job.spec.trainer.min_replicas:
        return False
    if job.spec.name in copy.unpaid:
        return False
    if job.is_running and copy.now_s < job.spec.hold_until_s:
        job.block(Bottleneck.COOLDOWN, job.hold_text, until_s=job.spec.hold_until_s)
        return False
    return not is_idle(copy, job)


def is_idle(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if trainers of the job do no work, or went to others for that a while ago: more of them would do none.

    What it lacks of its minimum it gets all the same (P2).
    """
    count, given_at_s = len(job.idle_trainers()), copy.carried.idle_gifts_at_s.get(job.spec.name)
    if count:
        which = "1 of its trainers does" if count == 1 else f"{count} of its trainers do"
        spare = "it keeps its minimum" if not job.spare else "those above its minimum go to whoever waits"
        job.block(Bottleneck.IDLE, f"{which} no work: {spare}")
        return True
    if any(leaving.cause is Cause.IDLE for leaving in job.leaving):
        return True
    if given_at_s is not None:
        until_s = given_at_s + copy.policy.idle_pause_s
        job.block(Bottleneck.IDLE, "gave away a trainer that did no work, and pauses", until_s=until_s)
    return given_at_s is not None


def growth_key(copy: WorkingCopy, job: PlannedJob) -> GrowthKey:
    """Return the sort key of growth: priority, fairness key, next share, name. Kept until a pod of the job comes or
    goes."""
    if job.growth_key is None or copy.policy.fairness is Fairness.NAMESPACE:
        job.growth_key = (-job.spec.priority, fairness_key(copy, job), -share_after_step(job), job.spec.name)
    return job.growth_key


def step_of(job: PlannedJob) -> int:
    """Return how many trainers the next size adds; 0 at the ceiling, and where they would bring too little."""
    size = job.size
    if job.is_probing:
        return 0
    if job.next_step is None or job.next_step[0] != size:
        following = job.spec.trainer.next_size(size)
        pays = following is not None and (following <= job.worthwhile or size < job.spec.trainer.min_replicas)
        job.next_step = (size, following - size if following is not None and pays else 0)
    return job.next_step[1]


def share_after_step(job: PlannedJob) -> int:
    """Return what the job would have at its next size (`attained`)."""
    return job.attained(more=step_of(job))


def lacks_capacity(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if only capacity keeps the job from its next size. To be called after `fill_shares`."""
    return (job.is_running or job.is_starting) and may_grow(copy, job) and step_of(job) > 0
