"""The high-water mark: from where a next master may grant at once, because no lease of this one lies there (rule 18).

The mark is kept a few seconds of work ahead of the leases, in blocks: no store write per shard (M6).  Near is good, for
what lies below it waits for a window after a take-over.  But near also means soon reached when the store is away, and
training goes on then.  So grants wait for the record only as long as a healthy store may take; after that they go on
without it.  That costs no promise: M1 does not rest on the mark, and no two leases of *this* master overlap (M2); a
master that takes over meanwhile may grant some of it again, which the marks answer with REPEAT.
"""

from __future__ import annotations

from dataclasses import replace

from master.job.domain import Instant, Persist, ReservationOverdue, ReserveHighWater
from master.job.state import Reserved, Stage, Turn


def reserve(turn: Turn) -> None:
    """Asks for the next block when the leases have used half of the last one; one write at a time."""
    state, books = turn.state, turn.state.dispatch
    if state.stage is not Stage.SERVING or state.dataset is None or books.reserving_below != books.granting_below:
        return
    total = state.dataset.dataset.size * state.dataset.dataset.epochs
    smallest = state.config.high_water_batches * books.batch_size
    ahead = max(state.reserved.block, smallest) // 2
    if books.granting_below < total and books.frontier + ahead > books.granting_below:
        block = min(total, max(smallest, next_block(state.reserved, turn.now, lasts_ns=state.config.high_water_ns)))
        below = min(total, max(books.granting_below, books.frontier) + block)
        due = turn.after(state.config.reservation_timeout_ns)
        turn.change(
            dispatch=replace(books, reserving_below=below), reserved=Reserved(block=block, at=turn.now, due=due)
        )
        turn.emit(Persist(write=ReserveHighWater(below=below)))


def next_block(last: Reserved, now: Instant, *, lasts_ns: int) -> int:
    """The size of which half lasts half of `lasts_ns`, from how long the last half lasted; by steps of four at most."""
    return min(4 * last.block, max(last.block // 4, last.block * (lasts_ns // 2) // max(1, now - last.at)))


def handle_recorded(turn: Turn, write: ReserveHighWater) -> None:
    """The store speaks again: grants stay below the mark from now on."""
    books = turn.state.dispatch
    below = max(books.granting_below, write.below)
    turn.change(dispatch=replace(books, granting_below=below, is_unbounded=False))
    turn.change(reserved=replace(turn.state.reserved, due=None))


def handle_overdue(turn: Turn, event: ReservationOverdue) -> None:
    """The store is silent: training does not wait for it."""
    if turn.state.reserved.due == event.deadline:
        turn.change(dispatch=replace(turn.state.dispatch, is_unbounded=True))
        turn.change(reserved=replace(turn.state.reserved, due=None))
