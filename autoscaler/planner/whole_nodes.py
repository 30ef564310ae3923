"""Trainers that come `perNode` to a node: they are placed as one, and leave node by node.

A unit is `perNode` trainers in one request, so that fits, waste and victims need not know of it.  A single trainer is
placed only to complete a node from which one was lost; where that is impossible it goes wherever it fits, since a
running job needs its minimum more than its shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby

from autoscaler.domain import Role
from autoscaler.planner.apart import crowd_for
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.node_arrays import Mask
from autoscaler.planner.shapes import unit_of
from autoscaler.planner.waste import rooms_by_waste


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """So many pods of a role that stand on one node, and the number of the shape that they are together."""

    role: Role
    shape: int
    copies: int = 1


def pieces_of(draft: Draft, job: JobDraft, roles: Iterable[Role]) -> list[Piece]:
    """Return pods of these roles, in this order, as what is placed at once."""
    pieces: list[Piece] = []
    for role, group in groupby(roles):
        count = len(list(group))
        per_node = job.job.trainer.per_node if role is Role.TRAINER else 1
        if per_node > 1:
            unit = draft.shapes.number(unit_of(job.job.trainer))
            pieces += [Piece(role=role, shape=unit, copies=per_node)] * (count // per_node)
            count %= per_node
        pieces += [Piece(role=role, shape=job.shapes[role])] * count
    return pieces


def rooms_for(
    draft: Draft,
    job: JobDraft,
    piece: Piece,
    *,
    now: bool,
    avoid: Mask | None = None,
    stays: bool = False,
    beside: Iterable[int] = (),
) -> Iterator[int]:
    """Yield the nodes for a piece, best first: for a single trainer those that it completes, then by waste.

    `beside`: where servers of the job will stand that the draft does not know of yet.
    """
    crowd = crowd_for(draft, job, piece.role, beside)
    found = rooms_by_waste(draft, piece.shape, now=now, avoid=avoid, stays=stays, crowd=crowd)
    if piece.role is not Role.TRAINER or job.job.trainer.per_node == piece.copies:
        return found
    first = [
        at
        for at in incomplete_nodes(draft, job)
        if draft.rooms.fits(at, piece.shape, now=now) and (avoid is None or not avoid[at])
    ]
    return chain(first, (at for at in found if at not in first))


def incomplete_nodes(draft: Draft, job: JobDraft) -> list[int]:
    """Return the nodes on which some of the job's trainers stand or will stand, and not a whole number of units."""
    places = Counter(at for pod in job.trainers if (at := draft.rooms.place_of(pod)) is not None)
    places.update(draft.rooms.index[pod.node] for pod in job.coming if pod.role is Role.TRAINER)
    return sorted(at for at, count in places.items() if count % job.job.trainer.per_node)
