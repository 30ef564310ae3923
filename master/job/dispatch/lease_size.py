"""The next leases of a trainer: the lowest free positions, for a few seconds of its work.

Order: positions that an open cut waits for (rule 20), then the lowest; returned positions are low, so they come
first.  Size: the target time at the trainer's measured rate, in whole batches, and never more than its share of what
is left, so that the last positions are spread over all trainers.  A lease never crosses an epoch's end.  Suspects of
killing trainers are granted apart (M4, `state.trainer_failures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from master.api.identities import Incarnation
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import SECOND
from master.job.domain.job_config import JobConfig
from master.job.state.dispatch_state import DispatchState
from master.job.state.members import Trainer
from master.job.state.trainer_failures import FailureCounts


def batches_to_grant(
    config: JobConfig, *, batch_size: int, samples_per_s: float, left: int, rates: Sequence[float], shards: int
) -> int:
    """The number of batches, at least 1, that one answer of `shards` leases may hold.

    `left`: positions TODO.  `rates`: samples/s of all trainers, this one too, 0: unknown.  An answer is a stretch of
    time, the same for fast and slow trainers: the target for each lease, but at most half of what all trainers
    together still need for what is left.  So leases halve toward the tail, and the slowest trainers shrink to one
    batch first.
    """
    if samples_per_s <= 0:
        return max(1, min(config.first_shard_batches * shards, left // (2 * len(rates) * batch_size)))
    seconds = min(shards * config.target_shard_ns / SECOND, left / (2 * sum(rates)))
    return max(1, int(samples_per_s * seconds / batch_size))


def choose_positions(
    dispatch: DispatchState, failures: FailureCounts, config: JobConfig, trainer: Trainer, *, shards: int, size: int
) -> tuple[DispatchState, tuple[PositionSet, ...]]:
    """Up to `shards` disjoint sets of at most `size` free positions; none: the trainer retries later.

    The dispatch state comes back with this trainer as isolator when it must finish its leases first.
    """
    free, suspects = _grantable(dispatch), failures.suspects
    if not suspects:
        return dispatch, _cut_pieces(dispatch, free, shards, size)
    if not trainer.has_worked and (ordinary := free - suspects):
        return dispatch, _cut_pieces(dispatch, ordinary, shards, size)
    return _choose_among_suspects(dispatch, failures, config, trainer.key.incarnation, shards=shards, size=size)


def _grantable(dispatch: DispatchState) -> PositionSet:
    free = dispatch.todo
    if dispatch.granting_from:  # an earlier master's leases may still be claimed
        free = free - PositionSet.span(0, dispatch.granting_from)
    return free


def _cut_pieces(dispatch: DispatchState, free: PositionSet, shards: int, size: int) -> tuple[PositionSet, ...]:
    pieces: list[PositionSet] = []
    while len(pieces) < shards and (piece := _next_piece(dispatch, free, size)):
        pieces.append(piece)
        free = free - piece
    return tuple(pieces)


def _next_piece(dispatch: DispatchState, free: PositionSet, size: int) -> PositionSet:
    source = free
    if dispatch.wanted_by_cut:
        source = (free & dispatch.wanted_by_cut) or free
    piece = source.first(size)
    if not piece:
        return EMPTY
    epoch_end = (piece.bounds[0] // dispatch.epoch_size + 1) * dispatch.epoch_size
    return piece if piece.bounds[-1] <= epoch_end else piece & PositionSet.span(0, epoch_end)


def _choose_among_suspects(
    dispatch: DispatchState, failures: FailureCounts, config: JobConfig, key: Incarnation, *, shards: int, size: int
) -> tuple[DispatchState, tuple[PositionSet, ...]]:
    free, prime = _grantable(dispatch), failures.prime(config.quarantine_after)
    holder = dispatch.holders.get(key)
    mine = holder.leases if holder else ()
    if any(lease.positions & prime for lease in mine):
        return dispatch, ()  # it tries one alone
    if free & prime and dispatch.isolator in (None, key):
        if mine:
            return replace(dispatch, isolator=key), ()  # finishes its leases first
        return replace(dispatch, isolator=None), _cut_pieces(dispatch, free & prime, 1, dispatch.batch_size)
    if dispatch.isolator == key:
        dispatch = replace(dispatch, isolator=None)
    free = free - prime
    if free & failures.suspects and free.first(1) <= failures.suspects:
        return dispatch, _cut_pieces(dispatch, free & failures.suspects, 1, dispatch.batch_size)
    return dispatch, _cut_pieces(dispatch, free - failures.suspects, shards, size)
