"""Graceful shutdown of a parameter server: after SIGTERM it stays until other servers have its buckets.

    serving --SIGTERM--> leaving --released, a second SIGTERM, no master for long, grace nearly over--> ended

It ends at once without a grace period, or without a master if nothing would be lost.  The master may also release a
server that got no SIGTERM: fewer are needed (rule 49).  Buckets that only this server has when it ends come back from
the last checkpoint.  Pure; times in seconds on a monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, assert_never

MASTER_WAIT_S: Final = 12.0  # the next master leads within 8 s (M5); then this server's pauses of up to 2 s


@dataclass(frozen=True, slots=True)
class SigtermReceived:
    """SIGTERM: the server has to go."""


@dataclass(frozen=True, slots=True)
class SigintReceived:
    """SIGINT: a user at a terminal ends it."""


@dataclass(frozen=True, slots=True)
class ParentDied:
    """The process that started this one is gone."""


@dataclass(frozen=True, slots=True)
class MasterJoined:
    """A master has registered this server (ServerWelcome); an open stream alone may lead nowhere."""


@dataclass(frozen=True, slots=True)
class MasterLost:
    """The stream to the master is broken."""


@dataclass(frozen=True, slots=True)
class ReleasedByMaster:
    """The master released this server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedByMaster:
    """The master refuses this server."""

    reason: str


ShutdownEvent = (
    SigtermReceived | SigintReceived | ParentDied | MasterJoined | MasterLost | ReleasedByMaster | RefusedByMaster
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownState:
    """All that decides when one process ends."""

    grace_s: float  # from SIGTERM until it has to be gone
    has_master: bool = False
    leaving_until_s: float = math.inf  # finite: SIGTERM was received
    master_awaited_until_s: float = math.inf  # finite: leaving, and no master is connected
    has_ended: bool = False
    is_released: bool = False
    refusal: str = ""

    @property
    def is_leaving(self) -> bool:
        return self.leaving_until_s < math.inf and not self.has_ended

    @property
    def due_s(self) -> float:
        """Instant at which the process ends unless another event comes first."""
        return min(self.leaving_until_s, self.master_awaited_until_s)


def after_event(state: ShutdownState, fact: ShutdownEvent, now_s: float, *, would_lose: bool) -> ShutdownState:
    """The state after this event.  `would_lose`: buckets are here, or are being loaded from a checkpoint."""
    match fact:
        case SigtermReceived():
            return _after_sigterm(state, now_s, would_lose=would_lose)
        case ReleasedByMaster():
            return replace(_ended(state), is_released=True)
        case SigintReceived() | ParentDied():
            return _ended(state)
        case RefusedByMaster(reason=reason):
            return replace(_ended(state), refusal=reason)
        case MasterJoined():
            return replace(state, has_master=True, master_awaited_until_s=math.inf)
        case MasterLost():
            return _await_master(replace(state, has_master=False), now_s, would_lose=would_lose)
        case _:
            assert_never(fact)


def _after_sigterm(state: ShutdownState, now_s: float, *, would_lose: bool) -> ShutdownState:
    """A connected master decides, even if nothing would be lost: copies may be on their way here."""
    if state.grace_s <= 0 or state.is_leaving:
        return _ended(state)
    return _await_master(replace(state, leaving_until_s=now_s + state.grace_s), now_s, would_lose=would_lose)


def _await_master(state: ShutdownState, now_s: float, *, would_lose: bool) -> ShutdownState:
    """Without a master no bucket moves, but another master may come."""
    if state.has_master or not state.is_leaving:
        return state
    if not would_lose:
        return _ended(state)
    return replace(state, master_awaited_until_s=min(state.master_awaited_until_s, now_s + MASTER_WAIT_S))


def at_time(state: ShutdownState, now_s: float) -> ShutdownState:
    """The state at this time."""
    return _ended(state) if now_s >= state.due_s else state


def _ended(state: ShutdownState) -> ShutdownState:
    return replace(state, has_ended=True)
