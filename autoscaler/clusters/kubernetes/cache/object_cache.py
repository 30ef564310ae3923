"""The cache of watched objects by kind: their newest state, how far each watch has come, and which have changed.  Pure.

Resource versions rise over all kinds, and the changes of one kind come in order, so two rules are enough: an event no
newer than the stream's version is a repetition and is ignored, and of one object the newest state wins.  Answers to
EDL's own writes are stored at once (`put_written`), ahead of the watch, so the cache always contains them.  A list that
is older than the cache (an API server that lags, or was restored) is refused whole.

Without the right to watch a kind in the whole cluster, EDL follows it in some namespaces.  Each namespace is then a
source with a version and an age of its own, and the kind is as old as its oldest source.

An object that cannot be stored stops no stream (`errors`, A11): the cache keeps its state until the object changes
again, or until the next list.  Kinds that age stop all writes once they are stale (`check_fresh`, A7).

`reflector` lists and watches, `expectations` keeps writes without an answer, `cluster_view` parses the objects.
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
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key, raw_object_key

Key: TypeAlias = tuple[str, str]  # namespace (empty for objects of the whole cluster), name

AGED_KINDS: Final = (PODS, NODES, TRAINING_JOBS)
"""Kinds whose age is the age of the view (A7)."""

WATCHED_KINDS: Final = (
    *AGED_KINDS,
    DEPLOYMENTS,
    POD_AUTOSCALERS,
    DAEMON_SETS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
)
"""Kinds from which a view is derived (`beside-the-scheduler.md` 19).

A stale class or quota costs a refused write at worst.
"""

CLUSTER: Final = ""
"""The source of a kind that is watched in the whole cluster; other sources are namespaces."""


def key_of(obj: Raw) -> Key:
    """Return the key of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class ObjectCache:
    """The newest known state of each object.  Callers must not change the objects."""

    def __init__(
        self,
        errors: JobErrors,
        trimmers: Mapping[Kind, Trimmer] | None = None,
        *,
        namespaces: Mapping[Kind, tuple[str, ...]] | None = None,
    ) -> None:
        """`namespaces`: of kinds that are not watched in the whole cluster."""
        self._errors = errors
        self._trimmers: Final = dict(trimmers or {})
        self._namespaces: Final = dict(namespaces or {})
        self._streams: dict[Kind, _KindStream] = {}

    def sources(self, kind: Kind) -> tuple[str, ...]:
        """Return where the kind is watched: namespaces, or CLUSTER alone."""
        return self._namespaces.get(kind) or (CLUSTER,)

    def objects(self, kind: Kind) -> Mapping[Key, Raw]:
        """Return all objects of the kind as a live mapping, empty before the first list."""
        return self._stream(kind).shown

    def get(self, kind: Kind, key: Key) -> Raw | None:
        """Return one object, or None."""
        return self._stream(kind).objects.get(key)

    def version(self, kind: Kind, source: str = CLUSTER) -> int:
        """Return the version after which a watch continues; 0 before the first list."""
        return self._stream(kind).progress[source].version

    def confirmed_at_s(self, kind: Kind, source: str = CLUSTER) -> float | None:
        """Return when the server last confirmed the state of the kind; None before the first list."""
        return self._stream(kind).progress[source].confirmed_at_s

    def is_synced(self, kinds: Iterable[Kind]) -> bool:
        """True if every source of these kinds has been listed."""
        return all(progress.version for kind in kinds for progress in self._stream(kind).progress.values())

    def oldest_confirmed_at_s(self, kinds: Iterable[Kind]) -> float | None:
        """Return the age limit of these kinds: every change before this instant is in the cache.  None unless all are
        synced.
        """
        confirmed = [progress.confirmed_at_s for kind in kinds for progress in self._stream(kind).progress.values()]
        known = [at_s for at_s in confirmed if at_s is not None]
        return min(known) if known and len(known) == len(confirmed) else None

    def pop_changes(self) -> Mapping[Kind, frozenset[Key]]:
        """Return the keys of objects that were added, changed or removed since the last call."""
        found = {kind: frozenset(stream.changed) for kind, stream in self._streams.items() if stream.changed}
        for kind in found:
            self._streams[kind].changed.clear()
        return found

    def apply_listing(self, kind: Kind, listing: Listing, *, requested_at_s: float, source: str = CLUSTER) -> bool:
        """Store a list of one source; return False, with nothing changed, if the cache is newer."""
        stream, version = self._stream(kind), int(listing.resource_version)
        progress = stream.progress[source]
        if version < progress.version:
            return False
        keys = [
            self._errors.attempt(raw_object_key(kind.plural, item), GuardedTask.KEEP, partial(key_of, item))
            for item in listing.items
        ]
        listed = set(keys)
        for key in [key for key, known in stream.versions.items() if key not in listed and known <= version]:
            if source in {CLUSTER, key[0]}:
                self._errors.attempt(object_key(kind.plural, *key), GuardedTask.KEEP, partial(stream.drop, key))
        for place, item in zip(keys, listing.items, strict=True):
            if place is not None:
                self._errors.attempt(
                    object_key(kind.plural, *place), GuardedTask.KEEP, partial(stream.put, place, item)
                )
        progress.version, progress.confirmed_at_s = version, requested_at_s
        return True

    def apply_event(self, kind: Kind, event: WatchEvent, *, at_s: float, source: str = CLUSTER) -> None:
        """Apply one event; a repetition changes nothing.  Raises InvariantViolationError before the first list."""
        stream, version = self._stream(kind), int(event.resource_version)
        progress = stream.progress[source]
        if not progress.version:
            raise InvariantViolationError(f"{kind.plural}: an event before the first listing")
        progress.confirmed_at_s = at_s
        if version <= progress.version:
            return
        progress.version = version
        match event.type:
            case EventType.ADDED | EventType.MODIFIED:
                with self._errors.isolate(raw_object_key(kind.plural, event.object), GuardedTask.KEEP):
                    stream.put(key_of(event.object), event.object)
            case EventType.DELETED:
                with self._errors.isolate(raw_object_key(kind.plural, event.object), GuardedTask.KEEP):
                    deleted = key_of(event.object)
                    if stream.versions.get(deleted, version) <= version:
                        stream.drop(deleted)
            case EventType.BOOKMARK:
                pass

    def record_progress(self, kind: Kind, *, at_s: float, source: str = CLUSTER) -> None:
        """Record that the server reported no change up to this instant."""
        self._stream(kind).progress[source].confirmed_at_s = at_s

    def put_written(self, kind: Kind, obj: Raw) -> None:
        """Store the answer to an own write, unless the stream has passed its version."""
        stream, key = self._stream(kind), key_of(obj)
        progress = stream.progress.get(CLUSTER) or stream.progress.get(key[0])
        if progress is not None and progress.version and int(obj["metadata"]["resourceVersion"]) > progress.version:
            stream.put(key, obj)

    def _stream(self, kind: Kind) -> _KindStream:
        if kind not in self._streams:
            self._streams[kind] = _KindStream(self._trimmers.get(kind), self.sources(kind))
        return self._streams[kind]


@dataclass(slots=True)
class _SourceProgress:
    """Progress of one source: every change up to `version` is in the cache."""

    version: int = 0
    confirmed_at_s: float | None = None


class _KindStream:
    """The objects of one kind with their versions, and the progress of each source."""

    def __init__(self, trim: Trimmer | None, sources: Iterable[str]) -> None:
        self.objects: dict[Key, Raw] = {}
        self.shown: Mapping[Key, Raw] = MappingProxyType(self.objects)
        self.versions: dict[Key, int] = {}
        self.changed: set[Key] = set()
        self.progress = {source: _SourceProgress() for source in sources}
        self._trim = trim

    def put(self, key: Key, obj: Raw) -> None:
        """Store the object if it is newer than the stored one."""
        version = int(obj["metadata"]["resourceVersion"])
        if version > self.versions.get(key, 0):
            self.objects[key] = trim_or_keep(obj, self._trim) if self._trim else obj
            self.versions[key] = version
            self.changed.add(key)

    def drop(self, key: Key) -> None:
        """Remove the object."""
        if self.objects.pop(key, None) is not None:
            del self.versions[key]
            self.changed.add(key)


STALE_LIMIT_S: Final = 10.0  # as `Policy.stale_limit_s` is by default


class StaleViewError(TemporaryError):
    """The view of the cluster is too old to act on."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=1.0)


def check_fresh(store: ObjectCache, now_s: float) -> None:
    """Raise StaleViewError unless the server confirmed all kinds that age within `STALE_LIMIT_S`."""
    confirmed_at_s = store.oldest_confirmed_at_s(AGED_KINDS)
    if confirmed_at_s is None:
        raise StaleViewError("not all of the cluster has been listed yet")
    if now_s - confirmed_at_s > STALE_LIMIT_S:
        raise StaleViewError(f"the view is {now_s - confirmed_at_s:.1f} s old; at most {STALE_LIMIT_S:g} s")
