"""Pushes, their answers, and messages between servers about buckets: the values that the data path carries.

`wire` gives them their bytes.  Gradients are not here: the core decides *which buckets* get the gradient, and the shell
has it.  Read `server_events` next, then `server_state`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from master.api.identities import BucketId, Incarnation, Lineage, ServerPlace, Version
from master.api.positions import EMPTY, PositionSet

# ---- trainer <-> server ---------------------------------------------------------------------------------------------


class PushVerdict(StrEnum):
    """The answer to a push for one bucket; rule 6 has the order in which they are tried.

    The order here is part of the wire: a new verdict goes to the end.
    """

    NOT_READY = "not-ready"  # this server holds no model yet: ask again later
    STALE_LINEAGE = "stale-lineage"  # the model was rolled back: discard the gradient
    MOVED = "moved"  # not here, or another version: send the same gradient by a newer route
    SKIPPED = "skipped"  # positions: those quarantined; compute the others again without them
    REPEAT = "repeat"  # all positions were applied before: confirmed
    OVERLAP = "overlap"  # positions: those that are missing here; compute only them for these buckets
    HELD = "held"  # pushes wait for CUT: send the same gradient again (the server itself waits first)
    SPLIT = "split"  # positions: those inside the open cut; compute them and the rest one after the other (rule 21)
    APPLIED = "applied"  # confirmed
    FROZEN = "frozen"  # the bucket is being handed over: send the same gradient by a newer route
    NOT_YET = "not-yet"  # staged and not active, or its backup has not confirmed: send the same gradient again


CONFIRMED = frozenset({PushVerdict.APPLIED, PushVerdict.REPEAT})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    """Buckets that a push addresses, at the version in the sender's route (rules 37, 50)."""

    buckets: PositionSet
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One batch for all the buckets of one server (rule 7).  `lineage` is that of the pull it was computed on (rule 9).

    It names no lease: exactly-once rests on positions and marks, not on the sender (M1).
    """

    lineage: Lineage
    positions: PositionSet
    targets: tuple[PushTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """One verdict and its buckets; each `PushVerdict` says what `positions` means."""

    buckets: PositionSet
    verdict: PushVerdict
    positions: PositionSet = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAnswer:
    """A server's answer to a push: every addressed bucket stands in exactly one ruling, nearly always the only one.

    `lineage` is the server's own.
    """

    lineage: Lineage
    rulings: tuple[Ruling, ...]


# ---- an owner and its backup ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupPush:
    """Targets of a push that go to their backup first, as a Push of its own (rule 61)."""

    to: ServerPlace
    targets: tuple[PushTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupAnswer:
    """A backup's ruling on a push that its owner sent on at this version; what it confirmed stays confirmed."""

    backup: Incarnation
    version: Version
    ruling: Ruling


# ---- server <-> server ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyHead:
    """Head of a bucket's copy between servers; parameters and slots follow it (rules 42, 43).

    A final copy is a HANDOVER, made after the freeze; any other is WARM, a base that a difference can build on.
    """

    lineage: Lineage
    bucket: BucketId
    version: Version  # that the bucket has at the target, once active
    target: Incarnation  # the process that the copy is for
    is_final: bool
    applied: PositionSet
    skipped: PositionSet
    digest: str  # of the whole content
    base: str = ""  # digest of the content that the body is a difference to; empty: the body is everything
