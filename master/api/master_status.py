"""The status of a job as its master reports it: read by the command line, the operator and the metrics.

Counts are positions (a record in an epoch); times are ages in seconds at the moment of the answer.  The six places of
the positions add up to `total` (M4).  Skew rule: a reader takes a status with the fields that it knows and no others.

A job's master may be any program of its owner (`spec.master.template`), so every number has a range here, and every
text a length but `problem` and a failure's message, which readers cut (A11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from master.api.document import from_plain, parse_json
from master.api.errors import DocumentError
from master.api.identities import Lineage, ManifestId, MemberName, MemberRole, Term
from master.api.positions import PositionSet


class JobPhase(StrEnum):
    STARTING = "starting"  # a new master reads what is durable; nothing is declared yet
    WAITING_FOR_SERVERS = "waiting-for-servers"
    RESTORING = "restoring"
    TRAINING = "training"
    COMMITTING = "committing"  # training continues meanwhile
    SAVING = "saving"  # all committed; a trainer runs the final-save hook
    COMPLETE = "complete"
    FAILED = "failed"  # `problem` says why; nothing more is granted


TRAINING_PHASES: Final = frozenset({JobPhase.TRAINING, JobPhase.COMMITTING, JobPhase.SAVING})
"""Samples are trained, or all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCounts:
    """Counts of the job's positions by state (M4)."""

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
    role: MemberRole
    ordinal: int
    is_connected: bool
    is_serving: bool  # a trainer: registered; a server: holds the current lineage
    leased: int
    steps: int  # of a trainer's process
    samples_per_s: float
    metrics: Mapping[str, float]  # last values reported by the script, without NaN and infinity
    buckets: int = 0  # of a server: that it owns
    took_over: int = 0  # of a server: buckets of lost ones that it had the second copies of, under this master
    waiting_share: float = 0.0  # of a trainer's time, 0 to 1: it waits for servers, in a group for its data loader
    group_phase: str = ""  # of a trainer in a group: what it does (`GroupPhase`)
    is_computing: bool = False  # of a trainer without a group: on a batch, waiting for nobody
    is_waiting: bool = False  # of such a trainer: for a batch, or for parameter servers


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStatus:
    member: MemberName
    age_s: float
    positions: PositionSet  # that were in flight
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalStatus:
    """A trainer whose declaration was refused while others of its group trained."""

    member: MemberName
    process: str  # tells its processes apart
    age_s: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    phase: JobPhase
    problem: str  # why training is stopped: no lease is granted until it is resolved; empty: no problem
    checkpoint_problem: str  # why the last commit was given up; training and attempts continue
    store_problem: str  # why the store takes no writes; training continues, checkpoints and other durable writes wait
    moves_problem: str  # moves that timed out; training continues, they are retried
    term: Term
    lineage: Lineage
    head: ManifestId | None
    checkpoint_age_s: float | None  # since its commit, by the calendar if by an earlier master; None: no head, unknown
    epochs: int
    epoch_size: int
    positions: PositionCounts
    per_epoch: tuple[EpochStatus, ...]  # those begun and not yet committed whole, 16 at most
    epochs_committed: int  # whole epochs in the last checkpoint, from the first
    quarantine: PositionSet
    reworked: int  # positions that went back from done, under this master
    members: tuple[MemberStatus, ...]
    servers: int  # that hold the current model, or wait for their share of it
    servers_wanted: int  # servers with ordinals below this stay; others hand over their buckets and end
    servers_max: int
    moving: int  # buckets on their way between servers
    waiting_to_move: int
    copies: int  # of each bucket, while there are servers for them
    single_copies: int  # buckets that have one, where two are wanted: a loss of it rolls the job back
    failures: tuple[FailureStatus, ...]
    failures_in_a_row: int
    fell_back: str = ""  # description of the fallback; empty: none
    is_model_kept: bool = True  # false: data sharding only, once that is declared; nothing holds what was learned
    generation: int = 0  # of a group (rule 64); 0: there is none
    group_step: int = 0  # steps that a group has done
    group_steps: int = 0  # ... of so many
    data_problem: str = ""  # of a group: trainers that have read other data at one position; training continues
    compared_step: int = 0  # of a group: step at which its trainers compared their replicas last, and found them equal
    compared_by: int = 0  # ... number of these trainers; 0: nothing is compared yet
    compared_digest: str = ""  # ... of each of their replicas
    compared_request: str = ""  # the last request for a comparison that is answered by it
    trainers_problem: str = ""  # of a group: trainers that hang, and that the others train on without
    refusals: tuple[RefusalStatus, ...] = ()  # of a group: the last one of each trainer; its job trains on
    stopped_at: int | None = None  # the step after which a script ended a group's training, in head; None: none did
    resize_pause_s: float = 0.0  # of a group: how long its last change of members stopped it
    has_heard_trainers: bool = True  # false: no trainer has registered under this master yet


LARGEST_COUNT: Final = 2**63 - 1
LARGEST_SMALL: Final = 2**31 - 1  # of servers, copies, buckets, ordinals: what a TrainingJob's status can hold
LARGEST_MEASURE: Final = 1e12  # of a rate per second
LONGEST_AGE_S: Final = 1e9  # thirty years
LONGEST_NAME: Final = 1024
MOST_MEMBERS: Final = 25_000  # twice 10,000, the most replicas of a role, and those that are leaving

_SMALL: Final = frozenset(
    {"ordinal", "buckets", "servers", "servers_wanted", "servers_max", "moving", "waiting_to_move"}
    | {"copies", "single_copies", "compared_by"}
)
_MOST: Final = {"waiting_share": 1.0, "checkpoint_age_s": LONGEST_AGE_S, "age_s": LONGEST_AGE_S}
_ANY_LENGTH: Final = frozenset(
    {"problem", "message", "fell_back", "checkpoint_problem", "store_problem", "moves_problem", "data_problem"}
    | {"trainers_problem"}
)


def decode_status(data: bytes) -> JobStatus:
    """The status that a master sent, with every number in its range.  Raises DocumentError, naming the field."""
    plain = parse_json(data)
    members = plain.get("members") if isinstance(plain, dict) else None
    if isinstance(members, list) and len(members) > MOST_MEMBERS:
        raise DocumentError("members", f"has {len(members):,} of them, and {MOST_MEMBERS:,} is the most")
    status = from_plain(JobStatus, plain)
    _check_ranges(status)
    places = [getattr(status.positions, one.name) for one in fields(PositionCounts) if one.name != "total"]
    if sum(places) > status.positions.total:
        raise DocumentError(
            "positions", f"add up to {sum(places)}, more than their total {status.positions.total} (M4)"
        )
    return status


def _check_ranges(record: Any) -> None:
    """Raises DocumentError for the first field of the dataclass, or of those in it, that is out of range."""
    for field in fields(record):
        match getattr(record, field.name):
            case bool():
                pass
            case int(number) | float(number):
                _check_range(field.name, number)
            case str(words) if len(words) > LONGEST_NAME and field.name not in _ANY_LENGTH:
                raise DocumentError(field.name, f"has {len(words):,} characters, and {LONGEST_NAME:,} is the most")
            case PositionCounts() as counts:
                _check_ranges(counts)
            case tuple(items):
                for item in items:
                    _check_ranges(item)
            case _:
                pass  # None, a word of a closed set, position sets and metrics, which are checked or finite by now


def _check_range(name: str, number: float) -> None:
    most = LARGEST_COUNT if isinstance(number, int) else _MOST.get(name, LARGEST_MEASURE)
    most = LARGEST_SMALL if name in _SMALL else most
    if not 0 <= number <= most:
        raise DocumentError(name, f"is out of range: 0 to {most}")
