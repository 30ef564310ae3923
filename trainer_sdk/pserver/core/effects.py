"""Events that the shell reports to the core, in the past tense, and effects that the core orders, in the imperative.

The master's orders are events as they are (`master.api.messages`).  Gradients are not here: the core decides which
buckets get the gradient, and the shell has it.  Read `server_state` next, then `pushes` and `control`.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.api.identities import BucketId, CutId, Lineage, ServerPlace, Version
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
from trainer_sdk.pserver.core.messages import CopyHead

# ---- events: the shell tells the core -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldTimedOut:
    """No CUT came within `Limits.hold_s` (rule 19)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkTimedOut:
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
class FullCopyRequested:
    """The target of a hand-over lacks the base that it was made on (NEED_FULL)."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: ServerPlace


ControlEvent = Restore | AskMarks | Hold | Cut | Drop | Skip | Warm | Freeze | Activate | Forget
ShellEvent = (
    HoldTimedOut | ForkTimedOut | ModelLoaded | LoadFailed | FileWritten | FileFailed | CopyArrived | FullCopyRequested
)
ServerEvent = ControlEvent | ShellEvent


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
class NotifyMaster:
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
class RequestFullCopy:
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
ServerEffect = (
    OpenFork
    | DropFork
    | WriteFork
    | LoadModel
    | NotifyMaster
    | SendCopy
    | StageCopy
    | RequestFullCopy
    | ServeStaged
    | DropStaged
    | DropLive
)
