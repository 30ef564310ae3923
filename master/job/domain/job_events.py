"""Events of the core: messages, answers of the store and the folder, requests, and deadlines.

`job.deadlines(state)` names the deadlines that are pending.  Each carries what it is about, so one that comes early,
late, twice or after a renewal is the decision that it would have been, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.api.checkpoints.manifest import Manifest
from master.api.identities import CutId, ManifestId
from master.api.messages.from_members import MemberMessage
from master.job.domain.durable_records import DurableWrite, Instant, MemberKey
from master.job.placement.owner_placement import Move


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A message of a connected member.  A stream's first message is its registration, which names `sender`."""

    sender: MemberKey
    message: MemberMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBroken:
    """The member's newest stream has ended, with or without a Leave."""

    member: MemberKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Persisted:
    write: DurableWrite


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistRefused:
    """The write did not happen and will not: a requirement failed, or another master leads."""

    write: DurableWrite
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestWritten:
    manifest: ManifestId


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestWriteFailed:
    manifest: ManifestId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNamed:
    """The folder's file HEAD names this head of a group, or a later one.  Another job hears `Persisted` then."""

    manifest: ManifestId


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptableFound:
    """The answer to FindAdoptable: a manifest with every digest verified, or None (always safe, rule 24)."""

    manifest: Manifest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersRequested:
    """The cluster side wants `count` servers, ordinals 0 to count - 1.  Answered by AnswerServers.

    The newest number replaces every other one, carried out or not; moves in progress continue.
    """

    request: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffLimitSet:
    """The job's backoffLimit was edited: the next failure is judged by this one."""

    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequested:
    """Somebody asks for a comparison of a group's replicas, under this name; other jobs have none."""

    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesRequested:
    """Buckets are wanted on other servers, for measured load or by someone who sees the whole cluster.

    Source and target are ordinals.  It replaces the moves that wait; moves in progress continue.  It is ignored
    while a server is leaving.  Only the protocol checker sends it.
    """

    moves: tuple[Move, ...]
    reason: str


# ---- deadlines ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExpired:
    """The trainer made no progress until `deadline`: its leases return (M2)."""

    trainer: MemberKey
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectWindowEnded:
    """The member's broken stream did not come back: the member is lost."""

    member: MemberKey
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimWindowEnded:
    """Unclaimed leases of the master before are TODO from now on (rule 18)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersWaitEnded:
    """The wait for a lost server's replacement has ended: the connected servers continue if they suffice (ADR 0315)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDue:
    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldExpired:
    """Some server has not answered HOLD: the cut is given up (rule 19)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class CutExpired:
    """Some server has not written its file: the cut is given up (rule 21)."""

    cut: CutId


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersOverdue:
    """Servers that have not answered AskMarks, Restore, Skip, Freeze or Activate get it again."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesExpired:
    """Buckets that began to move have not arrived: their moves are undone (rule 53)."""

    deadline: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesRetryDue:
    """Moves that were undone because they did not arrive, and those that waited with them, are retried."""

    deadline: Instant


Deadline = (
    LeaseExpired
    | ReconnectWindowEnded
    | ReclaimWindowEnded
    | OwnersWaitEnded
    | CommitDue
    | HoldExpired
    | CutExpired
    | AnswersOverdue
    | MovesExpired
    | MovesRetryDue
)


CoreEvent = (
    MessageReceived
    | StreamBroken
    | Persisted
    | PersistRefused
    | ManifestWritten
    | ManifestWriteFailed
    | AdoptableFound
    | MovesRequested
    | ServersRequested
    | BackoffLimitSet
    | ComparisonRequested
    | HeadNamed
    | Deadline
)
