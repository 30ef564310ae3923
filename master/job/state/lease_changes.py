"""Changes of leases in the dispatch state: grant, ack, return, renew, drop, reclaim (rules 3, 10 to 18; M2)."""

from __future__ import annotations

from collections.abc import Iterable

from master.api.identities import Incarnation, Lease, LeaseToken, Lineage, Term
from master.api.positions import EMPTY, PositionSet, union
from master.job.domain.durable_records import Instant
from master.job.domain.frozen_map import copy_with
from master.job.state.dispatch_state import _NO_LEASES, DispatchState, TrainerLeases


def add_leases(
    dispatch: DispatchState,
    key: Incarnation,
    term: Term,
    lineage: Lineage,
    pieces: Iterable[PositionSet],
    *,
    request: int,
    idle_deadline: Instant,
) -> tuple[DispatchState, tuple[Lease, ...]]:
    """Each piece, which must be TODO, becomes one lease of this trainer; together they answer `request`.

    `idle_deadline` is its progress deadline if it held nothing; else the running deadline stays.
    """
    todo, number, made, frontier = dispatch.todo, dispatch.next_number, [], dispatch.frontier
    for piece in pieces:
        token = LeaseToken(term=term, lineage=lineage, incarnation=key, number=number)
        made.append(Lease(token=token, positions=piece))
        todo, number, frontier = todo - piece, number + 1, max(frontier, piece.bounds[-1])
    leases, before = tuple(made), dispatch.holders.get(key) or _NO_LEASES
    holder = TrainerLeases(
        leases=before.leases + leases,
        progress_deadline=before.progress_deadline if before.leases else idle_deadline,
        request=request,
        granted=tuple(range(dispatch.next_number, number)),
    )
    dispatch = copy_with(
        dispatch,
        todo=todo,
        next_number=number,
        frontier=frontier,
        lease_count=dispatch.lease_count + len(leases),
        holders=dispatch.holders.put(key, holder),
    )
    return dispatch, leases


def ack_positions(
    dispatch: DispatchState, token: LeaseToken, positions: PositionSet, *, deadline: Instant
) -> tuple[DispatchState, PositionSet]:
    """The positions that the lease still held are DONE; the trainer has until `deadline` for its next progress.

    With a token that is not live nothing changes (rules 3, 12, 15).
    """
    holder, taken, ended = _remove_positions(dispatch, token, positions, deadline)
    if holder is None:
        return dispatch, EMPTY
    return copy_with(
        dispatch,
        done=dispatch.done | taken,
        holders=dispatch.holders.put(token.incarnation, holder),
        lease_count=dispatch.lease_count - ended,
    ), taken


def return_positions(dispatch: DispatchState, token: LeaseToken, positions: PositionSet) -> DispatchState:
    """The positions that the lease still held are TODO again, at the front by their number (rules 13, 16)."""
    holder, taken, ended = _remove_positions(dispatch, token, positions)
    if holder is None:
        return dispatch
    return copy_with(
        dispatch,
        todo=dispatch.todo | taken,
        holders=dispatch.holders.put(token.incarnation, holder),
        lease_count=dispatch.lease_count - ended,
    )


def _remove_positions(
    dispatch: DispatchState, token: LeaseToken, positions: PositionSet, deadline: Instant | None = None
) -> tuple[TrainerLeases | None, PositionSet, bool]:
    """The leases without these positions, the positions taken, and whether the lease ends; None: no such live lease."""
    holder = dispatch.holders.get(token.incarnation) or _NO_LEASES
    at = _try_place(holder.leases, token)
    if at is None:
        return None, EMPTY, False
    lease = holder.leases[at]
    rest = lease.positions - positions
    kept = (Lease(token=token, positions=rest),) if rest else ()
    leases = holder.leases[:at] + kept + holder.leases[at + 1 :]
    deadline = holder.progress_deadline if deadline is None else deadline
    taken = lease.positions - rest if rest else lease.positions
    return copy_with(holder, leases=leases, progress_deadline=deadline), taken, not rest


def _try_place(leases: tuple[Lease, ...], token: LeaseToken) -> int | None:
    for at, lease in enumerate(leases):
        if (
            lease.token.number == token.number and lease.token == token
        ):  # numbers differ mostly, and are cheap to compare
            return at
    return None


def renew_leases(dispatch: DispatchState, key: Incarnation, deadline: Instant) -> DispatchState:
    """Progress: until `deadline` no lease of this trainer expires (M2)."""
    holder = dispatch.holders.get(key)
    if holder is None or holder.progress_deadline == deadline:
        return dispatch
    return copy_with(dispatch, holders=dispatch.holders.put(key, copy_with(holder, progress_deadline=deadline)))


def drop_leases(dispatch: DispatchState, key: Incarnation) -> tuple[DispatchState, PositionSet]:
    """All leases of the trainer return; also answers the positions that they held."""
    holder = dispatch.holders.get(key)
    if holder is None:
        return dispatch, EMPTY
    returned = union(lease.positions for lease in holder.leases)
    return copy_with(
        dispatch,
        todo=dispatch.todo | returned,
        holders=dispatch.holders.without(key),
        lease_count=dispatch.lease_count - len(holder.leases),
        isolator=None if dispatch.isolator == key else dispatch.isolator,
    ), returned


def reclaim_leases(
    dispatch: DispatchState, key: Incarnation, term: Term, lineage: Lineage, held: Iterable[Lease], *, deadline: Instant
) -> tuple[DispatchState, tuple[Lease, ...]]:
    """A trainer registers (again) with leases: those of the lineage that overlap no other stay (rule 18).

    They get new tokens and lose what is done already.  All its other leases return.
    """
    request = (dispatch.holders.get(key) or _NO_LEASES).request - 1  # the answer to the last one may have been lost
    dispatch, _ = drop_leases(dispatch, key)
    settled = dispatch.done | dispatch.committed | dispatch.quarantined | dispatch.skipping
    free, pieces = dispatch.todo, []
    for lease in held:
        piece = lease.positions - settled
        if piece and lease.token.lineage == lineage and lease.token.incarnation == key and piece <= free:
            pieces.append(piece)
            free = free - piece
    return add_leases(dispatch, key, term, lineage, pieces, request=request, idle_deadline=deadline)
