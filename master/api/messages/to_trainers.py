"""What the master tells trainers."""

from __future__ import annotations

from dataclasses import dataclass

from master.api.identities import DatasetSpec, Lease, Lineage, ManifestId, Route, TableSpec, Term
from master.api.messages.checkpoint_files import FileRecord
from master.api.positions import EMPTY, PositionSet


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
