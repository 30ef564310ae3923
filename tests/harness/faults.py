"""Process faults of all chaos suites: kinds, and the record of a landed fault."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

Fault = TypeVar("Fault")


class FaultKind(StrEnum):
    KILL = "kill"  # SIGKILL
    STOP = "stop"  # SIGSTOP, and SIGCONT later


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFault(Generic[Fault]):
    """A fault that was seen to happen.  The job can recover from `over_at_s` on (monotonic)."""

    fault: Fault
    target: str  # which processes, for people
    over_at_s: float
    servers: frozenset[str] = frozenset()  # member names of the parameter servers that it hit
