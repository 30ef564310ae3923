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

APART_S: Final = 12.0  # a successor leads within the lease and 2 s (M5: 8 s); then a server's pauses of up to 2 s


@dataclass(frozen=True, slots=True)
class Told:
    """SIGTERM."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """SIGINT: somebody at a terminal."""


@dataclass(frozen=True, slots=True)
class Orphaned:
    """The process that started this one is gone."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A master has taken this server in (ServerWelcome): an open stream alone may lead nowhere."""


@dataclass(frozen=True, slots=True)
class Apart:
    """The stream to it is broken."""


@dataclass(frozen=True, slots=True)
class Let:
    """The master has said Released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """The master refuses this server."""

    reason: str


Fact = Told | Interrupted | Orphaned | Heard | Apart | Let | Turned


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """What bears on the end of one process."""

    grace_s: float  # from SIGTERM until it has to be gone
    is_heard: bool = False
    leaving_until_s: float = math.inf  # finite: it was told to go
    alone_until_s: float = math.inf  # finite: leaving, and no master is heard
    has_ended: bool = False
    is_released: bool = False
    refusal: str = ""

    @property
    def is_leaving(self) -> bool:
        return self.leaving_until_s < math.inf and not self.has_ended

    @property
    def due_s(self) -> float:
        """When it ends unless something happens before."""
        return min(self.leaving_until_s, self.alone_until_s)


def after(state: Departure, fact: Fact, now_s: float, *, would_lose: bool) -> Departure:
    """The state once this has happened.  `would_lose`: buckets are here, or on their way from a checkpoint."""
    match fact:
        case Told():
            return _told(state, now_s, would_lose=would_lose)
        case Let():
            return replace(_ended(state), is_released=True)
        case Interrupted() | Orphaned():
            return _ended(state)
        case Turned(reason=reason):
            return replace(_ended(state), refusal=reason)
        case Heard():
            return replace(state, is_heard=True, alone_until_s=math.inf)
        case Apart():
            return _alone(replace(state, is_heard=False), now_s, would_lose=would_lose)
        case _:
            assert_never(fact)


def _told(state: Departure, now_s: float, *, would_lose: bool) -> Departure:
    """Where a master is heard it is asked even with nothing to lose: copies may be on their way here."""
    if state.grace_s <= 0 or state.is_leaving:
        return _ended(state)
    return _alone(replace(state, leaving_until_s=now_s + state.grace_s), now_s, would_lose=would_lose)


def _alone(state: Departure, now_s: float, *, would_lose: bool) -> Departure:
    """Without a master nobody moves anything, but another one may come."""
    if state.is_heard or not state.is_leaving:
        return state
    if not would_lose:
        return _ended(state)
    return replace(state, alone_until_s=min(state.alone_until_s, now_s + APART_S))


def passed(state: Departure, now_s: float) -> Departure:
    """The state at this time."""
    return _ended(state) if now_s >= state.due_s else state


def _ended(state: Departure) -> Departure:
    return replace(state, has_ended=True)
