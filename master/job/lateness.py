"""Buckets that are on their way for too long: undone, and tried again later (rules 46, 53; ADR 0315).

Pushes wait for a frozen bucket, so each move has a time of its own, from when its intent was durable: what others do
meanwhile gives it no more.

Not here: that FREEZE is said again before that (`servers.handle_overdue`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.job import resizing
from master.job.domain import Instant, Intent, MovesExpired
from master.job.state import JobState, Turn

MOST_DOUBLINGS: Final = 6


def expires(state: JobState) -> Instant | None:
    """When the first of those that have not arrived is undone."""
    ends = (_ends(state, intent, state.moves.since[intent.bucket]) for intent in _timed(state))
    return min(ends, default=None)


def handle_expired(turn: Turn, event: MovesExpired) -> None:
    """What has not arrived by now is undone: its pushes wait.  Only for who leaves it is tried again at once (53)."""
    state, moves = turn.state, turn.state.moves
    if expires(state) != event.deadline:
        return
    since = moves.since
    late = frozenset(one.bucket for one in _timed(state) if _ends(state, one, since[one.bucket]) <= event.deadline)
    moves = replace(moves, undone=moves.undone | late, waiting=())
    if moves.again is None:  # else it is the same trouble
        again = turn.after(state.config.move_again_ns << min(moves.late, MOST_DOUBLINGS))
        moves = replace(moves, again=again, late=moves.late + 1)
    turn.change(moves=moves)
    if any(server.is_leaving for server in state.members.servers.values()):
        resizing.plan(turn)


def _timed(state: JobState) -> tuple[Intent, ...]:
    """Not those of an earlier master or of a model that is lost: they are undone as they are."""
    return tuple(intent for intent in state.moves.awaited if intent.bucket in state.moves.since)


def _ends(state: JobState, _: Intent, since: Instant) -> Instant:
    return Instant(since + state.config.move_timeout_ns)
