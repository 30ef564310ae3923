"""Pods of one job: which of them stay, have ended or are leaving, and in which roles the job is present.  Pure.

A pod counts only if the job owns it: anybody can set labels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from autoscaler.clusters.kubernetes.objects.fields import (
    ENDED_PHASES,
    Raw,
    condition_of,
    controller_of,
    integer,
    parts,
    text,
    unix_s,
)
from autoscaler.clusters.kubernetes.objects.labels import GATE, ORDINAL, ROLE
from autoscaler.clusters.kubernetes.parsing.pod_objects import gates_of
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Role
from autoscaler.manifests.pod_schema import LONGEST_GRACE_S

UNSTARTED_S: Final = 20.0  # images are usually pulled by then

STARTING_S: Final = 300.0
"""From a pod's node to its part in training, at most: a large image is pulled, and libraries of a gigabyte load."""

RawPod = TypeVar("RawPod", bound=Mapping[str, Any])

_ROLES: Final = {role.value: role for role in (Role.TRAINER, Role.SERVER, Role.MASTER)}


def own_pods(job: KubeJob, pods: Iterable[RawPod]) -> list[RawPod]:
    """Return the pods of this very job.  Masters are matched by label alone, because their owner is a ReplicaSet."""
    return [raw for raw in pods if _is_own(job, raw)]


def has_consistent_name(raw: Raw, job: str) -> bool:
    """True if the pod's name says what its labels say: it is neither a copy nor edited."""
    role = role_of(raw)
    if role is None or role is Role.MASTER:
        return role is Role.MASTER
    number = text(raw, "metadata", "labels", ORDINAL)
    return number.isascii() and number.isdigit() and text(raw, "metadata", "name") == f"{job}-{role}-{number}"


def uid_of(raw: Raw) -> str:
    """Return the UID of an object."""
    return text(raw, "metadata", "uid")


def role_of(raw: Raw) -> Role | None:
    """Return the pod's role; None: it has none that EDL knows."""
    return _ROLES.get(text(raw, "metadata", "labels", ROLE))


def ordinal_of(raw: Raw) -> int:
    """Return the ordinal of a trainer or server that `has_consistent_name`."""
    return int(text(raw, "metadata", "labels", ORDINAL))


def names_of(raws: Iterable[Raw]) -> list[str]:
    """Return the pods' names, by their numbers."""
    return sorted((text(raw, "metadata", "name") for raw in raws), key=_by_number)


def _by_number(name: str) -> tuple[str, int]:
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, 0)


def is_leaving(raw: Raw) -> bool:
    """True if the pod has a deletion timestamp."""
    return bool(text(raw, "metadata", "deletionTimestamp"))


def grace_beyond(raw: Raw) -> int | None:
    """Return the grace of the pod's own spec if somebody deleted the pod with a longer one; else None.

    A user who may delete pods can choose any grace period, even a year; the pod would then hold its capacity although
    its job already has a replacement (A11).
    """
    own_s = integer(raw, "spec", "terminationGracePeriodSeconds", default=LONGEST_GRACE_S)
    return own_s if integer(raw, "metadata", "deletionGracePeriodSeconds") > own_s else None


def has_ended(raw: Raw) -> bool:
    """True if the pod has ended and occupies nothing any more."""
    return text(raw, "status", "phase") in ENDED_PHASES


def is_gated(raw: Raw) -> bool:
    """True if the pod still waits behind the scheduling gate of its gang."""
    return GATE in gates_of(raw)


def is_ready(raw: Raw) -> bool:
    """True if the pod is ready and not terminating."""
    return condition_of(raw, "Ready").get("status") == "True" and not is_leaving(raw) and not has_ended(raw)


def has_unstarted(pods: Iterable[RawPod], now_unix_s: float) -> bool:
    """True if a pod has had a node for long, and no containers yet: something that it mounts may be gone."""
    return any(
        text(raw, "spec", "nodeName") and text(raw, "status", "phase") == "Pending" and _bound_for_long(raw, now_unix_s)
        for raw in pods
        if not is_leaving(raw)
    )


def _bound_for_long(raw: Raw, now_unix_s: float) -> bool:
    bound_s = unix_s(text(condition_of(raw, "PodScheduled"), "lastTransitionTime"))
    return bound_s is not None and now_unix_s - bound_s > UNSTARTED_S


def is_starting(raw: Raw, *, now_unix_s: float, after_unix_s: float) -> bool:
    """True if the pod got its node after the one instant, and not longer than STARTING_S before the other."""
    bound_s = unix_s(text(condition_of(raw, "PodScheduled"), "lastTransitionTime"))
    if not text(raw, "spec", "nodeName") or bound_s is None:
        return False
    return bound_s > after_unix_s and now_unix_s - bound_s <= STARTING_S


def waiting_reasons(pods: Iterable[Raw]) -> dict[str, str]:
    """Return why containers do not run yet, as the kubelet says it (ContainerCreating), by the pod's name."""
    found: dict[str, str] = {}
    for raw in pods:
        statuses = (*parts(raw, "status", "initContainerStatuses"), *parts(raw, "status", "containerStatuses"))
        if why := next(filter(None, (text(one, "state", "waiting", "reason") for one in statuses)), ""):
            found[text(raw, "metadata", "name")] = why
    return found


def active_pods(pods: Iterable[RawPod], role: Role) -> list[RawPod]:
    """Return the pods of a role that stay: neither ended, nor leaving, nor gated."""
    return [
        raw for raw in pods if role_of(raw) is role and not has_ended(raw) and not is_leaving(raw) and not is_gated(raw)
    ]


def active_pods_by_role(pods: Iterable[RawPod]) -> dict[Role, list[RawPod]]:
    """Return the pods that stay, by role."""
    found: dict[Role, list[RawPod]] = {role: [] for role in _ROLES.values()}
    for raw in pods:
        role = role_of(raw)
        if role is not None and not has_ended(raw) and not is_leaving(raw) and not is_gated(raw):
            found[role].append(raw)
    return found


def has_active_trainer(pods: Collection[Raw]) -> bool:
    """True if an active trainer exists."""
    return bool(active_pods(pods, Role.TRAINER))


def roles_of(pods: Iterable[Raw], *, has_master: bool) -> frozenset[Role]:
    """Return the roles in which the job has pods, leaving ones too.  `has_master`: its Deployment stands."""
    found = {role for raw in pods if not has_ended(raw) and not is_gated(raw) and (role := role_of(raw)) is not None}
    return frozenset(found | ({Role.MASTER} if has_master else set()))


def _is_own(job: KubeJob, raw: Raw) -> bool:
    role = role_of(raw)
    if role is Role.MASTER:
        return controller_of(raw).get("kind") == "ReplicaSet"
    return role is not None and controller_of(raw).get("uid") == job.uid
