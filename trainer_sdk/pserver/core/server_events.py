"""Events that the shell reports to the core, in the past tense, and effects that the core orders, in the imperative.

The master's orders are events as they are (`master.api.messages`).  Gradients are not here: the core decides which
buckets get the gradient, and the shell has it.  Read `server_state` next, then `pushes` and `event_table`.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.api.identities import BucketId, CutId, Lineage, ServerPlace, Version
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import ServerMessage
from master.api.messages.to_members import Activate, AskMarks, Cut, Drop, Forget, Freeze, Hold, Restore, Skip
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.core.messages import CopyHead

# ---- events: the shell to the core -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldTimedOut:
    """No CUT came within `ServerLimits.hold_s` (rule 19)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkTimedOut:
    """The fork was not complete within `ServerLimits.fork_s` (rule 21)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoaded:
    """The model of this lineage is loaded; `marks` is what the files say.  A bucket that no file names is untrained."""

    lineage: Lineage
    marks: tuple[BucketMarks, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed:
    """The model could not be loaded: a file is missing or does not verify, or the folder does not answer."""

    lineage: Lineage
    message: str
    is_damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWritten:
    """The file of this cut is complete under its final name."""

    cut: CutId
    file: FileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFailed:
    """The file of this cut could not be written: the disk is full, for example."""

    cut: CutId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyArrived:
    """A copy was received whole: its bytes have the digest that its head names."""

    head: CopyHead


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmCopyRequested:
    """A FREEZE waits until `target` has a copy of the bucket, which takes pushes meanwhile (WARM, rule 42)."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: ServerPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class FullCopyRequested:
    """The target of a hand-over lacks the base of the difference (NEED_FULL)."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: ServerPlace


ControlEvent = Restore | AskMarks | Hold | Cut | Drop | Skip | Freeze | Activate | Forget
ShellEvent = (
    HoldTimedOut
    | ForkTimedOut
    | ModelLoaded
    | LoadFailed
    | FileWritten
    | FileFailed
    | CopyArrived
    | WarmCopyRequested
    | FullCopyRequested
)
ServerEvent = ControlEvent | ShellEvent


# ---- effects: the core to the shell, in the order in which they are to happen -------------------------------------


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
    """Keep parameters and slots of these buckets as they are now, by copy on write."""

    cut: CutId
    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFork:
    """Release the fork's copies; its file, if it is being written, is not wanted any more."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFork:
    """Write the file of a fork that is complete and changes no more; then report FileWritten or FileFailed."""

    cut: CutId
    marks: tuple[BucketMarks, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadModel:
    """Drop the model but for the buckets `kept`, load the others; then report ModelLoaded or LoadFailed."""

    restore: Restore
    kept: PositionSet = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyMaster:
    """Send this to the master."""

    message: ServerMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCopy:
    """Send this bucket, as it is now, to another server; `is_full`: whole, not as a difference to an earlier copy."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: ServerPlace
    is_final: bool
    is_full: bool
    applied: PositionSet
    skipped: PositionSet

    def head(self, digest: str, base: str = "") -> CopyHead:
        """The head of a copy whose content has this digest; `base`: digest of what it is a difference to."""
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
    """Stage the copy that has just come, in place of an earlier one; no pull reads it and no push reaches it."""

    head: CopyHead


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFullCopy:
    """Answer the copy that has just come with NEED_FULL: the base of the difference is not here (rule 42)."""

    head: CopyHead


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeStaged:
    """Make the staged copies of these buckets live."""

    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DropStaged:
    """Release the staged copies of these buckets."""

    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DropLive:
    """Release the live content of these buckets; what a fork has of them stays."""

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
