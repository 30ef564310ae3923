"""Buckets that are on their way for too long: undone, and tried again later (rules 46, 53; ADR 0315).

Pushes wait for a frozen bucket, so each move has a time of its own.  A source sends its buckets to a target one after
another, and how long that takes is the link's business: the time of each counts from the last arrival of one before it
there, at first from when its intent was durable.  What was to move after it, or elsewhere, gives it no more.  A target
whose stream is broken is waited for as shortly as any colleague (UNDO needs nobody): it may have ended, and a stream
that only broke is back by then.

Not here: that FREEZE is said again before that (`servers.handle_overdue`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from master.api.identities import BucketId
from master.job.domain import SECOND, Instant, Intent, MovesExpired, MovesRetryDue
from master.job.domain.frozen_map import FrozenMap
from master.job.moves import rebalancing
from master.job.state.job_state import MasterState, Turn

MOST_DOUBLINGS: Final = 6


def expires_at(state: MasterState) -> Instant | None:
    """When the first of those that have not arrived is undone."""
    return min((_ends(state, intent) for intent in _timed(state)), default=None)


def handle_arrival(turn: Turn, arrived: Intent) -> None:
    """INSTALLED of one is progress for those of its two servers that were to move after it, in the order of FREEZE."""
    state, moves = turn.state, turn.state.moves
    if arrived not in _timed(state):
        return
    now_next = {
        one.bucket: turn.now
        for one in _timed(state)
        if (one.source, one.target) == (arrived.source, arrived.target)
        and _place(state, one) > _place(state, arrived)
        and turn.now > moves.since[one.bucket]
    }
    if now_next:
        known = {one.bucket for one in moves.intents}
        kept = {bucket: at for bucket, at in moves.turns.items() if bucket in known}
        turn.change(moves=replace(moves, turns=FrozenMap(kept | now_next)))


def handle_expired(turn: Turn, event: MovesExpired) -> None:
    """What has not arrived by now is undone: its pushes wait.  Only for who leaves it is tried again at once (53)."""
    state, moves = turn.state, turn.state.moves
    if expires_at(state) != event.deadline:
        return
    late = frozenset(one.bucket for one in _timed(state) if _ends(state, one) <= event.deadline)
    slow = frozenset(b for b in late if _turn(state, b) + state.config.move_timeout_ns <= event.deadline)
    timed_out = moves.timed_out.put_all({one.bucket: one.target for one in moves.intents if one.bucket in slow})
    moves = replace(moves, undone=moves.undone | late, waiting=() if slow else moves.waiting, timed_out=timed_out)
    if moves.retry_at is None:  # else it is the same trouble
        retry_at = turn.after(state.config.move_again_ns << min(moves.late, MOST_DOUBLINGS))
        moves = replace(moves, retry_at=retry_at, late=moves.late + bool(slow))
    turn.change(moves=moves)
    if any(server.is_leaving for server in state.members.servers.values()):
        rebalancing.plan_if_needed(turn)


def handle_retry_due(turn: Turn, event: MovesRetryDue) -> None:
    """From where everything is by now."""
    if turn.state.moves.retry_at == event.deadline:
        turn.change(moves=replace(turn.state.moves, retry_at=None))
        rebalancing.plan_moves(turn)


def problem(state: MasterState) -> str:
    """What does not arrive, for people; empty while everything does."""
    targets = Counter(target.name for target in state.moves.timed_out.values())
    counts = ", ".join(f"{count} to {name}" for name, count in sorted(targets.items()))
    within = f"within {state.config.move_timeout_ns // SECOND} s; pushes waited for them, and they are tried again"
    return f"buckets on their way did not arrive: {counts}, {within}" if counts else ""


def _timed(state: MasterState) -> tuple[Intent, ...]:
    """Not those of an earlier master or of a model that is lost: they are undone as they are."""
    return tuple(intent for intent in state.moves.awaited if intent.bucket in state.moves.since)


def _place(state: MasterState, intent: Intent) -> tuple[Instant, BucketId]:
    """In the row of its source: those that began together are told of in the order of their numbers."""
    return state.moves.since[intent.bucket], intent.bucket


def _turn(state: MasterState, bucket: BucketId) -> Instant:
    """When its own time began."""
    since = state.moves.since[bucket]
    return max(since, state.moves.turns.get(bucket) or since)


def _ends(state: MasterState, intent: Intent) -> Instant:
    config, target = state.config, state.members.try_server(intent.target)
    late = _turn(state, intent.bucket) + config.move_timeout_ns
    if target is None or target.away_since is None or target.is_suspected:
        return Instant(late)
    return Instant(min(late, target.away_since + config.short_window_ns))
