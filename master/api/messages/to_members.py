"""Messages from the master to trainers and parameter servers."""

from __future__ import annotations

from dataclasses import dataclass

from master.api.identities import (
    BucketId,
    CutId,
    DatasetSpec,
    Incarnation,
    Lease,
    Lineage,
    ManifestId,
    Route,
    ServerPlace,
    TableSpec,
    Term,
    Version,
)
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.generations import (
    BrokenGeneration,
    ComparisonWanted,
    CopyWanted,
    GroupEnded,
    NewGeneration,
    ReplicaRegistered,
)
from master.api.positions import EMPTY, PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The receiver is stale: it drops leases and gradients and registers again, in the same process (rule 14)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The request is invalid and will stay invalid: `field` names it, `message` says what to do."""

    field: str
    message: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Answer to Declare: the recorded declaration."""

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
    """Routing table of the buckets; sent when every owner serves, and after each change."""

    route: Route
    bucket_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChanged:
    """This trainer's place among the trainers as of now."""

    rank: int
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferAnswered:
    """Answer to OfferState: committed under `manifest`, or refused with the reason."""

    offer: int
    manifest: ManifestId | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWelcome:
    """Answer to RegisterServer."""

    term: Term
    lineage: Lineage
    report_every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskMarks:
    """Report the marks of the buckets that this server owns at this lineage (rule 17); answered MarksReport."""

    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBuckets:
    """Buckets that this server owned in that lineage: it keeps those that are active here at this very version."""

    lineage: Lineage
    version: Version
    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedBuckets:
    """Buckets whose backup is at that place (rule 61)."""

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
    kept: tuple[KeptBuckets, ...] = ()
    backed: tuple[BackedBuckets, ...] = ()  # those of them that have a backup
    standby: PositionSet = EMPTY  # bucket numbers that this server is the backup of


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Hold pushes for a checkpoint (rule 19): answered Held with the marks of each bucket, or CutRefused."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Fork the buckets at the data state D (rule 20) and write their file: answered CutTaken, later Written."""

    cut: CutId
    data: PositionSet  # D, the union of all HELD marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Give the cut up, now or when it arrives: its id is never taken again."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Never apply these positions (rule 31), in the buckets that the server owns, or in those that it backs."""

    lineage: Lineage
    positions: PositionSet
    of_backups: bool = False  # asked once their owners have answered: a backup skips nothing that its owner may apply


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
    """The table names another server as the owner of these buckets at this version (rule 48)."""

    lineage: Lineage
    buckets: PositionSet
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """This server owns nothing any more, or this trainer of a group is awaited by nobody: it may end (rules 49, 83)."""


ToTrainer = Registered | Declared | Granted | Wait | Ended | Drain | RouteChanged | RankChanged | Fenced | Refused

ToReplica = (
    ReplicaRegistered
    | Declared
    | NewGeneration
    | BrokenGeneration
    | CopyWanted
    | ComparisonWanted
    | OfferAnswered
    | GroupEnded
    | Released
    | Fenced
    | Refused
)
"""To a trainer in a group (`generations`)."""

ToServer = (
    ServerWelcome
    | AskMarks
    | Restore
    | Hold
    | Cut
    | Drop
    | Skip
    | Freeze
    | Activate
    | Forget
    | Released
    | Fenced
    | Refused
)

MasterMessage = ToTrainer | ToReplica | ToServer
