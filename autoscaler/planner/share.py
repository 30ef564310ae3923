"""P5: what is left is shared out.

Water-filling: again and again the job with the lowest weighted dominant share takes its next step; ties go to the
larger next share, then to the name.  For one resource and equal replicas this greedy is exactly leximin, and only with
that tie rule.  Higher priorities drink first.  A job freezes at its first bottleneck, which is recorded.  Nothing is
taken from anybody here: growth only, from the kept state.  Next: `transfer`.
"""

from __future__ import annotations

from fractions import Fraction
from heapq import heapify, heappop, heapreplace

from autoscaler.domain import Bottleneck, Cause, JobState, NodeName, Resources, Role
from autoscaler.planner.draft import Draft
from autoscaler.planner.fit import fits_an_empty_node, nearest_room, tightest_room
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.words import describe, describe_lack

Key = tuple[int, Fraction, Fraction, str]


def fill_shares(draft: Draft, *, above_priority: int | None = None) -> None:
    """Grow jobs until each stands at a bottleneck; with `above_priority` only those of higher classes."""
    thirsty = [
        (thirst(draft, job), job)
        for job in draft.jobs.values()
        if may_grow(draft, job) and (above_priority is None or job.job.priority > above_priority)
    ]
    heapify(thirsty)  # a key ends in the job's name, so no two are equal; a step changes its own job's key alone
    while thirsty:
        _, job = thirsty[0]
        if take_step(draft, job):
            heapreplace(thirsty, (thirst(draft, job), job))
        else:
            heappop(thirsty)


def may_grow(draft: Draft, job: JobDraft) -> bool:
    """Whether the job has its minimum, or the promise of it, and may have more."""
    if job.job.state is not JobState.ACTIVE or job.size < job.job.trainer.min_replicas:
        return False
    if job.is_running and draft.now_s < job.job.hold_until_s:
        job.block(Bottleneck.COOLDOWN, "pause after failures", until_s=job.job.hold_until_s)
        return False
    return True


def thirst(draft: Draft, job: JobDraft) -> Key:
    """Sort key: who takes the next step."""
    return (-job.job.priority, draft.share(job), -share_after_step(draft, job), job.job.name)


def step_of(job: JobDraft) -> int:
    """Trainers that the job's next size adds to those it has; 0 at the ceiling."""
    following = job.job.trainer.next_size(job.size)
    return 0 if following is None else following - job.size


def share_after_step(draft: Draft, job: JobDraft) -> Fraction:
    """The share that the next size would bring."""
    added = job.usage.plus(job.job.trainer.shape.requests, times=step_of(job))
    return draft.share(job, usage=added)


def take_step(draft: Draft, job: JobDraft) -> bool:
    """Place the trainers of the next size; False, with the bottleneck noted, if they do not all fit."""
    count = step_of(job)
    if count == 0:
        block_at_ceiling(job)
        return False
    placed = find_places(draft, job, count)
    if len(placed) < count:
        block_without_room(draft, job, count, len(placed))
        return False
    for node, now in placed:
        tier = job.next_trainer_tier()
        if now:
            draft.create(job, Role.TRAINER, tier, node, Cause.FREE_ROOM)
        else:
            draft.promise(job, Role.TRAINER, tier, node)
    return True


def find_places(draft: Draft, job: JobDraft, count: int) -> list[tuple[NodeName, bool]]:
    """Return up to `count` (node, whether its room is free now); the rooms are left as they were."""
    shape = job.job.trainer.shape
    placed: list[tuple[NodeName, bool]] = []
    before: dict[NodeName, tuple[Resources, Resources]] = {}
    for _ in range(count):
        room = tightest_room(draft, shape, now=True)
        now = room is not None
        room = room or tightest_room(draft, shape, now=False)
        if room is None:
            break
        before.setdefault(room.node.name, (room.free, room.later))
        room.take(shape.requests, now=now)
        placed.append((room.node.name, now))
    for name, (free, later) in before.items():
        draft.rooms[name].free, draft.rooms[name].later = free, later
    return placed


def block_at_ceiling(job: JobDraft) -> None:
    """The job has all that it may have."""
    spec = job.job.trainer
    if spec.pinned_replicas:
        freeze(job, Bottleneck.PINNED, f"trainer.replicas pins it at {spec.pinned_replicas}")
    else:
        freeze(job, Bottleneck.MAX, f"at maxReplicas {spec.max_replicas}")


def block_without_room(draft: Draft, job: JobDraft, count: int, placed: int) -> None:
    """Say what is missing for the next size, and on which node it comes nearest."""
    shape = job.job.trainer.shape
    if not fits_an_empty_node(draft, shape):
        freeze(job, Bottleneck.NEVER_FITS, f"no node, even empty, holds a trainer ({describe(shape.requests)})")
        return
    if placed:
        freeze(job, Bottleneck.STEP, f"{placed} of the {count} trainers of its next step fit")
        return
    room = nearest_room(draft, shape)
    if room is None:
        freeze(job, Bottleneck.NODE_FIT, "no open node accepts its trainers")
        return
    needs, has = describe_lack(shape.requests, room.later)
    freeze(job, Bottleneck.NODE_FIT, f"could grow with {needs} on one node; {room.node.name} has {has}")


def freeze(job: JobDraft, bottleneck: Bottleneck, message: str) -> None:
    """Note the bottleneck, unless the job has not started: what it waits for then stays the answer."""
    if job.is_running or job.is_starting:
        job.block(bottleneck, message)
