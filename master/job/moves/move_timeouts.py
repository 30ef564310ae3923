"""Move timeouts: buckets whose transfer takes too long are undone and retried later (rules 46, 53; ADR 0315).

Pushes wait for a frozen bucket, so each move has a time of its own.  A source sends its buckets to a target one after
another at the link's speed, so a bucket's time counts from the last arrival before it at that target, at first from
when its intent was durable.  Buckets that move after it, or elsewhere, give it no more time.  A target whose stream
is broken gets only the short window: it may have ended, and a stream that merely broke is back by then.

Not here: FREEZE is resent before that (`servers.server_handlers`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from master.api.identities import BucketId
from master.job.domain.durable_records import SECOND, Instant, Intent
from master.job.domain.frozen_map import FrozenMap
from master.job.domain.job_events import MovesExpired, MovesRetryDue
from master.job.moves import rebalancing
from master.job.state.job_state import MasterState, Turn

MOST_DOUBLINGS: Final = 6


def expires_at(state: MasterState) -> Instant | None:
    """Instant at which the first late move is undone; None: none is on the way."""
    return min((_ends(state, intent) for intent in _timed(state)), default=None)


def handle_arrival(turn: Turn, arrived: Intent) -> None:
    """INSTALLED of one bucket restarts the time of those that its two servers were to move after it."""
    state, moves = turn.state, turn.state.moves
    if arrived not in _timed(state):
        return
    now_next = {
        one.bucket: turn.now
        for one in _timed(state)
        if (one.source, one.target) == (arrived.source, arrived.target)
        and _queue_position(state, one) > _queue_position(state, arrived)
        and turn.now > moves.begun_at[one.bucket]
    }
    if now_next:
        known = {one.bucket for one in moves.intents}
        kept = {bucket: at for bucket, at in moves.turns.items() if bucket in known}
        turn.change(moves=replace(moves, turns=FrozenMap(kept | now_next)))


def handle_expired(turn: Turn, event: MovesExpired) -> None:
    """Undoes the moves that have not arrived; only for a server that leaves are they retried at once (53)."""
    state, moves = turn.state, turn.state.moves
    if expires_at(state) != event.deadline:
        return
    late = frozenset(one.bucket for one in _timed(state) if _ends(state, one) <= event.deadline)
    slow = frozenset(b for b in late if _own_start(state, b) + state.config.move_timeout_ns <= event.deadline)
    timed_out = moves.timed_out.put_all({one.bucket: one.target for one in moves.intents if one.bucket in slow})
    moves = replace(moves, undone=moves.undone | late, waiting=() if slow else moves.waiting, timed_out=timed_out)
    if moves.retry_at is None:  # otherwise the retry is already scheduled
        retry_at = turn.after(state.config.move_again_ns << min(moves.late, MOST_DOUBLINGS))
        moves = replace(moves, retry_at=retry_at, late=moves.late + bool(slow))
    turn.change(moves=moves)
    if any(server.is_leaving for server in state.members.servers.values()):
        rebalancing.plan_if_needed(turn)


def handle_retry_due(turn: Turn, event: MovesRetryDue) -> None:
    """Replans all moves from the present place of every bucket."""
    if turn.state.moves.retry_at == event.deadline:
        turn.change(moves=replace(turn.state.moves, retry_at=None))
        rebalancing.plan_moves(turn)


def problem(state: MasterState) -> str:
    """Text about late moves; empty if there are none."""
    targets = Counter(target.name for target in state.moves.timed_out.values())
    counts = ", ".join(f"{count} to {name}" for name, count in sorted(targets.items()))
    within = f"within {state.config.move_timeout_ns // SECOND} s; pushes waited, and the moves are retried"
    return f"moves of buckets timed out: {counts}, {within}" if counts else ""


def _timed(state: MasterState) -> tuple[Intent, ...]:
    """The moves with a time: those of an earlier master or of a lost model are undone as they are."""
    return tuple(intent for intent in state.moves.awaited if intent.bucket in state.moves.begun_at)


def _queue_position(state: MasterState, intent: Intent) -> tuple[Instant, BucketId]:
    """The place of a move in the row of its source: moves that began together go in the order of bucket numbers."""
    return state.moves.begun_at[intent.bucket], intent.bucket


def _own_start(state: MasterState, bucket: BucketId) -> Instant:
    """Instant at which the bucket's own time began."""
    since = state.moves.begun_at[bucket]
    return max(since, state.moves.turns.get(bucket) or since)


def _ends(state: MasterState, intent: Intent) -> Instant:
    config, target = state.config, state.members.try_server(intent.target)
    late = _own_start(state, intent.bucket) + config.move_timeout_ns
    if target is None or target.away_since is None or target.is_suspected:
        return Instant(late)
    return Instant(min(late, target.away_since + config.short_window_ns))
