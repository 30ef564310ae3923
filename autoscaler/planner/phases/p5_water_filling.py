"""P5: what is left is shared out.

Water-filling: again and again the job with the lowest weighted dominant share takes its next step; ties go to the
larger next share, then to the name.  For one resource and equal replicas this greedy is exactly leximin, and only with
that tie rule.  Higher priorities drink first.  A job freezes at its first bottleneck, which is recorded.  Nothing is
taken from anybody here: growth only, from the kept state.  Next: `transfer`.
"""

from __future__ import annotations

from typing import Final

from autoscaler.domain import Bottleneck, Cause, Role
from autoscaler.planner.formatting import describe_shape
from autoscaler.planner.placement.colocation import Piece, pieces_of, rooms_for
from autoscaler.planner.placement.node_choice import fits_an_empty_node, least_waste
from autoscaler.planner.sharing.elastic_servers import awaits_servers, place_servers, servers_held, servers_wanted
from autoscaler.planner.sharing.growth_queue import Queue, is_held_back, may_grow, step_of
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.working_copy import Draft

TRAINER: Final = (Role.TRAINER,)


def fill_shares(draft: Draft, *, above_priority: int | None = None) -> None:
    """Grow jobs until none can take its next step; with `above_priority` only those of higher classes.

    Rooms only shrink here, so a job that found no room has none until the end and costs nothing more.
    """
    rooms = draft.rooms
    stirred: dict[int, list[JobDraft]] = {}
    for name in draft.stirred:
        stirred.setdefault(draft.jobs[name].shapes[Role.TRAINER], []).append(draft.jobs[name])
    wet = rooms.fit_somewhere(draft.drinkers.keys() | stirred.keys())  # shapes that fit somewhere
    queue = Queue(draft, above_priority)
    for shape in wet:
        queue.add(shape, stirred.get(shape, ()))
    while wet and (job := queue.first(wet)) is not None:
        if rooms.tightest(job.shapes[Role.TRAINER], now=False) < 0:
            wet = rooms.fit_somewhere(wet)
        else:
            has_grown = take_step(draft, job)
            queue.pass_on(still_thirsty=has_grown and step_of(job) > 0 and not is_held_back(draft, job))


def take_step(draft: Draft, job: JobDraft) -> bool:
    """Place the trainers of the next size; False, with nothing changed, if they do not all fit."""
    count, size = step_of(job), job.size
    is_elastic = draft.view.capabilities.servers_elastic
    needs_servers = is_elastic and servers_wanted(draft, job, size + count) > servers_held(job)
    if count == 1 and job.job.trainer.per_node == 1 and not needs_servers:
        return place_one(draft, job)
    mark = draft.mark()
    has_servers = not needs_servers or place_servers(draft, job, size + count, Cause.FREE_ROOM)
    if has_servers and grow(draft, job, count) == count:
        return True
    draft.roll_back(mark)
    return False


def grow(draft: Draft, job: JobDraft, count: int) -> int:
    """Place up to so many trainers, node by node where they come several to a node; return how many."""
    placed = 0
    if job.job.trainer.per_node == 1:
        while placed < count and place_one(draft, job):
            placed += 1
        return placed
    for piece in pieces_of(draft, job, [Role.TRAINER] * count):
        if not place_unit(draft, job, piece):
            break
        placed += piece.copies
    return placed


def place_one(draft: Draft, job: JobDraft) -> bool:
    """Create a trainer into free room, else promise it room that is being vacated; False if there is neither."""
    if draft.quota_lack(job, TRAINER, now=False):
        return False
    shape, names = job.shapes[Role.TRAINER], draft.rooms.names
    tier = job.next_trainer_tier()
    must_wait = draft.quota_lack(job, TRAINER, now=True) or awaits_servers(draft, job, job.size + 1)
    at = None if must_wait else least_waste(draft, shape, now=True)
    if at is not None:
        draft.create(job, Role.TRAINER, tier, names[at], Cause.FREE_ROOM)
    elif (at := least_waste(draft, shape, now=False)) is not None:
        draft.promise(job, Role.TRAINER, tier, names[at])
    return at is not None


def place_unit(draft: Draft, job: JobDraft, piece: Piece) -> bool:
    """As `place_one`, for trainers that come to a node together."""
    roles = [piece.role] * piece.copies
    if draft.quota_lack(job, roles, now=False):
        return False
    must_wait = draft.quota_lack(job, roles, now=True) or awaits_servers(draft, job, job.size + piece.copies)
    at = None if must_wait else next(rooms_for(draft, job, piece, now=True), None)
    is_free = at is not None
    if at is None:
        at = next(rooms_for(draft, job, piece, now=False), None)
    if at is None:
        return False
    node = draft.rooms.names[at]
    for _ in roles:
        tier = job.next_trainer_tier()
        if is_free:
            draft.create(job, Role.TRAINER, tier, node, Cause.FREE_ROOM)
        else:
            draft.promise(job, Role.TRAINER, tier, node)
    return True


def note_bottlenecks(draft: Draft) -> None:
    """Say of each job that may grow what keeps it from its next size.  After `fill_shares`.

    A job that has not started keeps what it waits for.  Whose room it is that is missing says `explain`.
    """
    wet = draft.rooms.fit_somewhere(draft.by_trainer)
    for shape, jobs in draft.by_trainer.items():
        of_one: dict[int, tuple[Bottleneck, str]] = {}  # by trainers to a node: for a step of one trainer
        for job in jobs:
            is_settled = job.job.name not in draft.stirred
            if not is_settled and not has_minimum(draft, job):
                continue
            count = 0 if is_settled and not job.may_drink else step_of(job)
            per_node = job.job.trainer.per_node
            if count == 0:
                block_at_ceiling(job)
            elif is_held_back(draft, job):
                message = (
                    f"none grows beyond 1/{draft.policy.burst_part} of the cluster while jobs are submitted in a row"
                )
                job.block(Bottleneck.COOLDOWN, message, until_s=draft.burst_until_s)
            elif count > 1 or draft.quotas is not None:
                job.block(*why_no_room(draft, job, count, fits=shape in wet))
            else:
                if per_node not in of_one:
                    of_one[per_node] = why_no_room(draft, job, 1, fits=shape in wet)
                job.block(*of_one[per_node])


def has_minimum(draft: Draft, job: JobDraft) -> bool:
    """Whether only its next size is the question."""
    is_there = (job.is_running or job.is_starting) and job.job.name not in draft.short
    return is_there and may_grow(draft, job)


def block_at_ceiling(job: JobDraft) -> None:
    """The job has all that it may have."""
    spec = job.job.trainer
    if spec.pinned_replicas:
        job.block(Bottleneck.PINNED, f"trainer.replicas pins it at {spec.pinned_replicas}")
    else:
        job.block(Bottleneck.MAX, f"at maxReplicas {spec.max_replicas}")


def why_no_room(draft: Draft, job: JobDraft, count: int, *, fits: bool) -> tuple[Bottleneck, str]:
    """Return why the next size does not fit: not on any node, not whole, or not now; `fits`: one trainer would."""
    if not fits_an_empty_node(draft, job.shapes[Role.TRAINER]):
        return Bottleneck.NEVER_FITS, f"no node, even empty, holds a trainer ({describe_shape(job.job.trainer.shape)})"
    if why := draft.quota_lack(job, [Role.TRAINER] * count, now=False):
        return Bottleneck.QUOTA, why
    if fits and count > 1 and (placed := places_left(draft, job, count)):
        return Bottleneck.STEP, f"{placed} of the {count} trainers of its next step fit"
    if fits and job.job.trainer.per_node == 1:
        return Bottleneck.NODE_FIT, "the free cpu and memory on GPU nodes are kept for their GPUs"
    return Bottleneck.NODE_FIT, ""


def places_left(draft: Draft, job: JobDraft, count: int) -> int:
    """How many of the next step's trainers still fit."""
    mark = draft.mark()
    placed = grow(draft, job, count)
    draft.roll_back(mark)
    return placed
