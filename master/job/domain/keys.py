"""Who is meant, and when: members by process, instants of the master's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

from master.api.identities import Incarnation, MemberName

Instant = NewType("Instant", int)
"""A reading of the master's monotonic clock, ns.  Compared with readings of the same process only."""

SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MemberKey:
    """One process: a restarted member has another incarnation and is somebody else."""

    name: MemberName
    incarnation: Incarnation
