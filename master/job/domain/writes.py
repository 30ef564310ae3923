"""The transactions on the store: each requires `leader = me` besides what it names, and is one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from master.api.identities import ManifestId, Route
from master.job.domain.durable_records import Backups, DatasetRecord, LineageRecord, Table
from master.job.domain.keys import MemberKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapHead:
    """head = parent and lineage record = `lineage`  ->  head := manifest (rules 23, 24)."""

    parent: ManifestId | None
    lineage: LineageRecord
    manifest: ManifestId


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
    """No data set recorded yet  ->  data set and tables := these."""

    record: DatasetRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveHighWater:
    """high-water := below, trainers := these.  No lease is of anybody else, or goes beyond `below` (rule 18).

    None: who trains is not said, and a next master keeps its whole window for them.
    """

    below: int
    trainers: tuple[MemberKey, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTable:
    """table = `old`  ->  table := `new`: INTENT, FLIP and UNDO, of one bucket or of several (rules 41, 45, 46).

    Revision and lineage are part of the table, so this is refused after any other change and after any roll-back.
    """

    old: Table
    new: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordServers:
    """servers := count.  So many are wanted until another number is said, whichever master leads (ADR 0315)."""

    count: int


Write = SwapHead | RaiseLineage | RecordQuarantine | RecordDataset | RecordServers | ReserveHighWater | ChangeTable
