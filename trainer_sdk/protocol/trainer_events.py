"""Events and effects of the trainer's protocol.

The master's messages are events as they are; other events come from the script, the parameter servers and the clock.  A
flight has a number that is never used twice in a process, so a late answer finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from master.api.identities import Lineage, Route
from master.api.messages.from_members import Declare, TrainerMessage
from master.api.messages.to_members import ToTrainer
from master.api.positions import PositionSet
from trainer_sdk.pserver.core.messages import Ruling

# ---- events: the stream and the clock -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MasterStreamOpened:
    """A new stream to a master is open, without messages so far."""


@dataclass(frozen=True, slots=True)
class MasterStreamBroken:
    """The stream to the master is broken; leases are kept and trained meanwhile (M5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireDue:
    """The time of `AcquireLater` has passed, or no answer came: send this Acquire again."""

    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDue:
    """A report is due, which also acks confirmed positions.  `steps` only grows."""

    steps: int
    samples_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    waiting_share: float = 0.0  # share of the time spent waiting for parameter servers
    is_computing: bool = False  # the script has a batch in hand, and waits for nobody
    is_waiting: bool = False  # ... waits for a batch, or for parameter servers


# ---- events: the script ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDeclared:
    """The script has declared what it trains."""

    spec: Declare


@dataclass(frozen=True, slots=True)
class BatchRequested:
    """The script is ready for its next batch; GiveBatch or Finish follows at once or after a later event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersPulled:
    """The script computes with parameters of this lineage, the older one if they mix two (rule 9)."""

    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequested:
    """The script has the gradients of this flight, computed on what was pulled last."""

    flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAnswered:
    """Verdicts of buckets on this flight's push (rule 6).  A bucket that no ruling names gets the push again."""

    flight: int
    rulings: tuple[Ruling, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """The script has trained this flight, in a job without parameter servers."""

    flight: int


@dataclass(frozen=True, slots=True)
class FinalHookRun:
    """The script's final hook has returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFailed:
    """The script raised; `message` is for its author."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequested:
    """SIGTERM: the process has to go (M7)."""

    reason: str


@dataclass(frozen=True, slots=True)
class DrainDeadlinePassed:
    """The batch in hand was not confirmed in time; unconfirmed positions are returned, never acked (rule 13)."""


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
    | FinalHookRun
    | ScriptFailed
    | DrainRequested
    | DrainDeadlinePassed
    | LeaveRequested
)

# ---- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SendToMaster:
    """Send this to the master, in order.  It may be lost with the stream; the state knows what to repeat."""

    message: TrainerMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireLater:
    """Raise AcquireDue(request) after this time."""

    request: int
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBatch:
    """Give these positions to the script, also a part that some buckets still miss (rule 11)."""

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
    """Push the *same* gradient under the same lineage to these buckets, by a newer route or after a while (rule 2)."""

    flight: int
    buckets: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Drop this flight's gradient, which does not count any more (rule 14)."""

    flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRoute:
    """Pull from and push to the owners in this route from now on."""

    route: Route
    bucket_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignRank:
    """Take this rank among so many trainers."""

    rank: int
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRefusal:
    """Tell the script that the master refuses its declaration for good."""

    field: str
    message: str


class FinishReason(StrEnum):
    ENDED = "ended"  # everything is trained and committed
    DRAINED = "drained"  # this trainer terminates; the job continues


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Give no more batches.  `final_saver`: this trainer runs the final hook."""

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
    | ReportRefusal
    | Finish
)
