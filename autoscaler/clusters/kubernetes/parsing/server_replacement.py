"""Server replacement: which parameter server a new one replaces, and how far it has come.  Pure.

The new server runs beside the old one until the old one's buckets have moved to it; then the planner deletes the old
one (ADR 0118).  Pod readiness is not enough: the kubelet sees the process, and only the job's master knows who owns
buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autoscaler.clusters.kubernetes.objects.fields import Raw, key_of, text
from autoscaler.clusters.kubernetes.objects.labels import REPLACES
from autoscaler.domain import Pod, PodName, PodPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOwners:
    """Bucket owners of a job, as its master reports them."""

    ordinals: frozenset[int]  # of those that own buckets
    is_moving: bool  # buckets are to move to another server, or are moving


def replacement_annotation(old: Raw) -> str:
    """Return the annotation of the pod that replaces this one; its name alone may become another pod's."""
    return f"{text(old, 'metadata', 'name')}/{text(old, 'metadata', 'uid')}"


def find_replaced_pod(raw: Raw, find: Callable[[str, str], Raw | None]) -> Raw | None:
    """Return the pod that this one replaces, if it still exists.  `find`: a pod by namespace and name."""
    name, _, uid = text(raw, "metadata", "annotations", REPLACES).partition("/")
    old = find(text(raw, "metadata", "namespace"), name) if name and uid else None
    if old is None or text(old, "metadata", "uid") != uid or text(old, "metadata", "deletionTimestamp"):
        return None
    return old


def as_replacement(pod: Pod, old: Raw, owning: BucketOwners | None) -> Pod:
    """Return the pod as the planner sees it while the old one exists.

    It is ready once it owns buckets and none is moving.  Without a report (`owning` None) it is neither deleted nor
    relied on.
    """
    marked = replace(pod, replaces=PodName(key_of(old)))
    if pod.phase not in {PodPhase.STARTING, PodPhase.READY}:
        return marked
    if owning is None:
        return replace(marked, phase=PodPhase.STARTING, is_settling=True)
    is_serving = pod.ordinal in owning.ordinals
    if is_serving and not owning.is_moving:
        return marked
    return replace(marked, phase=PodPhase.STARTING, is_settling=is_serving)
