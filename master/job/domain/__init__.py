"""The words of the master's pure cores: settings, durable records, events, effects.

The master decides in one function, `job.handle(state, event, now) -> Step(state, effects)`: frozen values in, frozen
values out, no clock, no chance, no I/O.  The shell (`runtime`, `server`) turns the world into events and carries the
effects out.  Order is the contract: `Persist` effects run one after another, each is answered by one event, and what
must be durable before an answer leaves is sent only by the step that handles that event (persist before reply).

By subject: `keys`, `settings`, `records`, `writes`, `effects`, `events`, `deadlines`.

Not here: what travels to members (`api.messages`), the state (`state`), the decisions (`dispatch`, `membership`,
`checkpoint`, `recovery`).  Read next: `job`.
"""

from master.job.domain.deadlines import (
    AnswersOverdue,
    CommitDue,
    CutExpired,
    Deadline,
    HoldExpired,
    LeaseExpired,
    MovesAgain,
    MovesExpired,
    OwnersAwaited,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
)
from master.job.domain.durable_records import (
    UNNAMED,
    Backups,
    DatasetRecord,
    Durable,
    Intent,
    IntentsRecord,
    LineageRecord,
    Origin,
    RefoundingRecord,
    Table,
    TrainersRecord,
)
from master.job.domain.effects import (
    AnswerServers,
    CloseStream,
    Effect,
    FallBack,
    FindAdoptable,
    Persist,
    Retain,
    Send,
    StepDown,
    WriteManifest,
)
from master.job.domain.job_config import AfterLoss, JobConfig
from master.job.domain.job_events import (
    AdoptableFound,
    Event,
    ManifestWriteFailed,
    ManifestWritten,
    MessageReceived,
    MovesAsked,
    Persisted,
    PersistRefused,
    ServersAsked,
    StreamBroken,
)
from master.job.domain.keys import SECOND, Instant, MemberKey
from master.job.domain.writes import (
    ChangeTable,
    RaiseLineage,
    RecordDataset,
    RecordQuarantine,
    RecordServers,
    ReserveHighWater,
    SwapHead,
    Write,
)

__all__ = [
    "SECOND",
    "UNNAMED",
    "AdoptableFound",
    "AfterLoss",
    "AnswerServers",
    "AnswersOverdue",
    "Backups",
    "ChangeTable",
    "CloseStream",
    "CommitDue",
    "CutExpired",
    "DatasetRecord",
    "Deadline",
    "Durable",
    "Effect",
    "Event",
    "FallBack",
    "FindAdoptable",
    "HoldExpired",
    "Instant",
    "Intent",
    "IntentsRecord",
    "JobConfig",
    "LeaseExpired",
    "LineageRecord",
    "ManifestWriteFailed",
    "ManifestWritten",
    "MemberKey",
    "MessageReceived",
    "MovesAgain",
    "MovesAsked",
    "MovesExpired",
    "Origin",
    "OwnersAwaited",
    "Persist",
    "PersistRefused",
    "Persisted",
    "RaiseLineage",
    "ReclaimWindowEnded",
    "ReconnectWindowEnded",
    "RecordDataset",
    "RecordQuarantine",
    "RecordServers",
    "RefoundingRecord",
    "ReserveHighWater",
    "Retain",
    "Send",
    "ServersAsked",
    "StepDown",
    "StreamBroken",
    "SwapHead",
    "Table",
    "TrainersRecord",
    "Write",
    "WriteManifest",
]
