"""What the shell does for the core."""

from __future__ import annotations

from dataclasses import dataclass

from master.api.checkpoints.manifest import Manifest
from master.api.identities import Lineage, ManifestId
from master.api.messages import MasterMessage
from master.api.servers_answer import ServersAnswer
from master.job.domain.durable_records import DurableWrite, MemberKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Answered by Persisted or PersistRefused.  An unknown outcome is settled by reading first (rule 23)."""

    write: DurableWrite


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
class FallBack:
    """End this term: the files of head cannot be loaded.  The next one goes on from a checkpoint before it (M11)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerServers:
    """To those who asked with these requests (ServersAsked), once: the number is durable."""

    requests: tuple[int, ...]
    answer: ServersAnswer
    is_news: bool = False  # another number than before holds now


CoreEffect = Persist | WriteManifest | FindAdoptable | Retain | Send | CloseStream | AnswerServers | StepDown | FallBack
