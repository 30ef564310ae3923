"""The high-water mark: from where a next master may grant before its reconnect window has ended (rule 18).

The problem: a new master does not know who trains what until trainers have come back.  What lies above the mark was
leased to nobody, so it need not wait for them.  The mark is moved ahead of the leases in blocks that last some
seconds: no store write per shard (M6), and near, since all that lies below it waits.

Nothing waits for the mark.  A store that is slow or away leaves it behind the leases, and a next master may then grant
again what a trainer still works on.  That costs the work and no promise: what is trained twice is applied once (the
marks answer REPEAT), and of two leases the one that its master knows first stays (M2).
"""

from __future__ import annotations

from dataclasses import replace

from master.job.domain import Instant, Persist, ReserveHighWater
from master.job.state import Reserved, Stage, Turn


def reserve(turn: Turn) -> None:
    """Moves the mark once the leases have used half of the last block; one write at a time."""
    state, mark = turn.state, turn.state.reserved
    if state.stage is not Stage.SERVING or state.dataset is None or mark.is_writing:
        return
    total, frontier = state.dataset.dataset.size * state.dataset.dataset.epochs, state.dispatch.frontier
    smallest = state.config.high_water_batches * state.dispatch.batch_size
    if mark.below >= min(total, frontier + max(mark.block, smallest) // 2):
        return
    block = max(smallest, next_block(mark, turn.now, lasts_ns=state.config.high_water_ns))
    below = min(total, max(mark.below, frontier) + block)
    turn.change(reserved=Reserved(below=below, is_writing=True, block=min(total, block), at=turn.now))
    turn.emit(Persist(write=ReserveHighWater(below=below)))


def next_block(last: Reserved, now: Instant, *, lasts_ns: int) -> int:
    """The size of which half lasts half of `lasts_ns`, from how long the last half lasted; by steps of four at most."""
    return min(4 * last.block, max(last.block // 4, last.block * (lasts_ns // 2) // max(1, now - last.at)))


def handle_recorded(turn: Turn) -> None:
    """The mark is where it was asked to be."""
    turn.change(reserved=replace(turn.state.reserved, is_writing=False))
