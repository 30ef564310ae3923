"""The words of the master's pure cores: settings, durable records, events, effects.

The master decides in one function, `job.handle(state, event, now) -> Step(state, effects)`: frozen values in, frozen
values out, no clock, no chance, no I/O.  The shell (`runtime`, `server`) turns the world into events and carries the
effects out.  Order is the contract: `Persist` effects run one after another, each is answered by one event, and what
must be durable before an answer leaves is sent only by the step that handles that event (persist before reply).

Not here: what travels to members (`api.messages`), the state (`state`), the decisions (`dispatch`, `membership`,
`checkpoint`, `recovery`).  Read next: `job`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

from master.api.identities import (
    BucketId,
    CutId,
    DatasetSpec,
    Incarnation,
    Lineage,
    ManifestId,
    MemberName,
    Route,
    TableSpec,
    Version,
)
from master.api.manifest import Manifest
from master.api.messages import MasterMessage, MemberMessage
from master.api.positions import EMPTY, PositionSet
from master.api.scaling import ServersAnswer
from master.job.placement import Move

Instant = NewType("Instant", int)
"""A reading of the master's monotonic clock, ns.  Compared with readings of the same process only."""

SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MemberKey:
    """One process: a restarted member has another incarnation and is somebody else."""

    name: MemberName
    incarnation: Incarnation


# ---- settings -------------------------------------------------------------------------------------------------------


class AfterLoss(StrEnum):
    """What the other servers do when one is lost with its buckets (rules 26, 30; ADR 0317)."""

    ROLL_BACK = "RollBack"  # all go back to the last checkpoint
    KEEP = "Keep"  # they stay as they are, and only what is lost comes from there


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """What one job's master is told; fixed for a term.  All times in ns."""

    servers: int  # when the job begins, 0 to servers - 1, and enough after a loss; 0: a job without servers
    max_servers: int = 0  # servers that may come later have ordinals below this; below `servers`: as many as those
    copies: int = 1  # of every bucket, while servers are there for them: 2 is an owner and a backup (rule 61)
    bucket_count: int = 256  # of a new job; an existing checkpoint or route says its own
    checkpoint_every_ns: int = 60 * SECOND  # from one commit's end to the next one's begin
    after_loss: AfterLoss = AfterLoss.ROLL_BACK

    reconnect_window_ns: int = 10 * SECOND  # a broken stream may come back this long (rule 18)
    short_window_ns: int = 2 * SECOND  # ... only so long while others wait for its leases, or for buckets sent to it
    backup_window_ns: int = SECOND // 2  # ... and a server without which nothing is lost (rule 62)
    silence_window_ns: int = 2 * SECOND  # a backup of which its owner says that it is silent has so long to say a word
    apart_after_ns: int = 10 * SECOND  # ... and one that is silent to its owner alone is given up after this
    owners_window_ns: int = 30 * SECOND  # a new master waits so long for servers that others could do without
    lease_floor_ns: int = 10 * SECOND  # a trainer without progress this long loses its leases at the earliest
    lease_first_ns: int = 120 * SECOND  # ... but from its first lease on so long for its first step, if it is heard of
    lease_factor: int = 8  # ... or this many expected batch times, whichever is longer

    target_shard_ns: int = 4 * SECOND  # of work per lease, from the trainer's measured rate (2 to 10 s)
    first_shard_batches: int = 4  # while no rate is known
    wait_retry_ns: int = SECOND // 4  # what Wait tells a trainer
    report_every_ns: int = SECOND  # what members are told

    hold_timeout_ns: int = SECOND  # for all servers' HELD; pushes wait meanwhile (rule 19)
    cut_timeout_ns: int = 300 * SECOND  # for all servers' WRITTEN (rule 21)
    retry_first_ns: int = SECOND // 2  # after a commit that was given up; doubles up to retry_last_ns
    retry_last_ns: int = 30 * SECOND
    answer_timeout_ns: int = 5 * SECOND  # then what a server has not answered is asked again
    moves_at_once: int = 16  # buckets on their way together from or to one server (`pace`)
    moving_bytes: int = 32 << 20  # ... and what they weigh, where servers have said it; these freeze fewer at once
    move_timeout_ns: int = 10 * SECOND  # from each intent on; then it is undone: pushes wait for it (rule 53)
    move_again_ns: int = 5 * SECOND  # after that; twice as long each time, for pushes have waited in vain

    quarantine_after: int = 3  # failures of different incarnations with the same positions in flight (M4)
    backoff_limit: int = 6  # failures in a row without one batch completed between them fail the job
    high_water_batches: int = 64  # positions are reserved in blocks of at least so many batches (M6)
    high_water_ns: int = 10 * SECOND  # ... and of about so much work: a write every few seconds

    @property
    def most_servers(self) -> int:
        """Servers that there may be at any time; 0: a job without servers."""
        return max(self.servers, self.max_servers) if self.servers else 0


# ---- durable records ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRecord:
    """The model's history (rule 2): which lineage is current, what it started from, what is never trained."""

    number: Lineage
    base: ManifestId | None
    quarantine: PositionSet = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRecord:
    """What the first Declare fixed."""

    dataset: DatasetSpec
    tables: tuple[TableSpec, ...] = ()
    own_model: bool = False  # a job without servers whose trainer holds the model (rules 33 to 35)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A bucket is to move from its owner, at this version, to another process (rule 40)."""

    bucket: BucketId
    lineage: Lineage
    version: Version  # of the owner now; the move ends at the next one, whatever its end
    source: MemberKey
    target: MemberKey
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentsRecord:
    """All of them, as they are recorded; absent when there is none."""

    intents: tuple[Intent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backups:
    """Who has the second copy of which bucket (rule 61), and how long a copy has counted.  By bucket.

    `since`: from this version on the table has named this process, as owner or as backup, without a break.
    """

    holder: tuple[int, ...]  # indexes the route's servers; NOBODY: there is none
    since: tuple[Version, ...]  # of the owner
    holder_since: tuple[Version, ...]
    wanted: PositionSet = EMPTY  # buckets whose intent is for a new backup: its source stays their owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Who owns which bucket, and which are to move: one durable value, changed by comparing the whole (rule 37)."""

    route: Route
    intents: tuple[Intent, ...] = ()  # at most one a bucket, in their order
    backups: Backups | None = None  # None: every bucket has one copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """All that a new master reads, after it has the term and before it acts (rule 17)."""

    lineage: LineageRecord | None = None
    dataset: DatasetRecord | None = None
    high_water: int = 0
    head: Manifest | None = None  # the manifest that the head record names, read and verified
    route: Route | None = None
    intents: tuple[Intent, ...] = ()
    backups: Backups | None = None
    servers: int | None = None  # wanted; None: nobody has asked for another number than the settings'


# ---- store transactions ---------------------------------------------------------------------------------------------
# Each requires `leader = me` besides what it names, and is one transaction.


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapHead:
    """head = parent and lineage record = `lineage`  ->  head := manifest (rules 23, 24)."""

    parent: ManifestId | None
    lineage: LineageRecord
    manifest: ManifestId


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseLineage:
    """lineage record = `old` (None: absent) and head = new.base  ->  lineage := new, table := this, no intents (56)."""

    old: LineageRecord | None
    new: LineageRecord
    route: Route | None
    backups: Backups | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuarantine:
    """lineage record = `old`  ->  lineage record := new, which differs in its quarantine only (rule 31)."""

    old: LineageRecord
    new: LineageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDataset:
    """No data set recorded yet  ->  data set and tables := these."""

    record: DatasetRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveHighWater:
    """high-water := below.  Positions from there on are in no lease of any master (rule 18)."""

    below: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTable:
    """table = `old`  ->  table := `new`: INTENT, FLIP and UNDO, of one bucket or of several (rules 41, 45, 46).

    Revision and lineage are part of the table, so this is refused after any other change and after any roll-back.
    """

    old: Table
    new: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordServers:
    """servers := count.  So many are wanted until another number is said, whichever master leads (ADR 0315)."""

    count: int


Write = SwapHead | RaiseLineage | RecordQuarantine | RecordDataset | RecordServers | ReserveHighWater | ChangeTable


# ---- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Answered by Persisted or PersistRefused.  An unknown outcome is settled by reading first (rule 23)."""

    write: Write


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteManifest:
    """Put it into the checkpoint folder, atomically; answered by ManifestWritten or ManifestWriteFailed."""

    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class FindAdoptable:
    """Look for a manifest of this parent and lineage whose files all verify within 1 s; answered by AdoptableFound."""

    parent: ManifestId | None
    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class Retain:
    """These stay, and what could be adopted: manifests whose parent is the head.  All else may go (rule 25).

    No answer.  Files that no remaining manifest names go too, but none younger than the newest of these.
    """

    manifests: frozenset[ManifestId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Put the message on the member's newest stream; no stream, no message: members ask again when they return."""

    to: MemberKey
    message: MasterMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseStream:
    """After what was sent to it before."""

    member: MemberKey
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDown:
    """End this term: the durable state is not what this master believes.  A new term reads it again (rule 17)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerServers:
    """To those who asked with these requests (ServersAsked), once: the number is durable."""

    requests: tuple[int, ...]
    answer: ServersAnswer
    is_news: bool = False  # another number than before holds now


Effect = Persist | WriteManifest | FindAdoptable | Retain | Send | CloseStream | AnswerServers | StepDown


# ---- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """From a connected member; a stream's first message is its registration, and `sender` is who that named."""

    sender: MemberKey
    message: MemberMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBroken:
    """The member's newest stream has ended, with or without a Leave."""

    member: MemberKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Persisted:
    write: Write


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistRefused:
    """It did not and will not happen: a requirement failed, or another one leads."""

    write: Write
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestWritten:
    manifest: ManifestId


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestWriteFailed:
    manifest: ManifestId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptableFound:
    """Answer to FindAdoptable: the one to adopt, with every digest verified, or None (always safe, rule 24)."""

    manifest: Manifest | None


# Deadlines.  `job.deadlines(state)` names those that are pending.  Each carries what it is about, so one that comes
# early, late, twice or after a renewal is either the decision that it would have been or nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExpired:
    """No progress of this trainer until `deadline`: its leases return (M2)."""

    trainer: MemberKey
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectWindowEnded:
    """The broken stream of this member did not come back: it is lost."""

    member: MemberKey
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimWindowEnded:
    """Leases of the master before this one, claimed by nobody, are TODO from now on (rule 18)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersAwaited:
    """Nobody has come in the place of a lost server: those that are here go on if they are enough (ADR 0315)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDue:
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldExpired:
    """Not every server has answered HOLD: the cut is given up (rule 19)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class CutExpired:
    """Not every server has written its file: the cut is given up (rule 21)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersOverdue:
    """Servers that have not answered AskMarks, Restore, Skip, Freeze or Activate are asked again."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesExpired:
    """Buckets that began to move have not arrived: their moves are undone (rule 53)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesAgain:
    """What was undone because it did not arrive, and what waited with it, is tried again."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersAsked:
    """The cluster side wants so many servers, ordinals 0 to count - 1; answered by AnswerServers with `request`.

    The newest number replaces every other one, carried out or not; what has begun to move goes on.
    """

    request: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesAsked:
    """Measured load, or somebody who sees the whole cluster, wants buckets elsewhere; source and target: ordinals.

    Takes the place of what is waiting to move; what has begun goes on.  Ignored while a server is leaving.
    Nobody in the product asks so yet: by it the checker moves any bucket anywhere, whatever `placement` would do.
    """

    moves: tuple[Move, ...]
    reason: str


Deadline = (
    LeaseExpired
    | ReconnectWindowEnded
    | ReclaimWindowEnded
    | OwnersAwaited
    | CommitDue
    | HoldExpired
    | CutExpired
    | AnswersOverdue
    | MovesExpired
    | MovesAgain
)
Event = (
    MessageReceived
    | StreamBroken
    | Persisted
    | PersistRefused
    | ManifestWritten
    | ManifestWriteFailed
    | AdoptableFound
    | MovesAsked
    | ServersAsked
    | Deadline
)
