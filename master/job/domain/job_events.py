"""What the core hears: messages, answers of the store, what users want, and deadlines."""

from __future__ import annotations

from dataclasses import dataclass

from master.api.checkpoints.manifest import Manifest
from master.api.identities import ManifestId
from master.api.messages import MemberMessage
from master.job.domain.deadlines import Deadline
from master.job.domain.keys import MemberKey
from master.job.domain.writes import Write
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
