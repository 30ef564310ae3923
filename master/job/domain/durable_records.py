"""Durable records of a job, and the writes that change them (persist before reply)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

from master.api.checkpoints.manifest import Manifest
from master.api.identities import (
    BucketId,
    DatasetSpec,
    HistoryId,
    Incarnation,
    Lineage,
    ManifestId,
    MemberName,
    Route,
    TableSpec,
    Version,
)
from master.api.messages.generations import Generation
from master.api.positions import EMPTY, PositionSet

Instant = NewType("Instant", int)
"""A reading of the master's monotonic clock, ns.  Compared with readings of the same process only."""

SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MemberKey:
    """One process of a member: a restarted member has another incarnation and is another process."""

    name: MemberName
    incarnation: Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRecord:
    """The current lineage (rule 2): its number, the manifest that it started from, and its quarantine."""

    number: Lineage
    base: ManifestId | None
    quarantine: PositionSet = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class RefoundingRecord:
    """The checkpoint from which the store was refounded, and whether files were set aside (ADR 0189)."""

    base: ManifestId | None  # the only checkpoint that stays in the folder; None: the job started from zero
    history: HistoryId  # names where the rest is set aside
    above: Lineage  # everything that is set aside is of this lineage or an older one
    fallback_note: str = ""  # of a fallback, for people
    is_set_aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRecord:
    """Declaration recorded by the first Declare, for the life of the job."""

    dataset: DatasetSpec
    tables: tuple[TableSpec, ...] = ()
    layout: str = ""  # of a group's replicas; empty: of another kind of job, or unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A move that has begun: a bucket goes from its owner, at this version, to another process (rule 40)."""

    bucket: BucketId
    lineage: Lineage
    version: Version  # of the owner now; the move ends at the next one, whatever its end
    source: MemberKey
    target: MemberKey
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentsRecord:
    """All moves that have begun; the key is absent when there is none."""

    intents: tuple[Intent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainersRecord:
    """The trainers that may hold leases, in order; a next master waits for them (rule 18)."""

    trainers: tuple[MemberKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backups:
    """The server with the second copy of each bucket (rule 61), and since which version each copy counts.

    All tuples are by bucket.  `owner_since`, `backup_since`: from this version on the table has named the process, as
    owner or as backup, without a break.
    """

    backup: tuple[int, ...]  # indexes the route's servers; NO_SERVER: there is none
    owner_since: tuple[Version, ...]
    backup_since: tuple[Version, ...]
    wanted: PositionSet = EMPTY  # buckets whose intent is for a new backup: its source stays their owner


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTable:
    """The owner of each bucket and the moves that have begun: one durable value, changed by comparing the whole (rule
    37).
    """

    route: Route
    intents: tuple[Intent, ...] = ()  # at most one a bucket, in their order
    backups: Backups | None = None  # None: every bucket has one copy


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOrigin:
    """The history and the random part that make this term's manifests its own job's and their ids new (M11)."""

    history: HistoryId
    founded: Lineage  # the first lineage of that history, or a later one where it is not known
    fresh: str  # random, of this term


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRecord:
    """The generation of a group, and the one that it is planned from: a new master waits for the members of both."""

    current: Generation
    before: Generation | None = None


UNNAMED_ORIGIN: Final = ManifestOrigin(history=HistoryId("unnamed"), founded=Lineage(1), fresh="0")
"""Origin of a core without a checkpoint folder (tests)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """Everything durable that a new master reads after it has the term."""

    lineage: LineageRecord | None = None
    dataset: DatasetRecord | None = None
    high_water: int = 0
    trainers: tuple[MemberKey, ...] | None = None  # who may hold leases below it; None: unknown
    head: Manifest | None = None  # the manifest that the head record names, read and verified
    route: Route | None = None
    intents: tuple[Intent, ...] = ()
    backups: Backups | None = None
    servers: int | None = None  # target; None: the number of the settings
    generation: GenerationRecord | None = None
    final_save: ManifestId | None = None  # the checkpoint after which a group's final hook has run
    origin: ManifestOrigin = UNNAMED_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapHead:
    """head = parent and lineage record = `lineage`  ->  head := manifest (rules 23, 24).

    `generation`: of a group, compared too (rule 87).
    """

    parent: ManifestId | None
    lineage: LineageRecord
    manifest: ManifestId
    generation: GenerationRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseLineage:
    """lineage record = `old` (None: absent) and head = new.base  ->  lineage := new, table := this, no intents (56)."""

    old: LineageRecord | None
    new: LineageRecord
    route: Route | None
    backups: Backups | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuarantine:
    """lineage record = `old`  ->  lineage record := new, which differs in its quarantine only (rule 31)."""

    old: LineageRecord
    new: LineageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDataset:
    """data set record = `old`, or none recorded yet  ->  data set and tables := these.

    `old` is of a group alone, and differs in epochs or layout (rule 98).
    """

    record: DatasetRecord
    old: DatasetRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveHighWater:
    """high-water := below, trainers := these.  No lease is of another trainer, or goes beyond `below` (rule 18).

    None: who trains is not said, and a next master keeps its whole window for them.
    """

    below: int
    trainers: tuple[MemberKey, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTable:
    """table = `old`  ->  table := `new`: INTENT, FLIP and UNDO, of one bucket or of several (rules 41, 45, 46).

    Revision and lineage are part of the table, so this is refused after any other change and after any roll-back.
    """

    old: BucketTable
    new: BucketTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordServers:
    """servers := count.  So many are wanted until another number is said, whichever master leads (ADR 0315)."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordGeneration:
    """generation = `old`, head and lineage as read  ->  generation := `new` (rule 76)."""

    old: GenerationRecord | None
    new: GenerationRecord
    head: ManifestId | None
    lineage: LineageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFinalSave:
    """final save = `old` and head = manifest  ->  final save := manifest (rule 96)."""

    old: ManifestId | None
    manifest: ManifestId


DurableWrite = (
    SwapHead
    | RaiseLineage
    | RecordQuarantine
    | RecordDataset
    | RecordServers
    | ReserveHighWater
    | ChangeTable
    | RecordGeneration
    | RecordFinalSave
)
