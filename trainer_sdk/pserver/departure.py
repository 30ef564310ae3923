"""When a parameter server ends: told to go, it stays until its buckets are elsewhere, as long as that can come about.

    serving --SIGTERM--> leaving --released, a second SIGTERM, no master, grace nearly over--> ended

At once without a master, without a grace, or without anything that would be lost.  A server may also be released
without having been told: fewer are wanted (rule 49).  What is left when it ends is a loss, and comes back from the
last checkpoint.  Pure; times in seconds on a monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, assert_never

APART_S: Final = 0.5  # a stream that broke stands again within tenths if the master lives


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """SIGTERM."""

    would_lose: bool  # buckets are here, or on their way from a checkpoint


@dataclass(frozen=True, slots=True)
class Interrupted:
    """SIGINT: somebody at a terminal."""


@dataclass(frozen=True, slots=True)
class Orphaned:
    """The process that started this one is gone."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A stream to a master stands."""


@dataclass(frozen=True, slots=True)
class Apart:
    """It is broken."""


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
    alone_until_s: float = math.inf  # finite: leaving, and the stream is broken
    has_ended: bool = False
    refusal: str = ""

    @property
    def is_leaving(self) -> bool:
        return self.leaving_until_s < math.inf and not self.has_ended

    @property
    def due_s(self) -> float:
        """When it ends unless something happens before."""
        return min(self.leaving_until_s, self.alone_until_s)


def after(state: Departure, fact: Fact, now_s: float) -> Departure:
    """The state once this has happened."""
    match fact:
        case Told(would_lose=would_lose):
            may_stay = would_lose and state.is_heard and state.grace_s > 0 and not state.is_leaving
            return replace(state, leaving_until_s=now_s + state.grace_s) if may_stay else _ended(state)
        case Interrupted() | Orphaned() | Let():
            return _ended(state)
        case Turned(reason=reason):
            return replace(_ended(state), refusal=reason)
        case Heard():
            return replace(state, is_heard=True, alone_until_s=math.inf)
        case Apart():
            apart = replace(state, is_heard=False)
            return replace(apart, alone_until_s=now_s + APART_S) if state.is_leaving else apart
        case _:
            assert_never(fact)


def passed(state: Departure, now_s: float) -> Departure:
    """The state at this time."""
    return _ended(state) if now_s >= state.due_s else state


def _ended(state: Departure) -> Departure:
    return replace(state, has_ended=True)
