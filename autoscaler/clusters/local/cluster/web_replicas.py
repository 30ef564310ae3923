"""Replica arithmetic of a Deployment: how many web pods are missing, and which leave if there are too many.

Pure; `web_deployments` creates and deletes the pods.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.domain import PodName, PodPhase

_LEAVE_FIRST = (PodPhase.PENDING, PodPhase.STARTING, PodPhase.READY)
"""As the ReplicaSet controller: what serves nobody yet goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebReplicaDelta:
    """What is missing and what is too much.  `create` are ordinals."""

    create: tuple[int, ...] = ()
    stop: tuple[PodName, ...] = ()


def pod_name(deployment: str, ordinal: int) -> PodName:
    return PodName(f"{deployment}-{ordinal}")


def plan_web_replicas(
    deployment: str, wanted: int, pods: Sequence[LocalPod], names: Collection[PodName]
) -> WebReplicaDelta:
    """The way from these pods to the wanted number.  `names` are those of all pods: a leaving one's is not reused."""
    standing = [pod for pod in pods if not pod.is_leaving]
    if len(standing) > wanted:
        ranked = sorted(standing, key=lambda p: (_LEAVE_FIRST.index(p.phase), -p.created_at_s, -p.ordinal))
        return WebReplicaDelta(stop=tuple(pod.name for pod in ranked[: len(standing) - wanted]))
    ordinals: list[int] = []
    ordinal = 0
    while len(standing) + len(ordinals) < wanted:
        if pod_name(deployment, ordinal) not in names:
            ordinals.append(ordinal)
        ordinal += 1
    return WebReplicaDelta(create=tuple(ordinals))
