"""Messages from parameter servers and trainers to the master."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from master.api.identities import (
    BucketId,
    CutId,
    DatasetSpec,
    Incarnation,
    Lease,
    LeaseToken,
    Lineage,
    MemberName,
    TableSpec,
    Version,
)
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.generations import (
    CopyFailed,
    GroupProgress,
    LeaveRequest,
    LeftGeneration,
    OfferState,
    RegisterReplica,
)
from master.api.positions import PositionSet


class CutRefusal(StrEnum):
    """Reason of a server not to take part in a cut (rules 6, 19, 20)."""

    NOT_READY = "not-ready"
    STALE_LINEAGE = "stale-lineage"
    OLD = "old"
    GONE = "gone"
    FAILED = "failed"  # a full disk, for example: see the message


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterServer:
    """First message of a server's stream.  `lineage` is NO_LINEAGE for a process that holds no model."""

    name: MemberName
    ordinal: int
    incarnation: Incarnation
    address: str
    lineage: Lineage
    is_leaving: bool = False  # it has sent ServerLeaving before, maybe to another master


@dataclass(frozen=True, slots=True, kw_only=True)
class MarksReport:
    """Answer to AskMarks (rule 17).  Empty marks: this server holds no bucket of that lineage."""

    lineage: Lineage
    marks: tuple[BucketMarks, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """RESTORE of this lineage is complete (rule 27): the server serves."""

    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFailed:
    """The base could not be read or did not verify; the server still holds no model of that lineage."""

    lineage: Lineage
    message: str
    is_damaged: bool = False  # a file is missing or altered, as opposed to a folder that does not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Answer to HOLD: pushes are held; these are the marks of the active buckets (rule 19)."""

    cut: CutId
    marks: tuple[BucketMarks, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTaken:
    """Answer to CUT: the buckets are forked, and pushes continue (rule 20)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRefused:
    """Answer to HOLD or CUT, or report that the fork has ended; the master gives the cut up."""

    cut: CutId
    reason: CutRefusal
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The fork's file is complete and verified (rule 21); repeated on request."""

    cut: CutId
    file: FileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipAnswer:
    """Answer to SKIP (rule 31), per group of buckets: `skipped` now, or `applied` already."""

    lineage: Lineage
    positions: PositionSet
    skipped: PositionSet  # bucket numbers
    applied: PositionSet  # bucket numbers; of a bucket in neither set its active copy is elsewhere (rule 60)
    of_backups: bool = False  # as the question was


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """This server has the whole bucket, staged for this version; so its source has frozen the one before (rule 44)."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Activated:
    """Answer to ACTIVATE: these are live and active here at this version, as owner or as backup (rules 47, 62)."""

    lineage: Lineage
    buckets: PositionSet
    version: Version
    is_backup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLeaving:
    """This server terminates: it ends when it is Released, or when its grace is over."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSilent:
    """A backup of this server has confirmed nothing for `silent_s`; pushes wait for it (rule 62)."""

    lineage: Lineage
    backup: Incarnation
    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """Sizes and loads of this server's live buckets, sent at first and every few seconds; best effort."""

    lineage: Lineage
    buckets: PositionSet
    sizes_bytes: tuple[int, ...]  # of each, in their order: parameters and slots
    loads: tuple[float, ...]  # of each: bytes pushed and pulled a second, since the report before; rows by a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTrainer:
    """First message of a trainer's stream, and after FENCED or a broken stream.  `held` may be kept (rule 18)."""

    name: MemberName
    ordinal: int
    incarnation: Incarnation
    held: tuple[Lease, ...] = ()
    has_final_hook: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Declare:
    """Names the data set and the tables; the first one becomes durable, later ones must be equal."""

    dataset: DatasetSpec
    tables: tuple[TableSpec, ...] = ()
    layout: str = ""  # of a group: digest of the model's layout and of all that must be equal on its ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """Asks for up to `shards` leases; answered Granted, Wait, Ended or Fenced (rule 10).  A lost answer: ask again."""

    request: int
    shards: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """Every bucket has confirmed these positions (rule 12).  Also the progress that renews the lease."""

    token: LeaseToken
    positions: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """Not trained, given back to the front of the queue (rule 13)."""

    token: LeaseToken
    positions: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Alive and moving: `steps` counts batch steps begun or finished by this process and only grows.

    A lease is renewed when `steps` grew, not by the message: leases are renewed by progress.  `metrics` is what the
    script reported last, `waiting_share` the part of its time since the last report, 0 to 1, in which it waited for
    parameter servers to answer a pull or a push.  Now the script computes on a batch, or waits for one or for servers,
    or is in its own code, where it may evaluate: a script that stands still there proves nothing (ADR 0287).
    """

    steps: int
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    waiting_share: float = 0.0
    is_computing: bool = False
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The script raised while these positions were in flight (M4); the process is about to end."""

    positions: PositionSet
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalSaved:
    """The final-save hook has run on this trainer.  It runs at least once; again if this message was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Drained: nothing held any more, the process is about to end (rule 13)."""

    reason: str = ""


TrainerMessage = RegisterTrainer | Declare | Acquire | Ack | Return | Progress | Failed | FinalSaved | Leave

GroupMessage = RegisterReplica | LeftGeneration | GroupProgress | OfferState | CopyFailed | LeaveRequest
"""Of a trainer in a group alone (`generations`)."""

ReplicaMessage = GroupMessage | Declare | Failed | FinalSaved | Leave
"""Of a trainer in a group."""

ServerMessage = (
    RegisterServer
    | MarksReport
    | Restored
    | RestoreFailed
    | Held
    | CutTaken
    | CutRefused
    | Written
    | SkipAnswer
    | Installed
    | Activated
    | ServerLeaving
    | ServerReport
    | BackupSilent
)

MemberMessage = TrainerMessage | GroupMessage | ServerMessage
