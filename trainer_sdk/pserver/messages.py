"""What goes in and out of a parameter server's core, as values: pushes and their answers, events and effects.

Pushes and pulls travel between trainer and server (`wire` gives them their form); control messages are those of
`master.api.messages`; the rest is what the shell tells the core (events, in the past tense) and what the core tells
the shell (effects, in the imperative).  Gradients are not here: the core decides *which buckets* get the gradient, the
shell has it.  Read `state` next, then `bucket`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from master.api.identities import BucketId, CutId, Incarnation, LeaseToken, Lineage, ServerPlace, Version
from master.api.messages import (
    Activate,
    AskMarks,
    BucketMarks,
    Cut,
    Drop,
    FileRecord,
    Forget,
    Freeze,
    Hold,
    Restore,
    ServerMessage,
    Skip,
    Warm,
)
from master.api.positions import EMPTY, PositionSet

# ---- trainer <-> server ---------------------------------------------------------------------------------------------


class Verdict(StrEnum):
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


CONFIRMED = frozenset({Verdict.APPLIED, Verdict.REPEAT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Buckets that a push addresses, at the version that its sender's route names (rules 37, 50)."""

    buckets: PositionSet
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One batch for all the buckets of one server (rule 7).  `lineage` is that of the pull it was computed on (rule 9).

    `token` is for the logs alone: M1 does not rest on leases.
    """

    lineage: Lineage
    positions: PositionSet
    targets: tuple[Target, ...]
    token: LeaseToken | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """One verdict and the buckets that it holds for; what `positions` means stands beside each Verdict."""

    buckets: PositionSet
    verdict: Verdict
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
class PassOn:
    """These targets of a push go to their backup first, as a Push of its own (rule 61)."""

    to: ServerPlace
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSaid:
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


# ---- events: the shell tells the core -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldExpired:
    """No CUT came within `Limits.hold_s` (rule 19)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkExpired:
    """The fork was not complete within `Limits.fork_s` (rule 21)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoaded:
    """LoadModel of this lineage is done; `marks` is what the files say (all of them: nothing trained and no file)."""

    lineage: Lineage
    marks: tuple[BucketMarks, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed:
    """LoadModel of this lineage failed: a file is missing or does not verify, or the folder does not answer."""

    lineage: Lineage
    message: str
    is_damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWritten:
    """WriteFork of this cut is done: the file is complete under its final name."""

    cut: CutId
    file: FileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFailed:
    """WriteFork of this cut failed: the disk is full, say."""

    cut: CutId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyArrived:
    """A copy came in whole: a full one has its digest, and so has a difference where the base it names is here."""

    head: CopyHead


@dataclass(frozen=True, slots=True, kw_only=True)
class FullWanted:
    """The target of a hand-over lacks the base that it was made on (NEED_FULL)."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: ServerPlace


ControlEvent = Restore | AskMarks | Hold | Cut | Drop | Skip | Warm | Freeze | Activate | Forget
ShellEvent = HoldExpired | ForkExpired | ModelLoaded | LoadFailed | FileWritten | FileFailed | CopyArrived | FullWanted
Event = ControlEvent | ShellEvent


# ---- effects: the core tells the shell, in the order in which they are to happen -------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyLive:
    """The gradient of the push goes to the live parameters of these buckets."""

    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyBoth:
    """The gradient of the push goes to the live parameters and, with the fork's own slots, to the fork (rule 21)."""

    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFork:
    """From here on parameters and slots of these buckets are kept as they are now, copied on the first write."""

    cut: CutId
    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFork:
    """The fork's copies and its file, if it is being written, are worthless."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFork:
    """The fork is complete and changes no more: write its file, then say FileWritten or FileFailed."""

    cut: CutId
    marks: tuple[BucketMarks, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadModel:
    """Drop the model but for `keeps`, build what `restore` names besides, then say ModelLoaded or LoadFailed."""

    restore: Restore
    keeps: PositionSet = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Send this to the master."""

    message: ServerMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCopy:
    """Send this bucket, as it is now, to another server; `is_full`: not as a difference to what was sent before."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: ServerPlace
    is_final: bool
    is_full: bool
    applied: PositionSet
    skipped: PositionSet

    def head(self, digest: str, base: str = "") -> CopyHead:
        """Of the copy whose content has this digest; `base`: of what it is a difference to."""
        return CopyHead(
            lineage=self.lineage,
            bucket=self.bucket,
            version=self.version,
            target=self.target.incarnation,
            is_final=self.is_final,
            applied=self.applied,
            skipped=self.skipped,
            digest=digest,
            base=base,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCopy:
    """Keep what has just come, in place of what was staged of this bucket; nobody reads it and no push reaches it."""

    head: CopyHead


@dataclass(frozen=True, slots=True, kw_only=True)
class AskFull:
    """Answer the copy that has just come with NEED_FULL: the base that it names is not here (rule 42)."""

    head: CopyHead


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeStaged:
    """What is staged of these buckets is their live content from now on."""

    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DropStaged:
    """What is staged of these buckets is worthless."""

    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DropLive:
    """The live content of these buckets belongs to somebody else; what a fork has of it stays."""

    buckets: PositionSet


PushEffect = ApplyLive | ApplyBoth | WriteFork
Effect = (
    OpenFork
    | DropFork
    | WriteFork
    | LoadModel
    | Tell
    | SendCopy
    | StageCopy
    | AskFull
    | ServeStaged
    | DropStaged
    | DropLive
)
