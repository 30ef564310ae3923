"""A server that takes another's place: which one that is, and how far it has come.  Pure.

It stands beside the other until its share of the model has been moved to it; then the planner lets the other go (ADR
0118).  That its pod is Ready says little: the kubelet knows of a process, the job's master of buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autoscaler.clusters.kubernetes.objects.fields import Raw, key_of, text
from autoscaler.clusters.kubernetes.objects.labels import REPLACES
from autoscaler.domain import Pod, PodName, PodPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOwners:
    """What a job's master says of its servers."""

    ordinals: frozenset[int]  # of those that own buckets
    is_moving: bool  # buckets are to go to another server, or are on their way


def replacement_annotation(old: Raw) -> str:
    """What the pod carries that takes this one's place: its name may be another's by the time that it is read."""
    return f"{text(old, 'metadata', 'name')}/{text(old, 'metadata', 'uid')}"


def find_replaced_pod(raw: Raw, find: Callable[[str, str], Raw | None]) -> Raw | None:
    """The pod whose place this one takes, if it still stands.  `find`: a pod by namespace and name."""
    name, _, uid = text(raw, "metadata", "annotations", REPLACES).partition("/")
    old = find(text(raw, "metadata", "namespace"), name) if name and uid else None
    if old is None or text(old, "metadata", "uid") != uid or text(old, "metadata", "deletionTimestamp"):
        return None
    return old


def as_replacement(pod: Pod, old: Raw, owning: BucketOwners | None) -> Pod:
    """The pod as the planner is to see it while the other one stands.

    Ready: it owns buckets, and none is on its way.  `owning` None: nobody can say, so it is neither given up nor relied
    on.
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
