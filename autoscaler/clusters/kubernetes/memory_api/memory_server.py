"""The objects of an in-memory API server, and how they are created, changed and deleted.

Versions, conflicts, preconditions, graceful deletion, finalizers and garbage collection are those of a real server: the
contract suite runs on both.  Nothing happens by itself: callers do the work of kubelets, scheduler and controller
manager explicitly (`bind`, `finish`, `garbage_collection.collect`), so that a test decides when.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

from autoscaler.clusters.kubernetes.api.api_port import ANY, Preconditions, Propagation, Raw
from autoscaler.clusters.kubernetes.api.errors import (
    AlreadyExistsError,
    ConflictError,
    FieldProblem,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RefusedBy,
)
from autoscaler.clusters.kubernetes.api.kinds import (
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    STATEFUL_SETS,
    TRAINING_JOBS,
    Kind,
)
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner, FieldOwners, owners_after_update
from autoscaler.clusters.kubernetes.memory_api.object_rules import is_new_generation, prepare_new, prepare_update
from autoscaler.clusters.kubernetes.memory_api.watch_history import WatchHistory

Key: TypeAlias = tuple[str | None, str]  # namespace, name
Admission: TypeAlias = Callable[[Kind, Raw, Raw | None], None]  # the new object, and the stored one; raises to refuse
Reviewer: TypeAlias = Callable[[Raw], Raw]  # the question, and the same with its answer; raises what a server raises

_NUMBERED_UID: Final = "00000000-0000-4000-8000-{:012d}"
WINDOW: Final = 10_000  # changes remembered for watches
FOREGROUND: Final = "foregroundDeletion"  # removed once all dependents are gone
ORPHAN: Final = "orphan"  # removed once no dependent refers to the object
CONTENT: Final = "kubernetes"  # of a namespace: removed once it is empty
_DELETION_FINALIZERS: Final = {Propagation.FOREGROUND: FOREGROUND, Propagation.ORPHAN: ORPHAN}
_ENDED: Final = frozenset({"Failed", "Succeeded"})
_SERVER_FIELDS: Final = frozenset(
    {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"}
    | {"name", "namespace", "resourceVersion", "uid"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Paths of the desired and current replicas in a kind's `/scale`."""

    desired: tuple[str, ...]
    current: tuple[str, ...]


DEFAULT_SCALES: Final[Mapping[Kind, ScalePaths]] = {
    DEPLOYMENTS: ScalePaths(desired=("spec", "replicas"), current=("status", "replicas")),
    STATEFUL_SETS: ScalePaths(desired=("spec", "replicas"), current=("status", "replicas")),
    TRAINING_JOBS: ScalePaths(desired=("spec", "trainer", "replicas"), current=("status", "trainers", "ready")),
}


def _json(value: Any) -> Any:
    """Return a copy as it comes over the wire; anything but JSON fails."""
    return json.loads(json.dumps(value))


@dataclass(slots=True)
class _Stored:
    obj: Raw
    owners: FieldOwners


class MemoryServer:
    """One API server.  `now` is the wall clock in Unix seconds, for the timestamps of objects."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        window: int = WINDOW,
        admissions: tuple[Admission, ...] = (),
        scales: Mapping[Kind, ScalePaths] = DEFAULT_SCALES,
        namespaces: tuple[str, ...] = ("default",),
        new_uid: Callable[[], str] | None = None,
    ) -> None:
        self.history: Final = WatchHistory(window)
        self.admissions = admissions
        self.scales: Final = scales
        self.reviewers: dict[Kind, Reviewer] = {}  # none: a server without users, which serves no reviews
        self.logs: dict[Key, list[bytes]] = {}  # lines, by pod that stands
        self._now = now
        self._new_uid = new_uid or partial(next, map(_NUMBERED_UID.format, count(1)))
        self._objects: dict[Kind, dict[Key, _Stored]] = {}
        for name in namespaces:
            self.create(NAMESPACES, {"metadata": {"name": name}}, FieldOwner("kube-apiserver", is_apply=False))

    # ---- requests of the API

    def kinds(self) -> list[Kind]:
        """Return the kinds that have objects."""
        return [kind for kind, stored in self._objects.items() if stored]

    def all(self, kind: Kind) -> list[Raw]:
        """Return every object of the kind, by namespace and name."""
        stored = self._objects.get(kind, {})
        return [stored[key].obj for key in sorted(stored, key=lambda key: (key[0] or "", key[1]))]

    def get(self, kind: Kind, namespace: str | None, name: str) -> Raw:
        """Return the object.  Raises NotFoundError."""
        return self._find(kind, namespace, name).obj

    def owners(self, kind: Kind, namespace: str | None, name: str) -> FieldOwners:
        """Return who has set which fields of the object."""
        return self._find(kind, namespace, name).owners

    def check_new(self, kind: Kind, body: Raw) -> Raw:
        """Return the object as it would be stored; raises what `create` raises, and stores nothing."""
        wanted = _json(body) | {"apiVersion": kind.api_version, "kind": kind.kind}
        namespace, name = _place(wanted)
        self._check_namespace(namespace)
        obj = prepare_new(kind, wanted, self.all(PRIORITY_CLASSES))
        self._admit(kind, obj, None)
        if (namespace, name) in self._objects.get(kind, {}):  # after admission, as on a real server
            raise AlreadyExistsError(f'{kind.plural} "{name}" already exists')
        return obj

    def create(self, kind: Kind, body: Raw, owner: FieldOwner, owners: FieldOwners | None = None) -> Raw:
        """Store a new object; `owners` if an apply creates it."""
        obj = self.check_new(kind, body)
        place = _place(obj)
        obj["metadata"] = obj["metadata"] | {
            "uid": self._new_uid(),
            "creationTimestamp": self._time(),
            "generation": 1,
        }
        stored = _Stored(obj, owners if owners is not None else owners_after_update({}, obj, {}, owner))
        self._objects.setdefault(kind, {})[place] = stored
        self._enter(kind, None, stored, obj)
        return obj

    def review(self, kind: Kind, body: Raw) -> Raw:
        """Return the answer to a review; nothing is stored.  Raises NotFoundError without a reviewer of the kind."""
        if kind not in self.reviewers:
            raise NotFoundError(f"create {kind.plural}: the server could not find the requested resource")
        return self.reviewers[kind](body | {"apiVersion": kind.api_version, "kind": kind.kind})

    def change(
        self,
        kind: Kind,
        before: Raw,
        wanted: Raw,
        *,
        is_status: bool,
        owner: FieldOwner,
        owners: FieldOwners | None = None,
    ) -> Raw:
        """Store the result of a patch or an apply; an unchanged object keeps its version."""
        stored = self._find(kind, *_place(before))
        metadata = _json(wanted["metadata"])
        preconditions = Preconditions(uid=metadata.get("uid"), resource_version=metadata.get("resourceVersion"))
        check_preconditions(kind, before, preconditions)
        kept = {name: value for name, value in before["metadata"].items() if name in _SERVER_FIELDS}
        metadata = {name: value for name, value in metadata.items() if name not in _SERVER_FIELDS} | kept
        obj = prepare_update(kind, before, _json(wanted) | {"metadata": metadata}, is_status=is_status)
        _check_finalizers(kind, before, obj)
        self._admit(kind, obj, before)
        stored.owners = owners if owners is not None else owners_after_update(before, obj, stored.owners, owner)
        if is_new_generation(kind, before, obj):
            metadata["generation"] += 1
        return self.rewrite(kind, before, obj)

    def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        only: Preconditions = ANY,
        grace_s: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """Delete an object; it is gone at once unless a grace period or a finalizer holds it."""
        before = self.get(kind, namespace, name)
        check_preconditions(kind, before, only)
        metadata = dict(before["metadata"])
        wanted_s, left_s = _grace_s(kind, before, grace_s), metadata.get("deletionGracePeriodSeconds")
        if left_s is None and propagation in _DELETION_FINALIZERS:
            metadata["finalizers"] = [*(metadata.get("finalizers") or []), _DELETION_FINALIZERS[propagation]]
        if left_s is None or wanted_s < left_s:
            metadata |= {"deletionGracePeriodSeconds": wanted_s, "deletionTimestamp": self._time(wanted_s)}
        after = before | {"metadata": metadata}
        if kind == NAMESPACES:
            after |= {"status": {"phase": "Terminating"}}
            metadata["finalizers"] = [CONTENT]
        if _is_done(after):
            self.remove(kind, before)
        else:
            self.rewrite(kind, before, after)

    def remove(self, kind: Kind, obj: Raw) -> None:
        """Remove the object, whatever holds it; a pod's log goes with it."""
        key = _place(obj)
        del self._objects[kind][key]
        if kind == PODS:
            self.logs.pop(key, None)
        self.history.version += 1
        self.history.append(kind, obj, None)

    def rewrite(self, kind: Kind, before: Raw, after: Raw) -> Raw:
        """Store `after` without checks or field owners, as the server's own controllers do."""
        if after == before:
            return before
        self._enter(kind, before, self._find(kind, *_place(before)), after)
        if _is_done(after):
            self.remove(kind, after)
        return after

    # ---- the scheduler and the kubelet

    def bind(self, namespace: str, name: str, node: str) -> Raw:
        """Bind a pod to a node, as the scheduler does.  Raises InvalidError for a gated pod."""
        before = self.get(PODS, namespace, name)
        if before["spec"].get("schedulingGates"):
            raise InvalidError(f'pods "{name}" has scheduling gates')
        bound = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
        spec, status = before["spec"] | {"nodeName": node}, before["status"] | bound
        return self.rewrite(PODS, before, before | {"spec": spec, "status": status})

    def finish(self, namespace: str, name: str, *, uid: str | None = None) -> None:
        """End a terminating pod, this very one, as the kubelet does once its containers have ended."""
        self.delete(PODS, namespace, name, only=Preconditions(uid=uid), grace_s=0, propagation=None)

    # ---- internals

    def _find(self, kind: Kind, namespace: str | None, name: str) -> _Stored:
        try:
            return self._objects[kind][namespace if kind.is_namespaced else None, name]
        except KeyError:
            raise NotFoundError(f'{kind.plural} "{name}" not found') from None

    def _enter(self, kind: Kind, before: Raw | None, stored: _Stored, obj: Raw) -> None:
        self.history.version += 1
        obj["metadata"] = obj["metadata"] | {"resourceVersion": str(self.history.version)}
        stored.obj = obj
        self.history.append(kind, before, obj)

    def _admit(self, kind: Kind, obj: Raw, before: Raw | None) -> None:
        for admission in self.admissions:
            admission(kind, obj, before)

    def _check_namespace(self, namespace: str | None) -> None:
        if namespace is None:
            return
        found = self.get(NAMESPACES, None, namespace)
        if "deletionTimestamp" in found["metadata"]:
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise ForbiddenError(message, RefusedBy.NAMESPACE_TERMINATING)

    def _time(self, later_s: float = 0.0) -> str:
        return datetime.fromtimestamp(self._now() + later_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def check_preconditions(kind: Kind, obj: Raw, only: Preconditions) -> None:
    """Raise ConflictError unless the object meets the preconditions."""
    for name, value in only.as_fields().items():
        if obj["metadata"][name] != value:
            message = f"{name} in precondition: {value}, in object meta: {obj['metadata'][name]}"
            raise ConflictError(f'{kind.plural} "{obj["metadata"]["name"]}": {message}')


def _place(obj: Raw) -> Key:
    return obj["metadata"].get("namespace"), obj["metadata"]["name"]


def _is_done(obj: Raw) -> bool:
    """True if a deleted object can go: its grace period is over and it has no finalizer."""
    metadata = obj["metadata"]
    return metadata.get("deletionGracePeriodSeconds") == 0 and not metadata.get("finalizers")


def _grace_s(kind: Kind, obj: Raw, wanted_s: int | None) -> int:
    """Return the grace period; only a bound pod that has not ended has one."""
    if kind != PODS or not obj["spec"].get("nodeName") or obj["status"].get("phase") in _ENDED:
        return 0
    return int(obj["spec"]["terminationGracePeriodSeconds"] if wanted_s is None else max(wanted_s, 0))


def _check_finalizers(kind: Kind, before: Raw, after: Raw) -> None:
    old, new = before["metadata"].get("finalizers") or [], after["metadata"].get("finalizers") or []
    if "deletionTimestamp" in before["metadata"] and set(new) - set(old):
        problem = FieldProblem(
            path="metadata.finalizers", message="no new finalizers while the object is being deleted"
        )
        raise InvalidError(f'{kind.kind} "{before["metadata"]["name"]}" is invalid: {problem.message}', (problem,))
