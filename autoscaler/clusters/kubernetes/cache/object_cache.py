"""What the watches have brought: the objects of each kind, how far the stream has come, and what changed.  Pure.

Versions are numbers that rise over all kinds, and one kind's changes come in their order, so that two rules are enough:
what is no newer than the stream's version is a repetition and changes nothing, and of one object the newest wins.  The
second matters because the answers to own writes are learned at once (`learn`), ahead of the stream: the store always
contains them.  A listing older than what is known (an API server that lags, or has travelled back) is refused whole.

A kind may be followed in some namespaces only, for want of the right to all.  Each of them is then a source with a
version and an age of its own, and the kind is as old as its oldest source.

An object that cannot be taken in stops no stream (`errors`, A11): it stays as it was until it changes again, or the
kind is listed anew.

Not here: who asks for listings and watches (`watching`), writes without an answer (`expectations`), what the objects
mean (`views`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from autoscaler.clusters.kubernetes.api.api_port import EventType, Listing, Raw, Trimmer, WatchEvent, trim_or_keep
from autoscaler.clusters.kubernetes.api.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    LIMIT_RANGES,
    NODES,
    POD_AUTOSCALERS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    Kind,
)
from autoscaler.errors import InvariantViolationError, TemporaryError
from autoscaler.fault_isolation import GuardedStep, JobErrors, object_key, raw_object_key

Key: TypeAlias = tuple[str, str]  # namespace (empty for objects of the whole cluster), name

AGED_KINDS: Final = (PODS, NODES, TRAINING_JOBS)
"""The kinds whose age is the view's (A7)."""

WATCHED_KINDS: Final = (
    *AGED_KINDS,
    DEPLOYMENTS,
    POD_AUTOSCALERS,
    DAEMON_SETS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
)
"""What a view rests on (`beside-the-scheduler.md` 19).

Old news of a class or a quota costs a refused write at worst.
"""

CLUSTER: Final = ""
"""The source of a kind that is followed everywhere at once; the others are namespaces."""


def key_of(obj: Raw) -> Key:
    """Where an object stands."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class ObjectCache:
    """The objects as last heard of.  Whoever reads one must not change it."""

    def __init__(
        self,
        errors: JobErrors,
        slims: Mapping[Kind, Trimmer] | None = None,
        *,
        namespaces: Mapping[Kind, tuple[str, ...]] | None = None,
    ) -> None:
        """`namespaces`: of the kinds that are not followed in the whole cluster."""
        self._errors = errors
        self._slims: Final = dict(slims or {})
        self._namespaces: Final = dict(namespaces or {})
        self._streams: dict[Kind, _KindStream] = {}

    def sources(self, kind: Kind) -> tuple[str, ...]:
        """Where the kind is followed: namespaces, or CLUSTER alone."""
        return self._namespaces.get(kind) or (CLUSTER,)

    def objects(self, kind: Kind) -> Mapping[Key, Raw]:
        """All of the kind; a living view, empty before the first listing."""
        return self._stream(kind).shown

    def get(self, kind: Kind, key: Key) -> Raw | None:
        """One object."""
        return self._stream(kind).objects.get(key)

    def version(self, kind: Kind, source: str = CLUSTER) -> int:
        """How far the stream has come, 0 before the first listing: a watch goes on from here."""
        return self._stream(kind).told[source].version

    def heard_at_s(self, kind: Kind, source: str = CLUSTER) -> float | None:
        """When the server last said how things stand; None before the first listing."""
        return self._stream(kind).told[source].heard_at_s

    def is_synced(self, kinds: Iterable[Kind]) -> bool:
        """Whether all of them have been listed, from every source."""
        return all(told.version for kind in kinds for told in self._stream(kind).told.values())

    def oldest_heard_at_s(self, kinds: Iterable[Kind]) -> float | None:
        """How old the oldest of them is: nothing heard later is missing before it.  None unless all are synced."""
        heard = [told.heard_at_s for kind in kinds for told in self._stream(kind).told.values()]
        known = [at_s for at_s in heard if at_s is not None]
        return min(known) if known and len(known) == len(heard) else None

    def pop_changes(self) -> Mapping[Kind, frozenset[Key]]:
        """Which objects have come, changed or gone since the last call."""
        found = {kind: frozenset(stream.changed) for kind, stream in self._streams.items() if stream.changed}
        for kind in found:
            self._streams[kind].changed.clear()
        return found

    def apply_listing(self, kind: Kind, listing: Listing, *, asked_at_s: float, source: str = CLUSTER) -> bool:
        """All that the source has of the kind, as it stood; False, and nothing changed, when more is known already."""
        stream, version = self._stream(kind), int(listing.resource_version)
        told = stream.told[source]
        if version < told.version:
            return False
        keys = [
            self._errors.attempt(raw_object_key(kind.plural, item), GuardedStep.KEEP, partial(key_of, item))
            for item in listing.items
        ]
        listed = set(keys)
        for key in [key for key, known in stream.versions.items() if key not in listed and known <= version]:
            if source in {CLUSTER, key[0]}:
                self._errors.attempt(object_key(kind.plural, *key), GuardedStep.KEEP, partial(stream.drop, key))
        for place, item in zip(keys, listing.items, strict=True):
            if place is not None:
                self._errors.attempt(
                    object_key(kind.plural, *place), GuardedStep.KEEP, partial(stream.put, place, item)
                )
        told.version, told.heard_at_s = version, asked_at_s
        return True

    def apply_event(self, kind: Kind, event: WatchEvent, *, at_s: float, source: str = CLUSTER) -> None:
        """One change; repetitions change nothing.  Raises InvariantViolationError before the first listing."""
        stream, version = self._stream(kind), int(event.resource_version)
        told = stream.told[source]
        if not told.version:
            raise InvariantViolationError(f"{kind.plural}: an event before the first listing")
        told.heard_at_s = at_s
        if version <= told.version:
            return
        told.version = version
        match event.type:
            case EventType.ADDED | EventType.MODIFIED:
                with self._errors.isolate(raw_object_key(kind.plural, event.object), GuardedStep.KEEP):
                    stream.put(key_of(event.object), event.object)
            case EventType.DELETED:
                with self._errors.isolate(raw_object_key(kind.plural, event.object), GuardedStep.KEEP):
                    gone = key_of(event.object)
                    if stream.versions.get(gone, version) <= version:
                        stream.drop(gone)
            case EventType.BOOKMARK:
                pass

    def note_progress(self, kind: Kind, *, at_s: float, source: str = CLUSTER) -> None:
        """The server has said that nothing is new."""
        self._stream(kind).told[source].heard_at_s = at_s

    def put_written(self, kind: Kind, obj: Raw) -> None:
        """The answer to a write of our own.  What the stream has passed already it knows better."""
        stream, key = self._stream(kind), key_of(obj)
        told = stream.told.get(CLUSTER) or stream.told.get(key[0])
        if told is not None and told.version and int(obj["metadata"]["resourceVersion"]) > told.version:
            stream.put(key, obj)

    def _stream(self, kind: Kind) -> _KindStream:
        if kind not in self._streams:
            self._streams[kind] = _KindStream(self._slims.get(kind), self.sources(kind))
        return self._streams[kind]


@dataclass(slots=True)
class _SourceProgress:
    """How far one source has come: every change up to the version is in the store."""

    version: int = 0
    heard_at_s: float | None = None


class _KindStream:
    """One kind: its objects with their versions, and how far each of its sources has come."""

    def __init__(self, slim: Trimmer | None, sources: Iterable[str]) -> None:
        self.objects: dict[Key, Raw] = {}
        self.shown: Mapping[Key, Raw] = MappingProxyType(self.objects)
        self.versions: dict[Key, int] = {}
        self.changed: set[Key] = set()
        self.told = {source: _SourceProgress() for source in sources}
        self._slim = slim

    def put(self, key: Key, obj: Raw) -> None:
        """Unless what stands is as new."""
        version = int(obj["metadata"]["resourceVersion"])
        if version > self.versions.get(key, 0):
            self.objects[key] = trim_or_keep(obj, self._slim) if self._slim else obj
            self.versions[key] = version
            self.changed.add(key)

    def drop(self, key: Key) -> None:
        """It is gone."""
        if self.objects.pop(key, None) is not None:
            del self.versions[key]
            self.changed.add(key)


STALE_LIMIT_S: Final = 10.0  # as `Policy.stale_limit_s` is by default


class StaleViewError(TemporaryError):
    """What is known of the cluster is too old to act on."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=1.0)


def check_fresh(store: ObjectCache, now_s: float) -> None:
    """Raise StaleViewError unless the server has lately said how things stand."""
    heard_at_s = store.oldest_heard_at_s(AGED_KINDS)
    if heard_at_s is None:
        raise StaleViewError("not all of the cluster has been listed yet")
    if now_s - heard_at_s > STALE_LIMIT_S:
        raise StaleViewError(f"the view is {now_s - heard_at_s:.1f} s old; at most {STALE_LIMIT_S:g} s")
