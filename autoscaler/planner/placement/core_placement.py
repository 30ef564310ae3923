"""A node for each core pod of a job: what must be there for the job to run at all.

The pods are seated one after the other, largest first, each on the tightest node; on small clusters the search comes
back on a seat that leads nowhere.  It never seats what does not fit, and may miss a packing (ADR 0102).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.domain import Cause, NodeName, Role, Tier
from autoscaler.planner.placement.colocation import Piece, crowd_for, pieces_of, rooms_for
from autoscaler.planner.placement.node_choice import Crowd
from autoscaler.planner.placement.victims import Harm, Victims, cheapest_victims
from autoscaler.planner.placement.waste import ABOVE_SLACK, waste_of
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.ranks import full_rank
from autoscaler.planner.working_copy.working_copy import Draft

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


def seat_all(
    draft: Draft, job: JobDraft, roles: Iterable[Role], *, now: bool, avoid: Mask | None = None
) -> Seats | None:
    """Give every pod a node; None, with nothing changed, if that was not found."""
    roles = list(roles)
    if draft.quota_lack(job, roles, now=now):
        return None
    mark = draft.mark()
    seats = find_seats(draft, job, largest_first(draft, job, roles), now=now, avoid=avoid)
    draft.roll_back(mark)
    for role, node in seats or ():
        take_seat(draft, job, role, node, now=now)
    return seats


def find_seats(draft: Draft, job: JobDraft, roles: Sequence[Role], *, now: bool, avoid: Mask | None) -> Seats | None:
    """Search depth first, best node first; how often it comes back on a seat is bounded (`NODES_LOOKED_AT`).

    The rooms of what was found are left taken.
    """
    rooms, pieces = draft.rooms, pieces_of(draft, job, roles)
    nodes: list[int] = []
    branches: list[tuple[int, Iterator[int]]] = []
    for _ in range(len(pieces) + NODES_LOOKED_AT // max(1, int(rooms.is_open.sum()))):
        if len(nodes) == len(pieces):
            break
        piece = pieces[len(nodes)]
        if len(branches) == len(nodes):
            beside = server_nodes(pieces, nodes) if piece.role is Role.SERVER else ()
            found = rooms_for(draft, job, piece, now=now, avoid=avoid, stays=True, beside=beside)
            branches.append((len(rooms.log), found))
        at = next(branches[-1][1], None)
        if at is not None:
            rooms.take(at, piece.shape, now=now)
            nodes.append(at)
        elif nodes:
            branches.pop()
            nodes.pop()
            draft.roll_back(branches[-1][0])
        else:
            return None
    if len(nodes) < len(pieces):
        return None
    return [seat for piece, at in zip(pieces, nodes, strict=True) for seat in seats_of(draft, piece, at)]


def server_nodes(pieces: Sequence[Piece], nodes: Sequence[int]) -> Sequence[int]:
    """Return the nodes of the servers among the first pieces, which are seated on these."""
    return [at for piece, at in zip(pieces, nodes, strict=False) if piece.role is Role.SERVER]


def seats_of(draft: Draft, piece: Piece, at: int) -> Seats:
    """Return the seats of a piece on a node, one for each pod."""
    return [(piece.role, draft.rooms.names[at])] * piece.copies


def seat_on(draft: Draft, job: JobDraft, seats: Iterable[tuple[Role, NodeName]], *, now: bool) -> bool:
    """Promise these very seats; False, with the draft spoiled, if one is no longer there.  Work on a trial."""
    seats = list(seats)
    if draft.quota_lack(job, [role for role, _ in seats], now=now):
        return False
    for role, node in seats:
        at = draft.rooms.index.get(node)
        if at is None or not draft.rooms.fits(at, job.shapes[role], now=now):
            return False
        take_seat(draft, job, role, node, now=now)
    return True


def seat_by_force(
    draft: Draft, job: JobDraft, roles: Iterable[Role], force: Force, *, avoid: Mask | None = None
) -> Seats | None:
    """As `seat_all` into room that is or will be free, taking surplus where there is none.  Work on a trial."""
    seats: Seats = []
    roles = list(roles)
    if draft.quota_lack(job, roles, now=False):
        return None
    for piece in pieces_of(draft, job, largest_first(draft, job, roles)):
        at = next(rooms_for(draft, job, piece, now=False, avoid=avoid, stays=True), None)
        if at is None:
            at = vacate_for(draft, job, piece, force, avoid)
        if at is None:
            return None
        for role, node in seats_of(draft, piece, at):
            take_seat(draft, job, role, node, now=False)
            seats.append((role, node))
    return seats


def vacate_for(draft: Draft, job: JobDraft, piece: Piece, force: Force, avoid: Mask | None) -> int | None:
    """Tell the cheapest surplus to leave so that the piece fits, and return the node; None if no surplus helps."""
    victims = cheapest_victims(
        draft,
        piece.shape,
        full_rank(job.job.priority),
        avoid=avoid,
        spare_priority=force.spare_priority,
        harm=harm_of_swap(draft, piece.shape, crowd_for(draft, job, piece.role)),
    )
    if victims is None:
        return None
    for owner, pods in victims.taken:
        draft.shrink(owner, pods, Cause.CORE_SWAP if owner is job else force.cause, beneficiary=job.job.name)
    return victims.at


def harm_of_swap(draft: Draft, shape: int, crowd: Crowd) -> Callable[[Victims], Harm] | None:
    """Return what it costs a node to have the pod in place of these trainers; None where waste is not weighed."""
    waste = waste_of(draft)
    if not waste.is_weighed:
        return None
    return lambda victims: (
        0,
        waste.cost(victims.at, shape, stays=True) + crowd.get(victims.at, 0.0) * ABOVE_SLACK,
    )


def take_seat(draft: Draft, job: JobDraft, role: Role, node: NodeName, *, now: bool) -> None:
    """Give the pod its seat: created now, or promised."""
    if now:
        draft.create(job, role, Tier.CORE, node, Cause.REFILL if job.is_running else Cause.START)
    else:
        draft.promise(job, role, Tier.CORE, node)


def largest_first(draft: Draft, job: JobDraft, roles: Iterable[Role]) -> list[Role]:
    """Order roles by the part of the cluster that one pod takes, largest first."""
    parts = {role: draft.part(job, [role]) for role in Role if role in job.shapes}
    return sorted(roles, key=lambda role: (-parts[role], role))
