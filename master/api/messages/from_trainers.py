"""What trainers say to the master."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from master.api.identities import DatasetSpec, Incarnation, Lease, LeaseToken, Lineage, MemberName, TableSpec
from master.api.messages.checkpoint_files import FileRecord
from master.api.positions import EMPTY, PositionSet


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
