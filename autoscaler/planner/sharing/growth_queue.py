"""Who takes the next step: the job with the lowest weighted dominant share, and of such the larger next share.

A settled job's thirst stands until a pod of it comes or goes, so jobs of one shape wait in a line that is kept from
plan to plan.  A fill merges the lines of the shapes that fit somewhere: it looks at whoever stands in front, not at
everybody.  Next: `share`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Final

from autoscaler.domain import DEFAULT_WEIGHT, Bottleneck, Fairness, JobState, Role
from autoscaler.planner.working_copy.fairness import claim_of
from autoscaler.planner.working_copy.planned_job import JobDraft, Thirst
from autoscaler.planner.working_copy.working_copy import Draft

NOBODY: Final[Iterator[JobDraft]] = iter(())


class Queue:
    """The jobs of one fill that may take a step, the thirstiest first; with `above_priority` those above it."""

    def __init__(self, draft: Draft, above_priority: int | None) -> None:
        self._draft = draft
        self._above = above_priority
        # The front of each line, and who stands behind.  A key ends in the job's name, so no two are equal; keys only
        # rise, so an old one comes too early.
        self._fronts: list[tuple[Thirst, JobDraft, Iterator[JobDraft]]] = []

    def add(self, shape: int, stirred: Sequence[JobDraft]) -> None:
        """Take in the jobs of a shape; of the stirred ones those that are thirsty."""
        draft = self._draft
        if draft.policy.fairness is Fairness.JOB:
            self._push_next(iter(line_of(draft, shape)))
        else:  # what one takes moves others
            for job in draft.drinkers.get(shape, ()):
                self._push_next(iter([job]))
        for job in stirred:
            if is_thirsty(draft, job) and self._is_asked(job):
                heappush(self._fronts, (thirst(draft, job), job, NOBODY))

    def first(self, shapes: Collection[int]) -> JobDraft | None:
        """Return the thirstiest job of these shapes, who stays in front; None if there is none."""
        while self._fronts:
            key, job, behind = self._fronts[0]
            if job.shapes[Role.TRAINER] not in shapes:
                heappop(self._fronts)
            elif (present := thirst(self._draft, job)) != key:
                heapreplace(self._fronts, (present, job, behind))
            else:
                return job
        return None

    def pass_on(self, *, still_thirsty: bool) -> None:
        """Let the next one of the line come after the first, who waits for another step or leaves."""
        _, job, behind = heappop(self._fronts)
        self._push_next(behind)
        if still_thirsty:
            heappush(self._fronts, (thirst(self._draft, job), job, NOBODY))

    def _push_next(self, line: Iterator[JobDraft]) -> None:
        """The next one who is as in the view: the stirred ones stand for themselves."""
        draft = self._draft
        job = next((job for job in line if job.job.name not in draft.stirred and not is_held_back(draft, job)), None)
        if job is not None and self._is_asked(job):  # lower classes stand behind, so if not, nobody who follows is
            heappush(self._fronts, (thirst(self._draft, job), job, line))

    def _is_asked(self, job: JobDraft) -> bool:
        return self._above is None or job.job.priority > self._above


def line_of(draft: Draft, shape: int) -> Sequence[JobDraft]:
    """Return the jobs of a shape that may drink in the view, the thirstiest first; stirred ones stand anywhere."""
    line = draft.lines.get(shape)
    if line is None:
        drinkers = draft.drinkers.get(shape, ())
        line = sorted(drinkers, key=lambda job: thirst(draft, job))
        if not any(job.job.name in draft.stirred for job in drinkers):
            draft.lines[shape] = line
    return line


def is_thirsty(draft: Draft, job: JobDraft) -> bool:
    """Whether the job has its minimum, or the promise of it, and may take its next size."""
    if is_held_back(draft, job):
        return False
    if job.job.name not in draft.stirred:
        return job.may_drink
    return step_of(job) > 0 and may_grow(draft, job)


def is_held_back(draft: Draft, job: JobDraft) -> bool:
    """Whether its next size is too large while jobs are submitted in a row (`Policy.burst_window_s`)."""
    if draft.now_s >= draft.burst_until_s:
        return False
    return share_after_step(draft, job) * DEFAULT_WEIGHT * draft.policy.burst_part > draft.unit


def may_grow(draft: Draft, job: JobDraft) -> bool:
    """Whether the job has its minimum, or the promise of it, and may have more."""
    if job.job.state is not JobState.ACTIVE or job.size < job.job.trainer.min_replicas:
        return False
    if job.job.name in draft.unpaid:
        return False
    if job.is_running and draft.now_s < job.job.hold_until_s:
        job.block(Bottleneck.COOLDOWN, "pause after failures", until_s=job.job.hold_until_s)
        return False
    return True


def thirst(draft: Draft, job: JobDraft) -> Thirst:
    """Sort key: who takes the next step.  Kept until a pod of the job comes or goes."""
    if job.thirst is None or draft.policy.fairness is not Fairness.JOB:
        job.thirst = (-job.job.priority, claim_of(draft, job), -share_after_step(draft, job), job.job.name)
    return job.thirst


def step_of(job: JobDraft) -> int:
    """Trainers that the job's next size adds to those it has; 0 at the ceiling."""
    size = job.size
    if job.next_step is None or job.next_step[0] != size:
        following = job.job.trainer.next_size(size)
        job.next_step = (size, 0 if following is None else following - size)
    return job.next_step[1]


def share_after_step(draft: Draft, job: JobDraft) -> int:
    """The share that the next size would bring."""
    return draft.share(job, more=step_of(job))


STARVED: Final = frozenset({Bottleneck.NODE_FIT, Bottleneck.STEP})
"""A job with one of these lacks room alone: `explain` says whose room it is."""


def is_starved(draft: Draft, job: JobDraft) -> bool:
    """Whether room, which some node has when it is empty, keeps the job from its next size.  After `fill_shares`."""
    return (job.is_running or job.is_starting) and may_grow(draft, job) and step_of(job) > 0
