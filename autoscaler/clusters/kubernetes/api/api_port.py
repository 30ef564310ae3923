"""What EDL asks of an API server, over raw objects: plain dicts as the server sends them, less `managedFields`.

Nothing is decided here and nothing is read out of an object: `reading` understands, `building` makes.  Every call has
a deadline and ends in an answer or in an error of `errors`; no call is tried again behind the caller's back unless
trying twice is the same as trying once (reads).  The contract suite is `tests/unit/clusters/kubernetes/api/contract`;
the adapters are `client` and `memory`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from autoscaler.clusters.kubernetes.api.kinds import Kind

Raw: TypeAlias = dict[str, Any]
Trimmer: TypeAlias = Callable[[Raw], Raw]  # leaves out what nobody reads

FIELD_MANAGER: Final = "edl"
REQUEST_TIMEOUT_S: Final = 5.0  # a leader stops writing that long before its Lease can be taken (`fenced`)


class EventType(StrEnum):
    """What a watch tells.  The server's ERROR is no event: it ends the watch as an error."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"  # nothing has changed up to its resourceVersion; the object holds nothing else


class Subresource(StrEnum):
    """Parts of an object with a door of their own."""

    STATUS = "status"
    SCALE = "scale"


class Propagation(StrEnum):
    """What becomes of the objects owned by one that is deleted."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which objects of a kind: all namespaces without `namespace`; selectors as the API writes them."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """The write happens only to this very object: else `ConflictError`, and nothing has changed."""

    uid: str | None = None
    resource_version: str | None = None

    def as_fields(self) -> Raw:
        """As the API spells them."""
        fields = {"uid": self.uid, "resourceVersion": self.resource_version}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All objects of a scope as they stood together at `resource_version`, from which a watch goes on."""

    items: tuple[Raw, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One change.  `object` is the whole object; with DELETED its last state, with BOOKMARK only a version."""

    type: EventType
    object: Raw

    @property
    def resource_version(self) -> str:
        """Watching since this one brings what came after."""
        return str(self.object["metadata"]["resourceVersion"])


EVERYWHERE: Final = Scope()
ANY: Final = Preconditions()


def with_preconditions(change: Raw, only: Preconditions) -> Raw:
    """A merge patch that meets only the object meant: the API compares what the patch says of `metadata`."""
    return change if only == ANY else change | {"metadata": change.get("metadata", {}) | only.as_fields()}


def without_managed_fields(obj: Raw) -> Raw:
    """The object less `managedFields`, which is half of its size and nobody's but the server's.  In place."""
    obj.get("metadata", {}).pop("managedFields", None)
    return obj


def trim_or_keep(obj: Raw, slim: Trimmer) -> Raw:
    """The object without what nobody reads; whole, where that cannot be told: one object stops no stream (A11)."""
    try:
        return slim(obj)
    except Exception:  # noqa: BLE001 - whoever reads the object tells what is wrong with it
        return obj


class Api(Protocol):
    """An API server.

    Writes answer with the object as it stands after them.  An `UnavailableError` of a write says in
    `may_have_happened` whether it may stand nevertheless: then read, or write the same again.
    """

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing:
        """Return all objects of the scope, at least as new as every write answered before the call.

        Asked for in pages.  Raises ExpiredError when the server forgot the version between two pages: list again.
        """
        ...

    def watch(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, since: str, timeout_s: float, silence_s: float
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield every change after version `since`, in order, bookmarks included; end after about `timeout_s`.

        The server sends a bookmark about 2 s before that end, and each minute.  Raises ExpiredError (410) when it has
        forgotten `since`, UnavailableError when the connection is lost or brings nothing for `silence_s` (half open).
        Close it (`contextlib.aclosing`).
        """
        ...

    async def get(
        self, kind: Kind, name: str, *, namespace: str | None = None, subresource: Subresource | None = None
    ) -> Raw:
        """Return the object as it stands.  Raises NotFoundError."""
        ...

    async def create(self, kind: Kind, body: Raw) -> Raw:
        """Make an object that is not there (`metadata.namespace` says where); AlreadyExistsError when the name is."""
        ...

    async def check_create(self, kind: Kind, body: Raw) -> None:
        """Raise what `create` would raise now, by schema, admission, quota or name; nothing is made (dry run).

        Strict where `create` is not: BadRequestError names fields that the server does not know and would leave out.
        Needs the same right as `create`.  BadRequestError where an admission webhook cannot be asked like that.
        """
        ...

    async def apply(
        self, kind: Kind, body: Raw, *, subresource: Subresource | None = None, is_forced: bool = True
    ) -> Raw:
        """Make the fields in `body` stand, and those that an earlier apply set and this one leaves out go.

        Server-side apply as the manager `edl`; the object is made when it is not there, unless `body` names a
        `metadata.uid`.  Fields of other managers stay; the same fields are taken from them, or raise ConflictError
        without `is_forced`.
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
        """Merge `change` into the object (RFC 7386: None removes, lists are replaced whole)."""
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
        """Tell the object to go.  Pods and objects with finalizers stay for a while with a `deletionTimestamp`.

        Deleting what is leaving already changes nothing, or shortens its grace.  Raises NotFoundError when it is gone.
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
        """Yield what the container has written; with `is_followed` until it ends.  Close it.

        `is_previous`: what it had written before its last restart; BadRequestError when there was none.
        """
        ...

    async def close(self) -> None:
        """Let go of all connections.  Calls under way end in UnavailableError."""
        ...
