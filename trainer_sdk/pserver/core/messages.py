"""Pushes, their answers, and what servers say to each other about buckets: the values that the data path carries.

`wire` gives them their bytes.  Gradients are not here: the core decides *which buckets* get the gradient, and the shell
has it.  Read `effects` next, then `server_state`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from master.api.identities import BucketId, Incarnation, Lineage, ServerPlace, Version
from master.api.positions import EMPTY, PositionSet

# ---- trainer <-> server ---------------------------------------------------------------------------------------------


class PushVerdict(StrEnum):
    """What became of a push in one bucket (rules 6 and 50).  The order is part of the wire: new ones go to the end."""

    NOT_READY = "not-ready"  # no model here yet: ask again later
    STALE_LINEAGE = "stale-lineage"  # discard the gradient
    MOVED = "moved"  # not held, or another version: refresh the route, send the same gradient
    SKIPPED = "skipped"  # positions: those quarantined; the others are to be computed again without them
    REPEAT = "repeat"  # all applied before: confirmed
    OVERLAP = "overlap"  # positions: those missing here; compute only them for these buckets
    HELD = "held"  # a cut is being agreed on: send the same gradient again (the server itself waits first)
    SPLIT = "split"  # positions: those inside the open cut; compute them and the rest one after the other (rule 21)
    APPLIED = "applied"  # confirmed
    FROZEN = "frozen"  # it is being handed over: refresh the route, send the same gradient (rule 50)
    NOT_YET = "not-yet"  # it is here and not active yet: likewise


CONFIRMED = frozenset({PushVerdict.APPLIED, PushVerdict.REPEAT})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    """Buckets that a push addresses, at the version that its sender's route names (rules 37, 50)."""

    buckets: PositionSet
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One batch for all the buckets of one server (rule 7).  `lineage` is that of the pull it was computed on (rule 9).

    It names no lease: exactly-once rests on positions and marks, whoever sends them (M1).
    """

    lineage: Lineage
    positions: PositionSet
    targets: tuple[PushTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """One verdict and the buckets that it holds for; what `positions` means stands beside each Verdict."""

    buckets: PositionSet
    verdict: PushVerdict
    positions: PositionSet = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAnswer:
    """Every bucket addressed stands in exactly one ruling; nearly always there is one ruling.

    `lineage` is the server's own.
    """

    lineage: Lineage
    rulings: tuple[Ruling, ...]


# ---- an owner and its backup ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupPush:
    """These targets of a push go to their backup first, as a Push of its own (rule 61)."""

    to: ServerPlace
    targets: tuple[PushTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupAnswer:
    """What this process answered to a push that was passed on to it at this version.  Of that it stays true."""

    backup: Incarnation
    version: Version
    ruling: Ruling


# ---- server <-> server ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyHead:
    """What a copy of a bucket says of itself; parameters and slots follow it (rules 42, 43).

    Final: HANDOVER, made after the freeze.  Else WARM: something to build on, no more.
    """

    lineage: Lineage
    bucket: BucketId
    version: Version  # that the bucket would become
    target: Incarnation  # the process that it is for
    is_final: bool
    applied: PositionSet
    skipped: PositionSet
    digest: str  # of the whole content
    base: str = ""  # digest of the content that what follows is a difference to; empty: what follows is everything
