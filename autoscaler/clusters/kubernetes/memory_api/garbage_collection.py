"""Garbage collector and namespace controller: delete dependents with their owner, and objects with their namespace.

Callers run them explicitly (`collect`), so that a test decides when; on a real cluster it takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext

from autoscaler.clusters.kubernetes.api.api_port import Propagation, Raw
from autoscaler.clusters.kubernetes.api.kinds import NAMESPACES, Kind
from autoscaler.clusters.kubernetes.memory_api.memory_server import CONTENT, FOREGROUND, ORPHAN, MemoryServer

Isolate = Callable[[Kind, Raw], AbstractContextManager[None]]
"""The context in which one object is collected."""


def collect(server: MemoryServer, isolate: Isolate = lambda *_: nullcontext()) -> None:
    """Collect until nothing changes any more.  `isolate` may keep a fault with one object from the others."""
    before = None
    while before != server.history.version:
        before = server.history.version
        living = {obj["metadata"]["uid"] for kind in server.kinds() for obj in server.all(kind)}
        leaving = {obj["metadata"]["name"] for obj in server.all(NAMESPACES) if "deletionTimestamp" in obj["metadata"]}
        for kind in server.kinds():
            for obj in server.all(kind):
                with isolate(kind, obj):
                    _collect_one(server, kind, obj, is_orphaned=_is_orphaned(obj, living, leaving))


def _collect_one(server: MemoryServer, kind: Kind, obj: Raw, *, is_orphaned: bool) -> None:
    metadata = obj["metadata"]
    finalizers, uid = metadata.get("finalizers") or [], metadata["uid"]
    if "deletionTimestamp" not in metadata:
        if is_orphaned:
            server.delete(kind, metadata.get("namespace"), metadata["name"], propagation=Propagation.BACKGROUND)
    elif ORPHAN in finalizers:
        for other, dependent in _dependents(server, uid):
            kept = [ref for ref in dependent["metadata"]["ownerReferences"] if ref["uid"] != uid]
            server.rewrite(other, dependent, _with_metadata(dependent, ownerReferences=kept))
        _remove_finalizer(server, kind, obj, ORPHAN)
    elif FOREGROUND in finalizers:
        dependents = _dependents(server, uid)
        for other, dependent in dependents:
            if "deletionTimestamp" not in dependent["metadata"]:
                server.delete(other, dependent["metadata"].get("namespace"), dependent["metadata"]["name"])
        if not dependents:
            _remove_finalizer(server, kind, obj, FOREGROUND)
    elif CONTENT in finalizers and not _contents(server, metadata["name"]):
        _remove_finalizer(server, kind, obj, CONTENT)


def _is_orphaned(obj: Raw, living: Collection[str], leaving: Collection[str]) -> bool:
    """True if no owner of the object is among the `living` UIDs, or its namespace is `leaving`."""
    owners = obj["metadata"].get("ownerReferences") or []
    has_lost_owners = bool(owners) and not any(ref["uid"] in living for ref in owners)
    return has_lost_owners or obj["metadata"].get("namespace") in leaving


def _contents(server: MemoryServer, namespace: str) -> list[Raw]:
    every = (obj for kind in server.kinds() for obj in server.all(kind))
    return [obj for obj in every if obj["metadata"].get("namespace") == namespace]


def _dependents(server: MemoryServer, uid: str) -> list[tuple[Kind, Raw]]:
    return [
        (kind, obj)
        for kind in server.kinds()
        for obj in server.all(kind)
        if any(ref["uid"] == uid for ref in obj["metadata"].get("ownerReferences") or ())
    ]


def _remove_finalizer(server: MemoryServer, kind: Kind, obj: Raw, finalizer: str) -> None:
    kept = [one for one in obj["metadata"]["finalizers"] if one != finalizer]
    server.rewrite(kind, obj, _with_metadata(obj, finalizers=kept))


def _with_metadata(obj: Raw, **fields: object) -> Raw:
    return obj | {"metadata": obj["metadata"] | fields}
