"""When a parameter server ends: told to go, it stays until its buckets are elsewhere, as long as that can come about.

    serving --SIGTERM--> leaving --released, a second SIGTERM, no master for long, grace nearly over--> ended

At once without a grace, or without a master where nothing would be lost.  A server may also be released without having
been told: fewer are wanted (rule 49).  What is left when it ends is a loss, and comes back from the last checkpoint.
Pure; times in seconds on a monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, assert_never

MASTER_WAIT_S: Final = 12.0  # a successor leads within the lease and 2 s (M5: 8 s); then a server's pauses of up to 2 s


@dataclass(frozen=True, slots=True)
class SigtermReceived:
    """SIGTERM."""


@dataclass(frozen=True, slots=True)
class SigintReceived:
    """SIGINT: somebody at a terminal."""


@dataclass(frozen=True, slots=True)
class ParentDied:
    """The process that started this one is gone."""


@dataclass(frozen=True, slots=True)
class MasterJoined:
    """A master has taken this server in (ServerWelcome): an open stream alone may lead nowhere."""


@dataclass(frozen=True, slots=True)
class MasterLost:
    """The stream to it is broken."""


@dataclass(frozen=True, slots=True)
class ReleasedByMaster:
    """The master has said Released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedByMaster:
    """The master refuses this server."""

    reason: str


ShutdownEvent = (
    SigtermReceived | SigintReceived | ParentDied | MasterJoined | MasterLost | ReleasedByMaster | RefusedByMaster
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownState:
    """What bears on the end of one process."""

    grace_s: float  # from SIGTERM until it has to be gone
    has_master: bool = False
    leaving_until_s: float = math.inf  # finite: it was told to go
    master_awaited_until_s: float = math.inf  # finite: leaving, and no master is heard
    has_ended: bool = False
    is_released: bool = False
    refusal: str = ""

    @property
    def is_leaving(self) -> bool:
        return self.leaving_until_s < math.inf and not self.has_ended

    @property
    def due_s(self) -> float:
        """When it ends unless something happens before."""
        return min(self.leaving_until_s, self.master_awaited_until_s)


def after_event(state: ShutdownState, fact: ShutdownEvent, now_s: float, *, would_lose: bool) -> ShutdownState:
    """The state once this has happened.  `would_lose`: buckets are here, or on their way from a checkpoint."""
    match fact:
        case SigtermReceived():
            return _told(state, now_s, would_lose=would_lose)
        case ReleasedByMaster():
            return replace(_ended(state), is_released=True)
        case SigintReceived() | ParentDied():
            return _ended(state)
        case RefusedByMaster(reason=reason):
            return replace(_ended(state), refusal=reason)
        case MasterJoined():
            return replace(state, has_master=True, master_awaited_until_s=math.inf)
        case MasterLost():
            return _alone(replace(state, has_master=False), now_s, would_lose=would_lose)
        case _:
            assert_never(fact)


def _told(state: ShutdownState, now_s: float, *, would_lose: bool) -> ShutdownState:
    """Where a master is heard it is asked even with nothing to lose: copies may be on their way here."""
    if state.grace_s <= 0 or state.is_leaving:
        return _ended(state)
    return _alone(replace(state, leaving_until_s=now_s + state.grace_s), now_s, would_lose=would_lose)


def _alone(state: ShutdownState, now_s: float, *, would_lose: bool) -> ShutdownState:
    """Without a master nobody moves anything, but another one may come."""
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
