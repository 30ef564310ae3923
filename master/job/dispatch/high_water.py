"""The high-water mark: below it positions may have been leased, and by whom (rule 18).

The problem: a new master does not know who trains what until trainers have come back.  What lies above the mark was
never leased and need not wait for them; nor need what lies below, once all are back that may hold leases there.
The mark moves ahead of the leases in blocks that last some seconds: no store write per shard (M6), and close to the
leases, since all below it waits.  The trainers are written beside it when one comes or goes; a great many are not
written, since each write names them all.

Nothing waits for the mark or the names.  Where a slow store leaves them behind the leases, a next master may grant
again what a trainer still works on.  That costs repeated work only: positions that are trained twice are applied
once (the marks answer REPEAT), and of two leases the first that the master knows is kept (M2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.api.identities import MemberName
from master.job.domain.durable_records import Durable, Instant, MemberKey, ReserveHighWater
from master.job.domain.effects import Persist
from master.job.domain.frozen_map import FrozenMap
from master.job.state.job_state import Turn
from master.job.state.protocol_state import NO_TRAINERS, HighWaterMark, LeaseHolders, RecoveryStage

MOST_NAMED: Final = 1_000  # 94 kB where a name has 50 characters; the store keeps each write until it is compacted


def initial_marks(durable: Durable) -> tuple[HighWaterMark, LeaseHolders]:
    """The mark and the lease holders as a term begins: no trainer of an earlier master is back yet."""
    known = None if durable.trainers is None else FrozenMap({one.name: one for one in durable.trainers})
    return (
        HighWaterMark(below=durable.high_water, trainers=known),
        LeaseHolders(trainers=NO_TRAINERS if known is None else known, awaited=known),
    )


def reserve(turn: Turn) -> None:
    """Moves the mark once leases have used half of the last block, and names the trainers; one write at a time."""
    state, mark = turn.state, turn.state.high_water
    if state.stage is not RecoveryStage.SERVING or state.dataset is None or mark.is_writing:
        return
    if state.is_end_inherited:  # a mark tells the next master that a trainer of this start has been here
        return
    total, frontier = state.dataset.dataset.size * state.dataset.dataset.epochs, state.dispatch.frontier
    smallest = state.config.high_water_batches * state.dispatch.batch_size
    trainers = state.lease_holders.trainers if len(state.lease_holders.trainers) <= MOST_NAMED else None
    if mark.below < min(total, frontier + max(mark.block, smallest) // 2):
        block = max(smallest, next_block(mark, turn.now, lasts_ns=state.config.high_water_ns))
        below = min(total, max(mark.below, frontier) + block)
        mark = HighWaterMark(below=below, block=min(total, block), at=turn.now)
    elif trainers is mark.trainers or trainers == mark.trainers:
        return
    turn.change(high_water=replace(mark, is_writing=True, trainers=trainers))
    named = None if trainers is None else tuple(sorted(trainers.values()))
    turn.emit(Persist(write=ReserveHighWater(below=mark.below, trainers=named)))


def next_block(last: HighWaterMark, now: Instant, *, lasts_ns: int) -> int:
    """The size of the next block, so that half of it lasts half of `lasts_ns`, judged by how long the last half
    lasted; it changes by a factor of four at most.
    """
    return min(4 * last.block, max(last.block // 4, last.block * (lasts_ns // 2) // max(1, now - last.at)))


def handle_recorded(turn: Turn) -> None:
    """The mark is durable."""
    turn.change(high_water=replace(turn.state.high_water, is_writing=False))


def add_trainer(turn: Turn, key: MemberKey) -> None:
    """The trainer is here with its leases; no other process of its name is awaited."""
    before = turn.state.lease_holders
    if before.trainers.get(key.name) != key:
        before = replace(before, trainers=before.trainers.put(key.name, key))
    _await_less(turn, before, key.name)


def remove_trainer(turn: Turn, key: MemberKey) -> None:
    """The trainer's leases have returned."""
    before = turn.state.lease_holders
    _await_less(turn, replace(before, trainers=before.trainers.without(key.name)), key.name)


def stop_waiting_for_trainers(turn: Turn) -> None:
    """Stop waiting for trainers of an earlier master: all TODO may be granted (rule 18)."""
    state = turn.state
    trainers = state.lease_holders.trainers
    for name in state.lease_holders.awaited or ():
        trainers = trainers.without(name)
    turn.change(
        lease_holders=LeaseHolders(trainers=trainers, awaited=NO_TRAINERS),
        dispatch=replace(state.dispatch, granting_from=0),
    )


def _await_less(turn: Turn, lease_holders: LeaseHolders, name: MemberName) -> None:
    """The reclaim window ends early once every trainer is back."""
    if lease_holders.awaited:
        lease_holders = replace(lease_holders, awaited=lease_holders.awaited.without(name))
    if lease_holders is not turn.state.lease_holders:
        turn.change(lease_holders=lease_holders)
    if lease_holders.awaited == NO_TRAINERS and turn.state.dispatch.granting_from:
        stop_waiting_for_trainers(turn)
