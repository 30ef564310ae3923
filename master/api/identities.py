"""Identifiers for fencing: term, lineage, version, incarnation, lease token.

Three numbers are kept apart because their refusals mean different things (protocol rule 2): another *lineage* means
discard the gradient, another *version* means send the same gradient again, an older *term* means register again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, Literal, NewType

from master.api.positions import PositionSet

Term = NewType("Term", int)
"""Create revision of the leader key; grows with each master."""

Lineage = NewType("Lineage", int)
"""Number of the model's history; + 1 at every loss or roll-back.  NO_LINEAGE: holds no model."""

NO_LINEAGE: Final = Lineage(0)

Version = NewType("Version", int)
"""Of one bucket's owner within a lineage; counts from 0 (moves of buckets raise it)."""

MemberName = NewType("MemberName", str)
"""Name of the pod, unique in its job: `digits-trainer-2`."""

Incarnation = NewType("Incarnation", str)
"""New for each process, so that a restarted member is never mistaken for the one it replaces."""

ManifestId = NewType("ManifestId", str)

HistoryId = NewType("HistoryId", str)
"""Id of a checkpoint history; a new one for each start from zero in a folder (M11)."""

BucketId = NewType("BucketId", int)


class MemberRole(StrEnum):
    TRAINER = "trainer"
    SERVER = "server"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LeaseToken:
    """Fences one lease (rule 3).  An ack counts only with the token under which the lease was granted."""

    term: Term
    lineage: Lineage
    incarnation: Incarnation
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One trainer's right to train these positions while it makes progress (M2)."""

    token: LeaseToken
    positions: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CutId:
    """One attempt at a checkpoint (rule 4); ordered: a server keeps the newest that it knows."""

    term: Term
    lineage: Lineage
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """Data set of a job: `size` records, `epochs` times, in an order keyed by `seed`.  Fixed for the life of a job.

    Position p is record permutation(seed, p // size)[p % size]; a batch never crosses an epoch's end.
    """

    name: str
    size: int
    epochs: int
    batch_size: int
    seed: int = 0

    @property
    def everything(self) -> PositionSet:
        return PositionSet.span(0, self.size * self.epochs)

    @property
    def digest(self) -> str:
        """Equal for equal specs; checkpoints of another data set are refused by it (batch size does not matter)."""
        identity = {key: value for key, value in asdict(self).items() if key != "batch_size"}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialiser:
    """The first value of a table, made by the server that first holds a bucket: deterministic, so it is never sent."""

    kind: Literal["zeros", "constant", "normal", "uniform"] = "zeros"
    scale: float = 0.0  # the constant, the standard deviation, or the half-width
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserSpec:
    """Applied on the server; slots live beside the rows."""

    kind: Literal["sgd", "momentum", "adagrad", "adam"] = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.9
    beta1: float = 0.9  # adam's decay of the mean
    beta2: float = 0.999  # adam's decay of the square; not a weight decay
    epsilon: float = 1e-8  # adagrad, adam


TableKind = Literal["dense", "sparse"]
"""Of each kind the parameter servers have a store of their own; CONTRIBUTING lists what a new one needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A dense table is a tensor cut into blocks; a sparse one is `shape[0]` rows of `shape[1:]`, addressed by id."""

    name: str
    shape: tuple[int, ...]
    kind: TableKind = "dense"
    dtype: Literal["float32", "float64", "int64"] = "float32"
    initialiser: Initialiser = Initialiser()
    optimiser: OptimiserSpec = OptimiserSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """A parameter server's process and address."""

    name: MemberName
    incarnation: Incarnation
    address: str  # host:port of its data path, or unix:PATH
    ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The owner of each bucket (rule 37): `owner[b]` indexes `servers`, `version[b]` is the bucket's version."""

    revision: int
    lineage: Lineage
    servers: tuple[ServerPlace, ...]
    owner: tuple[int, ...]
    version: tuple[Version, ...]


class WhenUnreadable(StrEnum):
    """Policy for an unreadable last checkpoint: `spec.checkpoint.whenUnreadable`."""

    FAIL = "Fail"
    FALL_BACK = "FallBack"


def parse_when_unreadable(text: str) -> WhenUnreadable:
    """EDL_WHEN_UNREADABLE as the master and a script alone read it; empty: Fail.  Raises ValueError."""
    if (way := text or WhenUnreadable.FAIL.value) not in tuple(WhenUnreadable):
        raise ValueError(f"{way[:40]!r} is not one of {', '.join(WhenUnreadable)}")
    return WhenUnreadable(way)
