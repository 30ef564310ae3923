"""Garbage collector and namespace controller: delete dependents with their owner, and objects with their namespace.

Callers run them explicitly (`collect`), so that a test decides when; on a real cluster it takes seconds.
"""

from __future__ import annotations

from autoscaler.clusters.kubernetes.api.api_port import Propagation, Raw
from autoscaler.clusters.kubernetes.api.kinds import NAMESPACES, Kind
from autoscaler.clusters.kubernetes.memory_api.memory_server import CONTENT, FOREGROUND, ORPHAN, MemoryServer


def collect(server: MemoryServer) -> None:
    """Collect until nothing changes any more."""
    before = None
    while before != server.history.version:
        before = server.history.version
        for kind in server.kinds():
            for obj in server.all(kind):
                _collect_one(server, kind, obj)


def _collect_one(server: MemoryServer, kind: Kind, obj: Raw) -> None:
    metadata = obj["metadata"]
    finalizers, uid = metadata.get("finalizers") or [], metadata["uid"]
    if "deletionTimestamp" not in metadata:
        if _is_orphaned(server, obj):
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


def _is_orphaned(server: MemoryServer, obj: Raw) -> bool:
    owners = obj["metadata"].get("ownerReferences") or []
    living = {one["metadata"]["uid"] for kind in server.kinds() for one in server.all(kind)} if owners else set()
    if owners and not any(ref["uid"] in living for ref in owners):
        return True
    leaving = {one["metadata"]["name"] for one in server.all(NAMESPACES) if "deletionTimestamp" in one["metadata"]}
    return obj["metadata"].get("namespace") in leaving


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
