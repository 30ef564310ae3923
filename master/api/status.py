"""What a job's master says of itself: read by the command line, the autoscaler and the metrics.

Counts are positions (a record in an epoch); times are ages in seconds at the moment of the answer.  The six places of
the positions add up to `total` (M4).  Skew rule: a reader takes its own version, and an older one that lacks only what
has an honest answer for a master that does not know of it (`decode_status`); it refuses a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from master.api.document import from_plain, parse_json
from master.api.identities import Lineage, ManifestId, MemberName, Role, Term
from master.api.positions import PositionSet


class JobPhase(StrEnum):
    STARTING = "starting"  # a new master reads what is durable; nothing is declared yet
    WAITING_FOR_SERVERS = "waiting-for-servers"
    RESTORING = "restoring"
    TRAINING = "training"
    COMMITTING = "committing"  # training goes on meanwhile
    SAVING = "saving"  # all committed; a trainer runs the final-save hook
    COMPLETE = "complete"
    FAILED = "failed"  # `problem` says why; nothing more is granted


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCounts:
    """Where the job's positions are (M4)."""

    total: int
    todo: int
    leased: int
    done: int  # confirmed, not yet in a checkpoint
    skipping: int
    committed: int  # in the last checkpoint
    quarantined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStatus:
    epoch: int
    committed: int
    done: int
    quarantined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    name: MemberName
    role: Role
    ordinal: int
    is_connected: bool
    is_serving: bool  # a trainer: registered; a server: holds the current lineage
    leased: int
    steps: int  # of a trainer's process
    samples_per_s: float
    metrics: Mapping[str, float]  # what the script reported last, less what is no number (a loss that diverged)
    buckets: int = 0  # of a server: that it owns
    took_over: int = 0  # of a server: buckets of lost ones that it had the second copies of, under this master
    waiting_share: float = 0.0  # of a trainer's time: waiting for servers to answer pulls and pushes, 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStatus:
    member: MemberName
    age_s: float
    positions: PositionSet  # that were in flight
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    phase: JobPhase
    problem: str  # why it does not go on, or why the last commit was given up; empty when all is well
    term: Term
    lineage: Lineage
    head: ManifestId | None
    head_age_s: float | None  # since this master committed it; None: an earlier one did
    epochs: int
    epoch_size: int
    positions: PositionCounts
    per_epoch: tuple[EpochStatus, ...]  # those begun and not yet committed whole, 16 at most
    epochs_committed: int  # whole epochs in the last checkpoint, from the first
    quarantine: PositionSet
    reworked: int  # positions that went back from done, under this master
    members: tuple[MemberStatus, ...]
    servers: int  # that hold the current model, or wait for their share of it
    servers_wanted: int  # ordinals below this are to be here, the others empty themselves and go
    servers_max: int
    moving: int  # buckets on their way between servers
    waiting_to_move: int
    copies: int  # of each bucket, while there are servers for them
    alone: int  # buckets that have one, where two are wanted: a loss of it rolls the job back
    failures: tuple[FailureStatus, ...]
    failures_in_a_row: int


def decode_status(data: bytes) -> JobStatus:
    """What a master says of itself, one of an older version too.  Raises DocumentError, naming the field.

    Jobs go on under the master that they began with while the operator is upgraded.
    """
    plain = _filled(parse_json(data), _OF_OLD_MASTERS)
    if isinstance(plain, dict) and isinstance(plain.get("members"), list):
        plain["members"] = [_filled(member, _OF_OLD_MEMBERS) for member in plain["members"]]
    return from_plain(JobStatus, plain)


_OF_OLD_MASTERS: Final[dict[str, Any]] = {"copies": 1, "alone": 0}  # they have no second copies
_OF_OLD_MEMBERS: Final[dict[str, Any]] = {"took_over": 0, "waiting_share": 0.0}


def _filled(plain: Any, absent: dict[str, Any]) -> Any:
    return absent | plain if isinstance(plain, dict) else plain
