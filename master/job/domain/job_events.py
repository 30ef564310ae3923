"""Events of the core: messages, answers of the store and the folder, requests, and deadlines.

`job.deadlines(state)` names the deadlines that are pending.  Each carries what it is about, so one that comes early,
late, twice or after a renewal is the decision that it would have been, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.api.checkpoints.manifest import Manifest
from master.api.identities import CutId, ManifestId
from master.api.messages import MemberMessage
from master.job.domain.durable_records import DurableWrite, Instant, MemberKey
from master.job.placement.owner_placement import Move


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
    write: DurableWrite


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistRefused:
    """It did not and will not happen: a requirement failed, or another one leads."""

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
class AdoptableFound:
    """Answer to FindAdoptable: the one to adopt, with every digest verified, or None (always safe, rule 24)."""

    manifest: Manifest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersRequested:
    """The cluster side wants so many servers, ordinals 0 to count - 1; answered by AnswerServers with `request`.

    The newest number replaces every other one, carried out or not; what has begun to move goes on.
    """

    request: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesRequested:
    """Measured load, or somebody who sees the whole cluster, wants buckets elsewhere; source and target: ordinals.

    Takes the place of what is waiting to move; what has begun goes on.  Ignored while a server is leaving.
    Nobody in the product asks so yet: by it the checker moves any bucket anywhere, whatever `placement` would do.
    """

    moves: tuple[Move, ...]
    reason: str


# ---- deadlines ------------------------------------------------------------------------------------------------------


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
class OwnersWaitEnded:
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
class MovesRetryDue:
    """What was undone because it did not arrive, and what waited with it, is tried again."""

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
    | Deadline
)
