"""The `Api` interface to an API server, over raw objects: plain dicts as the server sends them, less `managedFields`.

Every call has a deadline and ends in an answer or in an error of `errors`.  Only reads are retried automatically.
The contract suite is `tests/unit/clusters/kubernetes/api/contract`; `http_client` and `memory_api` implement it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from autoscaler.clusters.kubernetes.api.kinds import Kind

Raw: TypeAlias = dict[str, Any]
Trimmer: TypeAlias = Callable[[Raw], Raw]  # drops fields that EDL does not read

FIELD_MANAGER: Final = "edl"
REQUEST_TIMEOUT_S: Final = 5.0  # a leader stops writing that long before its Lease can be taken (`FencedApi`)


class EventType(StrEnum):
    """Types of watch events.  The server's ERROR is none of them: it raises."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"  # nothing has changed up to its resourceVersion; the object holds nothing else


class Subresource(StrEnum):
    """Parts of an object with an endpoint of their own."""

    STATUS = "status"
    SCALE = "scale"


class Propagation(StrEnum):
    """Deletion propagation: what becomes of the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Scope of a listing: objects of one namespace or (None) of all, by selectors as the API writes them."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """Preconditions of a write: any other object raises ConflictError, and nothing has changed."""

    uid: str | None = None
    resource_version: str | None = None

    def as_fields(self) -> Raw:
        """Return them as the API spells them."""
        fields = {"uid": self.uid, "resourceVersion": self.resource_version}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All objects of a scope as of `resource_version`, from which a watch continues."""

    items: tuple[Raw, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One change.  `object` is the whole object; for DELETED its last state, for BOOKMARK a version alone."""

    type: EventType
    object: Raw

    @property
    def resource_version(self) -> str:
        """The version after which a watch continues."""
        return str(self.object["metadata"]["resourceVersion"])


EVERYWHERE: Final = Scope()
ANY: Final = Preconditions()


def with_preconditions(change: Raw, only: Preconditions) -> Raw:
    """Return the merge patch with its preconditions, which the API compares with the object's `metadata`."""
    return change if only == ANY else change | {"metadata": change.get("metadata", {}) | only.as_fields()}


def without_managed_fields(obj: Raw) -> Raw:
    """Drop `managedFields` in place: half of an object's size, and used by the server alone."""
    obj.get("metadata", {}).pop("managedFields", None)
    return obj


def trim_or_keep(obj: Raw, trim: Trimmer) -> Raw:
    """Return the trimmed object, or the whole one if trimming fails: one bad object must not stop a stream (A11)."""
    try:
        return trim(obj)
    except Exception:  # noqa: BLE001 - its parser reports what is wrong with it
        return obj


class Api(Protocol):
    """An API server.

    Writes return the object as it is afterwards.  `UnavailableError.may_have_happened` says whether a failed write may
    have happened nevertheless: then read, or write the same again.
    """

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing:
        """Return all objects of the scope, at least as new as every write answered before the call.

        Reads page by page.  Raises ExpiredError if the server has compacted the version meanwhile: list again.
        """
        ...

    def watch(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, since: str, timeout_s: float, silence_s: float
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield every change after version `since`, in order, bookmarks included; end after about `timeout_s`.

        The server sends a bookmark about 2 s before that end, and each minute.  Raises ExpiredError (410) if the server
        has compacted `since`, UnavailableError if the connection is lost or silent for `silence_s` (half open).
        Callers close the generator (`contextlib.aclosing`).
        """
        ...

    async def get(
        self, kind: Kind, name: str, *, namespace: str | None = None, subresource: Subresource | None = None
    ) -> Raw:
        """Return the object.  Raises NotFoundError."""
        ...

    async def create(self, kind: Kind, body: Raw) -> Raw:
        """Create the object (`metadata.namespace` says where).  Raises AlreadyExistsError for a name in use.

        A review (`Kind.is_review`) is answered and not stored; its errors quote nothing of it.
        """
        ...

    async def check_create(self, kind: Kind, body: Raw) -> None:
        """Dry run of `create`: raise what it would raise now, by schema, admission, quota or name.

        Unlike `create`, it refuses fields that the server does not know (BadRequestError).  It needs the same right as
        `create`.  An admission webhook without support for dry runs raises BadRequestError.
        """
        ...

    async def apply(
        self, kind: Kind, body: Raw, *, subresource: Subresource | None = None, is_forced: bool = True
    ) -> Raw:
        """Server-side apply as the manager `edl`: set the fields of `body`, drop those that an earlier apply set alone.

        An object that does not exist is created, unless `body` names a `metadata.uid`.  Fields of other managers stay.
        The same fields are taken from other managers, or raise ConflictError without `is_forced`.
        """
        ...

    async def patch(
        self,
        kind: Kind,
        name: str,
        change: Raw,
        *,
        namespace: str | None = None,
        only: Preconditions = ANY,
        subresource: Subresource | None = None,
    ) -> Raw:
        """Merge `change` into the object (RFC 7386: None removes a field, lists are replaced whole)."""
        ...

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        only: Preconditions = ANY,
        grace_s: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """Delete the object.  Pods and objects with finalizers stay for a while with a `deletionTimestamp`.

        A second deletion changes nothing, or shortens the grace period.  Raises NotFoundError.
        """
        ...

    def log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str | None = None,
        tail_lines: int | None = None,
        is_followed: bool = False,
        is_previous: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the container's log; with `is_followed` until the container ends.  Callers close the generator.

        `is_previous`: the log before its last restart.  Raises BadRequestError if there was none.
        """
        ...

    async def close(self) -> None:
        """Close all connections.  Calls in flight end in UnavailableError."""
        ...
