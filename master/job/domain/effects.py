"""Effects of the core: what the shell carries out for it."""

from __future__ import annotations

from dataclasses import dataclass

from master.api.checkpoints.manifest import Manifest
from master.api.identities import Lineage, ManifestId
from master.api.messages.to_members import MasterMessage
from master.api.servers_answer import ServersAnswer
from master.job.domain.durable_records import DurableWrite, MemberKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Write it to the store.  Answered by Persisted or PersistRefused; an unknown outcome is settled by reading first
    (rule 23).
    """

    write: DurableWrite


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteManifest:
    """Write the manifest to the checkpoint folder, atomically.  Answered by ManifestWritten or ManifestWriteFailed."""

    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class FindAdoptable:
    """Find a manifest of this parent and lineage whose files all verify within 1 s.  Answered by AdoptableFound."""

    parent: ManifestId | None
    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class Retain:
    """These manifests stay, and those whose parent is head, which could be adopted; all others may go (rule 25).

    It has no answer.  Files that no remaining manifest names go too, but none younger than the newest of these.
    """

    manifests: frozenset[ManifestId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Put the message on the member's newest stream.  Without a stream it is lost: members ask again when they
    return.
    """

    to: MemberKey
    message: MasterMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseStream:
    """End the member's stream after what was sent to it before."""

    member: MemberKey
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDown:
    """End this term: the durable state is not what this master believes; the next term reads it again (rule 17)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FallBack:
    """End this term: the files of head cannot be loaded, and the next term resumes from a checkpoint before (M11)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerServers:
    """Answer these requests of ServersRequested, once: the number of servers is durable."""

    requests: tuple[int, ...]
    answer: ServersAnswer
    is_news: bool = False  # another number than before holds now


CoreEffect = Persist | WriteManifest | FindAdoptable | Retain | Send | CloseStream | AnswerServers | StepDown | FallBack
