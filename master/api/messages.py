"""What travels on a member's stream, as values; `codec` gives them their wire form.

Trainers and parameter servers keep one stream each with the master.  Members speak first (`RegisterTrainer`,
`RegisterServer`); every answer names what it answers by token, cut or lineage, so lost, repeated and reordered
messages mean the same as before.  The rules cited are those of docs/protocol.md.
"""

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
    ManifestId,
    MemberName,
    Route,
    ServerPlace,
    TableSpec,
    Term,
    Version,
)
from master.api.positions import EMPTY, PositionSet

# ---- trainer -> master ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTrainer:
    """First message of a trainer's stream, and after FENCED or a broken stream.  `held` may be kept (rule 18)."""

    name: MemberName
    ordinal: int
    incarnation: Incarnation
    lineage: Lineage
    held: tuple[Lease, ...] = ()
    has_final_hook: bool = False
    applied: PositionSet = EMPTY  # marks of a model that this trainer holds itself, in `lineage` (rule 34)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declare:
    """Names the data set and the tables; the first one becomes durable, later ones must be equal."""

    dataset: DatasetSpec
    tables: tuple[TableSpec, ...] = ()
    own_model: bool = False  # the trainer holds the model and offers checkpoints of it (rules 33 to 35)


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
    parameter servers to answer a pull or a push.
    """

    steps: int
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    waiting_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The script raised while these positions were in flight (M4); the process is about to end."""

    positions: PositionSet
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferCheckpoint:
    """A trainer with its own model has written it (rules 33 to 36); `world` is the lineage it trained in."""

    offer: int
    world: Lineage
    file: FileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalSaved:
    """The final-save hook has run on this trainer.  It runs at least once; again where this was not heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Drained: nothing held any more, the process is about to end (rule 13)."""

    reason: str = ""


# ---- server -> master -----------------------------------------------------------------------------------------------


class Refusal(StrEnum):
    """Why a server does not take part in a cut or cannot do as told (rules 6, 19, 20)."""

    NOT_READY = "not-ready"
    STALE_LINEAGE = "stale-lineage"
    OLD = "old"
    GONE = "gone"
    FAILED = "failed"  # the disk is full, say; the message tells


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketMarks:
    """What these buckets have applied and will never apply.  `buckets` is a set of bucket numbers."""

    buckets: PositionSet
    applied: PositionSet
    skipped: PositionSet = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One written checkpoint file, as it describes itself (rule 21).  `extents`: (bucket, offset, length, digest)."""

    name: str  # relative to the job's checkpoint folder
    size_bytes: int
    digest: str
    lineage: Lineage
    marks: tuple[BucketMarks, ...]
    extents: tuple[tuple[BucketId, int, int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterServer:
    """First message of a server's stream.  `lineage` is NO_LINEAGE for a process that holds no model."""

    name: MemberName
    ordinal: int
    incarnation: Incarnation
    address: str
    lineage: Lineage
    is_leaving: bool = False  # it has said so before, maybe to another master


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Answer to HOLD: pushes are held; these are the marks of the active buckets (rule 19)."""

    cut: CutId
    marks: tuple[BucketMarks, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTaken:
    """Answer to CUT: forked, goes on (rule 20)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRefused:
    """Answer to HOLD or CUT, or news that the fork has ended; the master gives the cut up."""

    cut: CutId
    reason: Refusal
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The fork's file is complete and verified (rule 21); said again if asked again."""

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
    """This server has to go: it ends when it is Released, or when its grace is over."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSilent:
    """This process, the backup of what I own, has confirmed nothing for so long: pushes wait for it (rule 62)."""

    lineage: Lineage
    backup: Incarnation
    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """What the buckets that are live here weigh: said once they are, and every some seconds.  Lost or late: no harm."""

    lineage: Lineage
    buckets: PositionSet
    sizes_bytes: tuple[int, ...]  # of each, in their order: parameters and slots
    loads: tuple[float, ...]  # of each: bytes pushed and pulled a second, since the report before; rows by a sample


# ---- master -> any member -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """You are stale: drop leases and gradients, register again, keep the process (rule 14)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What was asked is wrong and will stay wrong: `field` names it, `message` says what to do."""

    field: str
    message: str


# ---- master -> trainer ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Answer to RegisterTrainer.  `kept` are the held leases that stay, under their new tokens (rule 18)."""

    term: Term
    lineage: Lineage
    kept: tuple[Lease, ...]
    dataset: DatasetSpec | None
    tables: tuple[TableSpec, ...]
    head: ManifestId | None
    report_every_s: float
    restore: FileRecord | None = None  # model of a single trainer without servers, to start from (rule 35)
    restored_data: PositionSet = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Answer to Declare: what holds from now on."""

    dataset: DatasetSpec
    tables: tuple[TableSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    request: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Others still hold positions, or the model is being restored (M3).  Ask again after `retry_after_s`."""

    request: int
    retry_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """All is done and committed (rule 32).  `final_saver`: run the final-save hook, then say FinalSaved."""

    request: int
    final_saver: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Leave within `deadline_s`: finish the batch, return the rest (M7)."""

    deadline_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteChanged:
    """Where the buckets are; sent when every owner serves, and after each change."""

    route: Route
    bucket_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChanged:
    """This trainer's place among the trainers as of now."""

    rank: int
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferAnswered:
    """Answer to OfferCheckpoint: committed under `manifest`, or refused with the reason."""

    offer: int
    manifest: ManifestId | None
    reason: str = ""


# ---- master -> server -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWelcome:
    """Answer to RegisterServer."""

    term: Term
    lineage: Lineage
    report_every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskMarks:
    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Buckets that this server owned in that lineage: it keeps those that are active here at just this version."""

    lineage: Lineage
    version: Version
    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Backed:
    """These buckets have their backup there (rule 61)."""

    buckets: PositionSet
    backup: ServerPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Take these buckets from the base's files, or from the initialisers where it has none (rules 26, 27).

    Taken only by this incarnation and only if `lineage` is larger than the server's own.  `kept`: of `buckets`, those
    whose parameters and marks stay where they are still here as it says (KEEP, rule 30); the others come from the base.
    """

    incarnation: Incarnation
    lineage: Lineage
    base: ManifestId | None
    files: tuple[FileRecord, ...]
    data: PositionSet  # the base's data state: what its parameters have applied
    quarantine: PositionSet
    tables: tuple[TableSpec, ...]
    bucket_count: int
    buckets: PositionSet  # bucket numbers this server owns
    version: Version
    kept: tuple[Kept, ...] = ()
    backed: tuple[Backed, ...] = ()  # those of them that have a backup
    standby: PositionSet = EMPTY  # bucket numbers that this server is the backup of


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    cut: CutId
    data: PositionSet  # D, the union of all HELD marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Give the cut up, now or when it arrives: its id is never taken again."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Never apply these positions (rule 31), in the buckets that you own or in those that you are the backup of."""

    lineage: Lineage
    positions: PositionSet
    of_backups: bool = False  # asked once their owners have answered: a backup skips nothing that its owner may apply


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """Send a copy of this bucket to `target` ahead of the hand-over, and go on serving it (rule 42)."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: ServerPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """Serve no push of this bucket any more, if it is live here at this very version, and hand it over (rule 43)."""

    lineage: Lineage
    bucket: BucketId
    version: Version
    target: ServerPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Activate:
    """The table names you as the owner of these buckets at this version, or as their backup: serve them (47, 62).

    `since`: a copy of that version or of a later one is yours to serve, for the table has named you without a break.
    """

    lineage: Lineage
    buckets: PositionSet
    version: Version
    since: Version
    backup: ServerPlace | None = None  # where what is pushed goes first; only to an owner
    is_backup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The table names somebody else as the owner of these buckets at this version (rule 48)."""

    lineage: Lineage
    buckets: PositionSet
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """This server owns nothing any more and may end (rule 49)."""


TrainerMessage = (
    RegisterTrainer | Declare | Acquire | Ack | Return | Progress | Failed | OfferCheckpoint | FinalSaved | Leave
)
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
MemberMessage = TrainerMessage | ServerMessage
ToTrainer = (
    Registered
    | Declared
    | Granted
    | Wait
    | Ended
    | Drain
    | RouteChanged
    | RankChanged
    | OfferAnswered
    | Fenced
    | Refused
)
ToServer = (
    ServerWelcome
    | AskMarks
    | Restore
    | Hold
    | Cut
    | Drop
    | Skip
    | Warm
    | Freeze
    | Activate
    | Forget
    | Released
    | Fenced
    | Refused
)
MasterMessage = ToTrainer | ToServer
