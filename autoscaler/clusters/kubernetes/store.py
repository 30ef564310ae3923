"""What the watches have brought: the objects of each kind, how far the stream has come, and what changed.  Pure.

Versions are numbers that rise over all kinds, and one kind's changes come in their order, so that two rules are enough:
what is no newer than the stream's version is a repetition and changes nothing, and of one object the newest wins.  The
second matters because the answers to own writes are learned at once (`learn`), ahead of the stream: the store always
contains them.  A listing older than what is known (an API server that lags, or has travelled back) is refused whole.

Not here: who asks for listings and watches (`watching`), writes without an answer (`expectations`), what the objects
mean (`views`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.api.port import EventType, Listing, Raw, WatchEvent
from autoscaler.errors import InvariantViolationError

Key: TypeAlias = tuple[str, str]  # namespace (empty for objects of the whole cluster), name
Slim: TypeAlias = Callable[[Raw], Raw]  # leaves out what nobody reads


def key_of(obj: Raw) -> Key:
    """Where an object stands."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class Store:
    """The objects as last heard of.  Whoever reads one must not change it."""

    def __init__(self, slims: Mapping[Kind, Slim] | None = None) -> None:
        self._slims: Final = dict(slims or {})
        self._streams: dict[Kind, _Stream] = {}

    def objects(self, kind: Kind) -> Mapping[Key, Raw]:
        """All of the kind; a living view, empty before the first listing."""
        return self._stream(kind).shown

    def get(self, kind: Kind, key: Key) -> Raw | None:
        """One object."""
        return self._stream(kind).objects.get(key)

    def version(self, kind: Kind) -> int:
        """How far the stream has come, 0 before the first listing: a watch goes on from here."""
        return self._stream(kind).version

    def heard_at_s(self, kind: Kind) -> float | None:
        """When the server last said how things stand; None before the first listing."""
        return self._stream(kind).heard_at_s

    def is_synced(self, kinds: Iterable[Kind]) -> bool:
        """Whether all of them have been listed."""
        return all(self._stream(kind).version for kind in kinds)

    def oldest_heard_at_s(self, kinds: Iterable[Kind]) -> float | None:
        """How old the oldest of them is: nothing heard later is missing before it.  None unless all are synced."""
        heard = [self._stream(kind).heard_at_s for kind in kinds]
        known = [at_s for at_s in heard if at_s is not None]
        return min(known) if known and len(known) == len(heard) else None

    def take_changes(self) -> Mapping[Kind, frozenset[Key]]:
        """Which objects have come, changed or gone since the last call."""
        found = {kind: frozenset(stream.changed) for kind, stream in self._streams.items() if stream.changed}
        for kind in found:
            self._streams[kind].changed.clear()
        return found

    def take_listing(self, kind: Kind, listing: Listing, *, asked_at_s: float) -> bool:
        """All of the kind as it stood; False, and nothing changed, when more is known already."""
        stream, version = self._stream(kind), int(listing.resource_version)
        if version < stream.version:
            return False
        listed = {key_of(item): item for item in listing.items}
        for key in [key for key, known in stream.versions.items() if key not in listed and known <= version]:
            stream.drop(key)
        for key, item in listed.items():
            stream.put(key, item)
        stream.version, stream.heard_at_s = version, asked_at_s
        return True

    def take_event(self, kind: Kind, event: WatchEvent, *, at_s: float) -> None:
        """One change; repetitions change nothing.  Raises InvariantViolationError before the first listing."""
        stream, version = self._stream(kind), int(event.resource_version)
        if not stream.version:
            raise InvariantViolationError(f"{kind.plural}: an event before the first listing")
        stream.heard_at_s = at_s
        if version <= stream.version:
            return
        stream.version = version
        match event.type:
            case EventType.ADDED | EventType.MODIFIED:
                stream.put(key_of(event.object), event.object)
            case EventType.DELETED:
                if stream.versions.get(key_of(event.object), version) <= version:
                    stream.drop(key_of(event.object))
            case EventType.BOOKMARK:
                pass

    def hear(self, kind: Kind, *, at_s: float) -> None:
        """The server has said that nothing is new."""
        self._stream(kind).heard_at_s = at_s

    def learn(self, kind: Kind, obj: Raw) -> None:
        """The answer to a write of our own.  What the stream has passed already it knows better."""
        stream = self._stream(kind)
        if stream.version and int(obj["metadata"]["resourceVersion"]) > stream.version:
            stream.put(key_of(obj), obj)

    def _stream(self, kind: Kind) -> _Stream:
        if kind not in self._streams:
            self._streams[kind] = _Stream(self._slims.get(kind))
        return self._streams[kind]


class _Stream:
    """One kind: its objects with their versions, and the version up to which every change is in them."""

    def __init__(self, slim: Slim | None) -> None:
        self.objects: dict[Key, Raw] = {}
        self.shown: Mapping[Key, Raw] = MappingProxyType(self.objects)
        self.versions: dict[Key, int] = {}
        self.changed: set[Key] = set()
        self.version = 0
        self.heard_at_s: float | None = None
        self._slim = slim

    def put(self, key: Key, obj: Raw) -> None:
        """Unless what stands is as new."""
        version = int(obj["metadata"]["resourceVersion"])
        if version > self.versions.get(key, 0):
            self.objects[key] = self._slim(obj) if self._slim else obj
            self.versions[key] = version
            self.changed.add(key)

    def drop(self, key: Key) -> None:
        """It is gone."""
        if self.objects.pop(key, None) is not None:
            del self.versions[key]
            self.changed.add(key)
