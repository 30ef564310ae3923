"""Admission of moves: which waiting moves begin now, with one change of the table (rules 41, 59, 62).

A bucket begins to move when nothing else moves it, its owner serves it at the table's version, and the throttle
allows both ends another bucket.  A due commit goes first, and no bucket begins to move under an open cut unless its
server has to leave.  A bucket that moves to its own backup is promoted instead: its copy is there already.

A server sends the rows of one bucket after another ahead and freezes each when they have arrived (ADR 0314).  So the
throttle bounds what a target keeps beside its model, and what is undone if the target is lost.  Servers do not stand
in each other's way, so each has its own bound.

Not here: which moves are planned (`rebalancing`), what becomes of them (`move_lifecycle`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from master.api.identities import BucketId, ServerPlace
from master.api.positions import PositionSet
from master.job.domain.durable_records import BucketTable, Intent
from master.job.moves import rebalancing
from master.job.placement.owner_placement import Move
from master.job.state import bucket_table
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server, place_of
from master.job.state.protocol_state import CommitPhase

LOOK_AHEAD: Final = 64
"""Most waiting moves checked per event; sources are interleaved, so this covers all free ones."""


def admit_moves(turn: Turn, now: BucketTable) -> BucketTable:
    """The table with an intent for as many moves as may run together (rule 41)."""
    state, waiting = turn.state, turn.state.moves.waiting
    is_urgent = any(server.is_leaving for server in state.members.servers.values())
    if not waiting or (is_paused_for_commit(state) and not is_urgent):
        return now
    beginning = _Beginning(state, now)
    remaining = [move for move in waiting[:LOOK_AHEAD] if not beginning.begin_or_drop(move)]
    remaining += waiting[LOOK_AHEAD:]
    if len(remaining) < len(waiting):
        turn.change(moves=replace(state.moves, waiting=tuple(remaining)))
    after = beginning.table()
    if not remaining and after == now and not now.intents:
        rebalancing.plan_for_leaving(turn)
    return after


class _Beginning:
    """The moves that begin with one change of the table."""

    def __init__(self, state: MasterState, now: BucketTable) -> None:
        assert state.table is not None
        self._state, self._now = state, now
        self._pace = MoveThrottle(state, now.intents)
        self._busy = set(bucket_table.changed(state.table, now))  # these, and all that was looked at
        self._intents: list[Intent] = []
        self._places: list[ServerPlace] = []
        self._for_backups: list[int] = []

    def begin_or_drop(self, move: Move) -> bool:
        """Begins the move, or drops one that has nothing to move.  False: neither; it waits for the next event."""
        state, is_busy = self._state, move.bucket in self._busy
        self._busy.add(move.bucket)
        if is_busy or not self._pace.allows(move):
            return False
        source, target = _ends(state, move)
        is_settled = _is_settled(state, move.bucket)
        if source is None or target is None or (source == target and is_settled):
            return True  # the source has gone, or the target has it: planned again at the next membership change
        if not is_settled or not _may_begin(state, source, target):
            return False
        if bucket_table.backup_of(self._now, move.bucket) != target.key:
            self._begin(move, source, target)
        elif not move.is_backup:
            self._now = bucket_table.promoted(self._now, move.bucket)  # it has all of it: there is nothing to copy
        return True

    def table(self) -> BucketTable:
        return bucket_table.with_intents(self._now, self._intents, self._places, PositionSet.of(*self._for_backups))

    def _begin(self, move: Move, source: Server, target: Server) -> None:
        self._intents.append(_intent(self._state, move, source, target))
        self._places.append(place_of(target))
        self._for_backups += [move.bucket] * move.is_backup
        self._pace.begin(move)


def _ends(state: MasterState, move: Move) -> tuple[Server | None, Server | None]:
    """The owner by the table and the target, if both are members."""
    assert state.route is not None
    owner = bucket_table.owner_of(state.route, move.bucket)
    return state.members.try_server(owner), state.members.servers.get(move.target)


def _is_settled(state: MasterState, bucket: int) -> bool:
    """True if no intent names the bucket and its owner serves it at the table's version (rule 41)."""
    is_named = any(intent.bucket == bucket for intent in state.moves.intents)
    return not is_named and bucket not in state.moves.inactive


def _may_begin(state: MasterState, source: Server, target: Server) -> bool:
    are_here = source.is_connected and target.is_connected and target.lineage == state.number
    return are_here and not state.has_to_leave(target) and (source.is_leaving or not is_paused_for_commit(state))


def is_paused_for_commit(state: MasterState) -> bool:
    """True while a cut is open or a commit is due: then only moves of servers that have to leave begin (rule 59)."""
    return state.commit.phase in (CommitPhase.HOLDING, CommitPhase.WRITING) or state.is_commit_due


def _intent(state: MasterState, move: Move, source: Server, target: Server) -> Intent:
    assert state.route is not None
    return Intent(
        bucket=BucketId(move.bucket),
        lineage=state.number,
        version=state.route.version[move.bucket],
        source=source.key,
        target=target.key,
        reason=state.moves.reason,
    )


AT_ONCE_UNWEIGHED: Final = 2
"""Most concurrent moves per server while bucket sizes are unknown."""


class MoveThrottle:
    """Bytes and buckets that each server has on the way, by ordinal."""

    def __init__(self, state: MasterState, intents: Iterable[Intent]) -> None:
        self._weights, self._most = state.weights, state.config.moving_bytes
        self._most_buckets = state.config.moves_at_once
        self._bytes: dict[int, int] = {}
        self._buckets: dict[int, int] = {}
        ordinals = {server.key: ordinal for ordinal, server in state.members.servers.items()}
        for intent in intents:
            ends = (ordinals[key] for key in (intent.source, intent.target) if key in ordinals)
            self._add(intent.bucket, ends)

    def allows(self, move: Move) -> bool:
        """True if neither end has too much on the way; a bucket heavier than the bound goes alone."""
        size_bytes = self._size_bytes(move.bucket)
        return all(
            self._bytes.get(end, 0) + size_bytes <= self._most and self._buckets[end] < self._most_buckets
            for end in (move.source, move.target)
            if self._buckets.get(end)
        )

    def begin(self, move: Move) -> None:
        self._add(move.bucket, (move.source, move.target))

    def _add(self, bucket: int, ends: Iterable[int]) -> None:
        for end in ends:
            self._bytes[end] = self._bytes.get(end, 0) + self._size_bytes(bucket)
            self._buckets[end] = self._buckets.get(end, 0) + 1

    def _size_bytes(self, bucket: int) -> int:
        weight = self._weights.get(bucket)
        return weight.size_bytes if weight else self._most // AT_ONCE_UNWEIGHED
