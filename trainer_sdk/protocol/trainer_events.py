"""What can happen to a trainer (events) and what it then has to do (effects).

The master's messages are events as they are; the others come from the script, the parameter servers and the clock of
the shell.  Flights are named by a number that is never used twice in a process, so that a late answer finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from master.api.identities import Lineage, Route
from master.api.messages import Declare, FileRecord, OfferAnswered, ToTrainer, TrainerMessage
from master.api.positions import PositionSet
from trainer_sdk.pserver.core.messages import Ruling

# ---- events: the stream and the clock -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MasterStreamOpened:
    """A stream to a master stands; nothing has been said on it."""


@dataclass(frozen=True, slots=True)
class MasterStreamBroken:
    """The stream is gone; leases are kept and trained meanwhile (M5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireDue:
    """The time named by `AcquireLater` has passed, or no answer came to this request: ask (again)."""

    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDue:
    """Time to report: confirmed positions are acked with it.  `steps` only grows."""

    steps: int
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    waiting_share: float = 0.0  # of the time: for parameter servers


# ---- events: the script ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDeclared:
    """The script has said what it trains."""

    spec: Declare


@dataclass(frozen=True, slots=True)
class BatchRequested:
    """The script is ready for its next batch.  Answered by GiveBatch or Finish, at once or after a later event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersPulled:
    """The script computes with parameters of this lineage; where they mix two, of the older one (rule 9)."""

    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequested:
    """The script has the gradients of this flight, computed on what was pulled last."""

    flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAnswered:
    """What the buckets said to this flight's push (rule 6).  A bucket that no ruling names is pushed again."""

    flight: int
    rulings: tuple[Ruling, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """The script has finished this flight itself: a job without parameter servers."""

    flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWritten:
    """The script's own model is in this file, with the marks it had (rule 35)."""

    offer: int
    file: FileRecord


@dataclass(frozen=True, slots=True)
class FinalHookRun:
    """The final-save hook has returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFailed:
    """The script raised; `message` is what its author needs to see."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequested:
    """SIGTERM: the process has to go (M7)."""

    reason: str


@dataclass(frozen=True, slots=True)
class DrainDeadlinePassed:
    """The batch in hand was not confirmed in time: what is unconfirmed is returned, never acked (rule 13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequested:
    """The session is being closed."""

    reason: str


TrainerEvent = (
    ToTrainer
    | MasterStreamOpened
    | MasterStreamBroken
    | AcquireDue
    | ReportDue
    | SpecDeclared
    | BatchRequested
    | ParametersPulled
    | PushRequested
    | PushAnswered
    | BatchDone
    | CheckpointWritten
    | FinalHookRun
    | ScriptFailed
    | DrainRequested
    | DrainDeadlinePassed
    | LeaveRequested
)

# ---- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SendToMaster:
    """Say this to the master, in this order.  Lost with the stream; the state knows what to say again."""

    message: TrainerMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireLater:
    """Raise AcquireDue(request) after this time."""

    request: int
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBatch:
    """Hand these positions to the script.  A part that a bucket still misses comes this way too (rule 11)."""

    flight: int
    positions: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPush:
    """Push the gradient of these positions to these buckets, under the lineage of its pull (rules 7 and 9)."""

    flight: int
    positions: PositionSet
    buckets: PositionSet
    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendPush:
    """Push the *same* gradient, same lineage, to these buckets; first by a newer route, or after a while (rule 2)."""

    flight: int
    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Nothing that this flight computed counts any more: forget its gradient (rule 14)."""

    flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRoute:
    """The buckets are there from now on."""

    route: Route
    bucket_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignRank:
    """Rank and size of the group, as of now."""

    rank: int
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The model begins, or begins anew, from this file (None: from nothing) which has these positions (rule 35)."""

    file: FileRecord | None
    data: PositionSet


@dataclass(frozen=True, slots=True)
class RequestCheckpoint:
    """Nothing is left to train and the script's own model is not committed: END waits for its checkpoint (rule 32)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveOffer:
    """The offered checkpoint was committed, or refused with a reason."""

    answer: OfferAnswered


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRefusal:
    """The master refuses what the script declared; it will not get better by asking again."""

    field: str
    message: str


class FinishReason(StrEnum):
    ENDED = "ended"  # everything is trained and committed
    DRAINED = "drained"  # this trainer has to go; the job goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """No batch will be given any more.  `final_saver`: this trainer runs the final-save hook."""

    reason: FinishReason
    final_saver: bool = False


TrainerEffect = (
    SendToMaster
    | AcquireLater
    | GiveBatch
    | SendPush
    | ResendPush
    | Discard
    | UseRoute
    | AssignRank
    | Restart
    | RequestCheckpoint
    | ResolveOffer
    | ReportRefusal
    | Finish
)
