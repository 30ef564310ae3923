"""Who trains what: the positions of a job, each in exactly one of six places (M2, M4).

    TODO -> LEASED -> DONE -> COMMITTED        SKIPPING -> QUARANTINED
      ^________|________|  (given back, rolled back)

TODO: nobody's.  LEASED: in one live lease.  DONE: acked, or known to be in every bucket, but not in head; a hint that
decides what is granted next and nothing else (rule 15).  COMMITTED: head's data.  SKIPPING, QUARANTINED: rule 31.

Not here: how much to grant and what first (`shards`), who the trainers are (`membership`), when (`job`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from master.api.identities import Incarnation, Lease, LeaseToken, Lineage, Term
from master.api.positions import EMPTY, PositionSet, union
from master.errors import InvariantViolationError
from master.job.domain import Instant
from master.job.domain.frozen_map import FrozenMap, copy_with

NO_REQUEST: Final = -2
_NEVER: Final = Instant(0)


@dataclass(frozen=True, kw_only=True)  # no slots, this one and the next: `copy_with` copies them with each event
class TrainerLeases:
    """One trainer's live leases; `positions` of a lease is what is not acked yet."""

    leases: tuple[Lease, ...] = ()
    progress_deadline: Instant = _NEVER  # without progress until then all of them return (M2)
    request: int = NO_REQUEST  # the newest Acquire that was answered
    granted: tuple[int, ...] = ()  # numbers of the leases that answered it


_EMPTY_HANDED: Final = TrainerLeases()
_NOBODY: Final[FrozenMap[Incarnation, TrainerLeases]] = FrozenMap()


@dataclass(frozen=True, kw_only=True)
class DispatchState:
    """The books.  TODO, LEASED, DONE, SKIPPING, COMMITTED and QUARANTINED partition `everything`."""

    everything: PositionSet = EMPTY
    epoch_size: int = 1
    batch_size: int = 1
    todo: PositionSet = EMPTY
    done: PositionSet = EMPTY
    skipping: PositionSet = EMPTY
    committed: PositionSet = EMPTY
    quarantined: PositionSet = EMPTY
    holders: FrozenMap[Incarnation, TrainerLeases] = _NOBODY
    lease_count: int = 0
    next_number: int = 1
    wanted: PositionSet = EMPTY  # of the open cut: leased before all else (rule 20)
    isolator: Incarnation | None = None  # the trainer that runs dry to try prime suspects alone (M4)
    granting_from: int = 0  # while leases of an earlier master may be claimed: its high-water mark (rule 18)
    frontier: int = 0  # nothing from here on was ever leased
    reworked: int = 0  # positions that were DONE and are TODO again

    @property
    def leased(self) -> PositionSet:
        return union(lease.positions for holder in self.holders.values() for lease in holder.leases)

    @property
    def is_exhausted(self) -> bool:
        """Nothing is TODO, LEASED or about to be skipped: time to commit (rule 32)."""
        return not self.todo and not self.lease_count and not self.skipping


def open_dispatch(
    books: DispatchState, *, committed: PositionSet, quarantined: PositionSet, high_water: int
) -> DispatchState:
    """The books of a new master (rules 17, 18): all that head lacks is TODO, up to the mark only once unclaimed."""
    kept_out = quarantined - committed
    return copy_with(
        books,
        todo=books.everything - committed - kept_out,
        committed=committed,
        quarantined=kept_out,
        granting_from=high_water,
        frontier=high_water,
    )


# ---- leases ---------------------------------------------------------------------------------------------------------


def add_leases(
    books: DispatchState,
    key: Incarnation,
    term: Term,
    lineage: Lineage,
    pieces: Iterable[PositionSet],
    *,
    request: int,
    idle_deadline: Instant,
) -> tuple[DispatchState, tuple[Lease, ...]]:
    """Each piece, which must be TODO, becomes one lease of this trainer; they answer `request`.

    `idle_deadline` is its progress deadline if it held nothing; else the one that runs goes on.
    """
    todo, number, made, frontier = books.todo, books.next_number, [], books.frontier
    for piece in pieces:
        token = LeaseToken(term=term, lineage=lineage, incarnation=key, number=number)
        made.append(Lease(token=token, positions=piece))
        todo, number, frontier = todo - piece, number + 1, max(frontier, piece.bounds[-1])
    leases, before = tuple(made), books.holders.get(key) or _EMPTY_HANDED
    holder = TrainerLeases(
        leases=before.leases + leases,
        progress_deadline=before.progress_deadline if before.leases else idle_deadline,
        request=request,
        granted=tuple(range(books.next_number, number)),
    )
    books = copy_with(
        books,
        todo=todo,
        next_number=number,
        frontier=frontier,
        lease_count=books.lease_count + len(leases),
        holders=books.holders.put(key, holder),
    )
    return books, leases


def ack_positions(
    books: DispatchState, token: LeaseToken, positions: PositionSet, *, deadline: Instant
) -> tuple[DispatchState, PositionSet]:
    """What of these the lease still held is DONE, and the trainer has until `deadline` for its next progress.

    With a token that is not live nothing changes (rules 3, 12, 15).
    """
    holder, taken, ended = _taken(books, token, positions, deadline)
    if holder is None:
        return books, EMPTY
    return copy_with(
        books,
        done=books.done | taken,
        holders=books.holders.put(token.incarnation, holder),
        lease_count=books.lease_count - ended,
    ), taken


def return_positions(books: DispatchState, token: LeaseToken, positions: PositionSet) -> DispatchState:
    """What of these the lease still held is TODO again, at the front by its place on the axis (rules 13, 16)."""
    holder, taken, ended = _taken(books, token, positions)
    if holder is None:
        return books
    return copy_with(
        books,
        todo=books.todo | taken,
        holders=books.holders.put(token.incarnation, holder),
        lease_count=books.lease_count - ended,
    )


def _taken(
    books: DispatchState, token: LeaseToken, positions: PositionSet, deadline: Instant | None = None
) -> tuple[TrainerLeases | None, PositionSet, bool]:
    """The holder without these, what it held of them, and whether that ends the lease; None: no such live lease."""
    holder = books.holders.get(token.incarnation) or _EMPTY_HANDED
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
        if lease.token.number == token.number and lease.token == token:  # the number tells most apart, cheaply
            return at
    return None


def renew_leases(books: DispatchState, key: Incarnation, deadline: Instant) -> DispatchState:
    """Progress: until `deadline` nothing of this trainer expires (M2)."""
    holder = books.holders.get(key)
    if holder is None or holder.progress_deadline == deadline:
        return books
    return copy_with(books, holders=books.holders.put(key, copy_with(holder, progress_deadline=deadline)))


def drop_leases(books: DispatchState, key: Incarnation) -> tuple[DispatchState, PositionSet]:
    """The trainer is gone or fenced: its leases return, and what they held is said."""
    holder = books.holders.get(key)
    if holder is None:
        return books, EMPTY
    returned = union(lease.positions for lease in holder.leases)
    return copy_with(
        books,
        todo=books.todo | returned,
        holders=books.holders.without(key),
        lease_count=books.lease_count - len(holder.leases),
        isolator=None if books.isolator == key else books.isolator,
    ), returned


def reclaim_leases(
    books: DispatchState, key: Incarnation, term: Term, lineage: Lineage, held: Iterable[Lease], *, deadline: Instant
) -> tuple[DispatchState, tuple[Lease, ...]]:
    """A trainer registers (again) and shows what it holds: those of the lineage that overlap no other stay (rule 18).

    They come back under new tokens, without what is done already.  All else that it held returns.
    """
    request = (books.holders.get(key) or _EMPTY_HANDED).request - 1  # the answer to the last one may have been lost
    books, _ = drop_leases(books, key)
    settled = books.done | books.committed | books.quarantined | books.skipping
    free, pieces = books.todo, []
    for lease in held:
        piece = lease.positions - settled
        if piece and lease.token.lineage == lineage and lease.token.incarnation == key and piece <= free:
            pieces.append(piece)
            free = free - piece
    return add_leases(books, key, term, lineage, pieces, request=request, idle_deadline=deadline)


# ---- what is learnt about positions ----------------------------------------------------------------------------------


def mark_done(books: DispatchState, applied: PositionSet) -> DispatchState:
    """All buckets have these: DONE, whoever holds them (rules 17, 22)."""
    fresh = (applied & books.everything) - books.committed - books.quarantined - books.skipping - books.done
    if not fresh:
        return books
    return copy_with(_trimmed(books, fresh), todo=books.todo - fresh, done=books.done | fresh)


def unmark_done(books: DispatchState, positions: PositionSet) -> DispatchState:
    """These were taken for DONE and are not in every bucket: TODO (rule 15)."""
    lost = books.done & positions
    if not lost:
        return books
    return copy_with(books, done=books.done - lost, todo=books.todo | lost, reworked=books.reworked + len(lost))


def apply_head(books: DispatchState, data: PositionSet, quarantine: PositionSet) -> DispatchState:
    """Head is now a checkpoint with this data state and quarantine."""
    kept_out = (books.quarantined | quarantine) - data
    settled = data | kept_out
    books = _trimmed(books, settled)
    return copy_with(
        books,
        todo=books.todo - settled,
        done=books.done - settled,
        skipping=books.skipping - settled,
        committed=data,
        quarantined=kept_out,
    )


def void_leases(books: DispatchState) -> DispatchState:
    """The model goes back to head: all leases are void and what is not in head is TODO (rules 26, 29)."""
    return copy_with(
        books,
        todo=books.everything - books.committed - books.quarantined,
        done=EMPTY,
        skipping=EMPTY,
        wanted=EMPTY,
        isolator=None,
        holders=FrozenMap({key: TrainerLeases(request=holder.request) for key, holder in books.holders.items()}),
        lease_count=0,
        granting_from=0,
        reworked=books.reworked + len(books.done),
    )


def begin_skip(books: DispatchState, positions: PositionSet) -> DispatchState:
    """To SKIPPING, from wherever they are but head's data and the quarantine (rule 31)."""
    chosen = (positions & books.everything) - books.committed - books.quarantined
    books = _trimmed(books, chosen)
    return copy_with(books, todo=books.todo - chosen, done=books.done - chosen, skipping=books.skipping | chosen)


def end_skip(books: DispatchState, *, quarantined: bool) -> DispatchState:
    """All of SKIPPING is quarantined, durably, or was applied everywhere and is asked for once more."""
    if quarantined:
        return copy_with(books, quarantined=books.quarantined | books.skipping, skipping=EMPTY)
    return copy_with(books, todo=books.todo | books.skipping, skipping=EMPTY)


def add_quarantine(books: DispatchState, quarantine: PositionSet) -> DispatchState:
    """Quarantine that is durable already, of positions that nobody holds: after a roll-back."""
    fresh = quarantine & books.todo
    return copy_with(books, todo=books.todo - fresh, quarantined=books.quarantined | fresh) if fresh else books


def _trimmed(books: DispatchState, settled: PositionSet) -> DispatchState:
    """Live leases without these positions; a lease that holds nothing more is over."""
    holders, count = books.holders, 0
    for key, holder in books.holders.items():
        rests = ((lease, lease.positions - settled) for lease in holder.leases)
        leases = tuple(Lease(token=lease.token, positions=rest) for lease, rest in rests if rest)
        count += len(leases)
        if leases != holder.leases:
            holders = holders.put(key, copy_with(holder, leases=leases))
    return copy_with(books, holders=holders, lease_count=count)


def check_invariants(books: DispatchState) -> None:
    """M2, M4: the six places partition everything; no position is in two leases.  Raises InvariantViolationError."""
    leases = [lease for holder in books.holders.values() for lease in holder.leases]
    places = {
        "todo": books.todo,
        "leased": books.leased,
        "done": books.done,
        "skipping": books.skipping,
        "committed": books.committed,
        "quarantined": books.quarantined,
    }
    if len(books.leased) != sum(len(lease.positions) for lease in leases):
        raise InvariantViolationError(f"M2: a position is in two live leases: {[str(one.positions) for one in leases]}")
    if union(places.values()) != books.everything or sum(map(len, places.values())) != len(books.everything):
        told = ", ".join(f"{name} {positions}" for name, positions in places.items())
        raise InvariantViolationError(f"M4: these do not partition {books.everything}: {told}")
    if books.lease_count != len(leases):
        raise InvariantViolationError(f"{books.lease_count} leases are counted, {len(leases)} are there")
