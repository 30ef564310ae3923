"""The trainer's side of the data protocol, as a pure state machine (rules 9 to 14 and 33 to 35 of docs/protocol.md).

A trainer holds leases, cuts them into batches, and may say that a position is done only when *every* bucket has
confirmed it at one lineage.  Whatever goes wrong in between (a broken stream, a roll-back, a bucket that has part of a
batch already, a drain) must end in one of two ways: the position is confirmed, or somebody trains it again.

`handle(state, event) -> Step(state, effects)` decides; it never waits, sends or computes.  `values` has the events and
effects, `state` what is remembered, `leases` what is held and asked for, `batches` what becomes of a batch and its
push, `core` the dispatch.  Not here: threads, time, streams (`trainer_sdk.driver`), the record numbers behind the
positions (`trainer_sdk.permutation`).
"""

from trainer_sdk.protocol.core import handle
from trainer_sdk.protocol.state import Flight, Holding, Part, Phase, Step, TrainerState, check_invariants, start
from trainer_sdk.protocol.values import (
    AcquireDue,
    AskLater,
    BatchDone,
    BatchWanted,
    CheckpointWanted,
    CheckpointWritten,
    Complain,
    Discard,
    DrainDeadlinePassed,
    DrainRequested,
    Effect,
    Ending,
    Event,
    FinalHookRun,
    Finish,
    GiveBatch,
    LeaveRequested,
    OfferSettled,
    Place,
    Pulled,
    Push,
    PushAgain,
    PushAnswered,
    PushWanted,
    ReportDue,
    Restart,
    ScriptFailed,
    Send,
    SpecDeclared,
    StreamBroken,
    StreamOpened,
    UseRoute,
)

__all__ = [
    "AcquireDue",
    "AskLater",
    "BatchDone",
    "BatchWanted",
    "CheckpointWanted",
    "CheckpointWritten",
    "Complain",
    "Discard",
    "DrainDeadlinePassed",
    "DrainRequested",
    "Effect",
    "Ending",
    "Event",
    "FinalHookRun",
    "Finish",
    "Flight",
    "GiveBatch",
    "Holding",
    "LeaveRequested",
    "OfferSettled",
    "Part",
    "Phase",
    "Place",
    "Pulled",
    "Push",
    "PushAgain",
    "PushAnswered",
    "PushWanted",
    "ReportDue",
    "Restart",
    "ScriptFailed",
    "Send",
    "SpecDeclared",
    "Step",
    "StreamBroken",
    "StreamOpened",
    "TrainerState",
    "UseRoute",
    "check_invariants",
    "handle",
    "start",
]
