"""A node for each core pod of a job: what must be there for the job to run at all.

The pods are seated one after the other, largest first, each on the tightest node; on small clusters the search comes
back on a seat that leads nowhere.  It never seats what does not fit, and may miss a packing (docs/adr/0102).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from autoscaler.domain import Cause, NodeName, Role, Shape, Tier
from autoscaler.planner.draft import Draft, Room
from autoscaler.planner.fit import rooms_by_tightness, tightest_room
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.rank import full_rank
from autoscaler.planner.victims import cheapest_victims

NODES_LOOKED_AT: Final = 400  # 100 second thoughts on 4 nodes, 4 on 100: enough where every hole counts

Seats = list[tuple[Role, NodeName]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Force:
    """Permission to take surplus for a seat: on whose behalf, and which surplus stays out of reach."""

    cause: Cause
    spare_priority: int | None = None


def core_of(job: JobDraft) -> list[Role]:
    """Return the roles of all core pods that the job needs, one entry per pod."""
    spec = job.job
    roles = [Role.MASTER] * spec.master.replicas + [Role.SERVER] * spec.server_count
    return roles + [Role.TRAINER] * spec.trainer.min_replicas


def missing_core(draft: Draft, job: JobDraft) -> list[Role]:
    """Return the roles of the core pods that a running job lacks."""
    spec = job.job
    masters = 0 if draft.view.capabilities.replaces_masters else max(0, spec.master.replicas - len(job.masters))
    servers = max(0, spec.server_count - len(job.servers))
    trainers = max(0, spec.trainer.min_replicas - len(job.trainers))
    return [Role.MASTER] * masters + [Role.SERVER] * servers + [Role.TRAINER] * trainers


def seat_all(
    draft: Draft, job: JobDraft, roles: Iterable[Role], *, now: bool, avoid: Collection[NodeName] = ()
) -> Seats | None:
    """Give every pod a node; None, with nothing changed, if that was not found."""
    seats = find_seats(draft, job, largest_first(draft, job, roles), now=now, avoid=avoid)
    for role, node in seats or ():
        take_seat(draft, job, role, node, now=now)
    return seats


def find_seats(
    draft: Draft, job: JobDraft, roles: Sequence[Role], *, now: bool, avoid: Collection[NodeName]
) -> Seats | None:
    """Search depth first, tightest node first; how often it comes back on a seat is bounded (`NODES_LOOKED_AT`)."""
    trial = replace(draft, rooms={name: replace(room) for name, room in draft.rooms.items() if name not in avoid})
    seats: Seats = []
    branches: list[Iterator[Room]] = []
    for _ in range(len(roles) + NODES_LOOKED_AT // max(1, len(trial.rooms))):
        if len(seats) == len(roles):
            break
        shape = job.shape_of(roles[len(seats)])
        if len(branches) == len(seats):
            branches.append(iter(rooms_by_tightness(trial, shape, now=now)))
        room = next(branches[-1], None)
        if room is not None:
            room.take(shape.requests, now=now)
            seats.append((roles[len(seats)], room.node.name))
        elif seats:
            branches.pop()
            role, node = seats.pop()
            trial.rooms[node].give_back(job.shape_of(role).requests, now=now)
        else:
            return None
    return seats if len(seats) == len(roles) else None


def seat_on(draft: Draft, job: JobDraft, seats: Iterable[tuple[Role, NodeName]], *, now: bool) -> bool:
    """Promise these very seats; False, with the draft spoiled, if one is no longer there.  Work on a copy."""
    for role, node in seats:
        shape = job.shape_of(role)
        room = draft.rooms.get(node)
        if room is None or not room.node.accepts(shape) or not room.has(shape.requests, now=now):
            return False
        take_seat(draft, job, role, node, now=now)
    return True


def seat_by_force(
    draft: Draft, job: JobDraft, roles: Iterable[Role], force: Force, *, avoid: Collection[NodeName] = ()
) -> Seats | None:
    """As `seat_all` into room that is or will be free, taking surplus where there is none.  Work on a copy."""
    seats: Seats = []
    for role in largest_first(draft, job, roles):
        shape = job.shape_of(role)
        room = tightest_room(draft, shape, now=False, avoid=avoid)
        node = room.node.name if room is not None else vacate_for(draft, job, shape, force, avoid)
        if node is None:
            return None
        take_seat(draft, job, role, node, now=False)
        seats.append((role, node))
    return seats


def vacate_for(draft: Draft, job: JobDraft, shape: Shape, force: Force, avoid: Collection[NodeName]) -> NodeName | None:
    """Tell the cheapest surplus to leave so that the shape fits, and return the node; None if no surplus helps."""
    victims = cheapest_victims(
        draft, shape, full_rank(job.job.priority), avoid=frozenset(avoid), spare_priority=force.spare_priority
    )
    if victims is None:
        return None
    for name, pods in victims.taken:
        owner = draft.jobs[name]
        draft.shrink(owner, pods, Cause.CORE_SWAP if owner is job else force.cause, beneficiary=job.job.name)
    return victims.room.node.name


def take_seat(draft: Draft, job: JobDraft, role: Role, node: NodeName, *, now: bool) -> None:
    """Give the pod its seat: created now, or promised."""
    if now:
        draft.create(job, role, Tier.CORE, node, Cause.REFILL if job.is_running else Cause.START)
    else:
        draft.promise(job, role, Tier.CORE, node)


def largest_first(draft: Draft, job: JobDraft, roles: Iterable[Role]) -> list[Role]:
    """Order roles by the part of the cluster that one pod takes, largest first."""

    def part(role: Role) -> Fraction:
        return draft.share(job, usage=job.shape_of(role).requests)

    return sorted(roles, key=lambda role: (-part(role), role))
