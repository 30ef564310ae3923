"""Web: Deployments and the pods of others that wait, with since when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.clusters.kubernetes.objects.fields import Raw, controller_of, integer, text
from autoscaler.views.cluster.pod_view import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentView:
    """One Deployment of a user's.  `waiting`: pods without a node; `waiting_since_s`: the oldest of them."""

    namespace: str
    name: str
    wanted: int
    ready: int
    running: int  # pods on a node that do not leave
    waiting: int
    waiting_since_s: float | None


def deployment_views(deployments: Iterable[Raw], pods: Iterable[PodView]) -> tuple[DeploymentView, ...]:
    """Return the Deployments that no other object owns: a job's masters belong to the job."""
    by_owner: dict[str, list[PodView]] = {}
    for pod in pods:
        if pod.role == "external":
            by_owner.setdefault(pod.owner, []).append(pod)
    found = []
    for raw in deployments:
        if controller_of(raw):
            continue
        namespace, name = text(raw, "metadata", "namespace"), text(raw, "metadata", "name")
        own = [pod for pod in by_owner.get(f"{namespace}/{name}", ()) if not pod.is_leaving]
        waiting = [pod for pod in own if not pod.node]
        found.append(
            DeploymentView(
                namespace=namespace,
                name=name,
                wanted=integer(raw, "spec", "replicas", default=1),
                ready=integer(raw, "status", "readyReplicas"),
                running=len(own) - len(waiting),
                waiting=len(waiting),
                waiting_since_s=min((pod.since_s for pod in waiting), default=None),
            )
        )
    return tuple(found)
