"""Messages on a member's stream, as values; `wire.message_codec` gives them their wire form.

Trainers and parameter servers keep one stream each with the master.  Members speak first (`RegisterTrainer`,
`RegisterServer`).  Every answer names what it answers by token, cut or lineage, so lost, repeated and reordered
messages mean the same as before.  The rules cited are those of docs/protocol.md and docs/protocol-moves.md.
"""

from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import (
    Ack,
    Acquire,
    Activated,
    BackupSilent,
    CutRefusal,
    CutRefused,
    CutTaken,
    Declare,
    Failed,
    FinalSaved,
    Held,
    Installed,
    Leave,
    MarksReport,
    OfferCheckpoint,
    Progress,
    RegisterServer,
    RegisterTrainer,
    Restored,
    RestoreFailed,
    Return,
    ServerLeaving,
    ServerReport,
    SkipAnswer,
    Written,
)
from master.api.messages.to_members import (
    Activate,
    AskMarks,
    BackedBuckets,
    Cut,
    Declared,
    Drain,
    Drop,
    Ended,
    Fenced,
    Forget,
    Freeze,
    Granted,
    Hold,
    KeptBuckets,
    OfferAnswered,
    RankChanged,
    Refused,
    Registered,
    Released,
    Restore,
    RouteChanged,
    ServerWelcome,
    Skip,
    Wait,
    Warm,
)

TrainerMessage = (
    RegisterTrainer | Declare | Acquire | Ack | Return | Progress | Failed | OfferCheckpoint | FinalSaved | Leave
)

ServerMessage = (
    RegisterServer
    | MarksReport
    | Restored
    | RestoreFailed
    | Held
    | CutTaken
    | CutRefused
    | Written
    | SkipAnswer
    | Installed
    | Activated
    | ServerLeaving
    | ServerReport
    | BackupSilent
)

MemberMessage = TrainerMessage | ServerMessage

ToTrainer = (
    Registered
    | Declared
    | Granted
    | Wait
    | Ended
    | Drain
    | RouteChanged
    | RankChanged
    | OfferAnswered
    | Fenced
    | Refused
)

ToServer = (
    ServerWelcome
    | AskMarks
    | Restore
    | Hold
    | Cut
    | Drop
    | Skip
    | Warm
    | Freeze
    | Activate
    | Forget
    | Released
    | Fenced
    | Refused
)

MasterMessage = ToTrainer | ToServer

__all__ = [
    "Ack",
    "Acquire",
    "Activate",
    "Activated",
    "AskMarks",
    "BackedBuckets",
    "BackupSilent",
    "BucketMarks",
    "Cut",
    "CutRefusal",
    "CutRefused",
    "CutTaken",
    "Declare",
    "Declared",
    "Drain",
    "Drop",
    "Ended",
    "Failed",
    "Fenced",
    "FileRecord",
    "FinalSaved",
    "Forget",
    "Freeze",
    "Granted",
    "Held",
    "Hold",
    "Installed",
    "KeptBuckets",
    "Leave",
    "MarksReport",
    "MasterMessage",
    "MemberMessage",
    "OfferAnswered",
    "OfferCheckpoint",
    "Progress",
    "RankChanged",
    "Refused",
    "RegisterServer",
    "RegisterTrainer",
    "Registered",
    "Released",
    "Restore",
    "RestoreFailed",
    "Restored",
    "Return",
    "RouteChanged",
    "ServerLeaving",
    "ServerMessage",
    "ServerReport",
    "ServerWelcome",
    "Skip",
    "SkipAnswer",
    "ToServer",
    "ToTrainer",
    "TrainerMessage",
    "Wait",
    "Warm",
    "Written",
]
