"""Gang status: which pods of each job count, which are bound, and whether all that the job needs is bound.

A pod counts if EDL created it: owned by this very job, named as its labels say, and gated or tied to a node (ADR 0159).
Pods that others create under a job's name change nothing.  This module writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.cluster_view import ViewBuilder
from autoscaler.clusters.kubernetes.gangs.start_backoff import GangStatus
from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, key_of, text
from autoscaler.clusters.kubernetes.objects.labels import GATE, ORDINAL, ROLE, TIER
from autoscaler.clusters.kubernetes.objects.names import master_name, split_key
from autoscaler.clusters.kubernetes.parsing.pod_objects import gates_of, unschedulable_reason
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.clusters.kubernetes.writes.object_ownership import is_own
from autoscaler.clusters.kubernetes.writes.pod_writer import pinned_node
from autoscaler.domain import JobName, PodName, Role, Tier

_MEMBERS = frozenset({Role.TRAINER.value, Role.SERVER.value})


class GangPods:
    """Derives the status of gangs from the object cache and the view."""

    def __init__(self, store: ObjectCache, views: ViewBuilder) -> None:
        self._store = store
        self._views = views
        self._status_cache: dict[JobName, tuple[str, int, GangStatus]] = {}  # UID, and stamp of its pods at that time
        self._started: dict[JobName, str] = {}  # UID of jobs whose master's Deployment has been seen

    def observe(self, job: KubeJob) -> GangStatus:
        """Return the job's status, recomputed only when a pod of the job has changed."""
        stamp, kept = self._views.pods.stamp(job.key), self._status_cache.get(job.key)
        if self._started.get(job.key) != job.uid and self.has_master(job):
            self._started[job.key] = job.uid
        if kept is None or kept[0] != job.uid or kept[1] != stamp:
            kept = self._status_cache[job.key] = (job.uid, stamp, self._count_pods(job))
        is_starting = self._started.get(job.key) != job.uid
        return kept[2] if kept[2].is_starting == is_starting else replace(kept[2], is_starting=is_starting)

    def forget_gone(self) -> None:
        """Drop what is kept of jobs that are gone."""
        for name in self._status_cache.keys() - self._views.jobs.known.keys():
            del self._status_cache[name]
        for name in self._started.keys() - self._views.jobs.known.keys():
            del self._started[name]

    def members(self, job: KubeJob) -> list[Raw]:
        """Return the trainers and servers that EDL created and that neither end nor terminate."""
        return [
            raw
            for raw in self._views.pods.of_job(job.key)
            if is_own(raw, job)
            and not raw["metadata"].get("deletionTimestamp")
            and text(raw, "status", "phase") not in ENDED_PHASES
            and is_as_created(raw, job)
        ]

    def has_master(self, job: KubeJob) -> bool:
        """True if the master's Deployment exists."""
        raw = self._store.get(DEPLOYMENTS, (job.namespace, master_name(job.name)))
        return raw is not None and is_own(raw, job)

    def is_complete(self, job: KubeJob, status: GangStatus) -> bool:
        """True if all pods are bound that the job cannot run without, its master aside.

        Surplus pods in creation do not matter: a master that a user deleted has to be re-created beside them.
        """
        if any(_label(raw, TIER) == Tier.CORE.value for raw in self.raws(status.unbound)):
            return False
        roles = Counter(_label(raw, ROLE) for raw in self.raws(status.bound))
        servers = job.spec.server.replicas.minimum if job.spec.server is not None else 0
        return roles[Role.TRAINER.value] >= job.spec.trainer.replicas.minimum and roles[Role.SERVER.value] >= servers

    def raws(self, pods: Iterable[PodName]) -> list[Raw]:
        """Return these pods as the API server has them, without those that are gone."""
        raws = (self._store.get(PODS, split_key(pod)) for pod in sorted(pods))
        return [raw for raw in raws if raw is not None]

    def _count_pods(self, job: KubeJob) -> GangStatus:
        bound, unbound = set[PodName](), set[PodName]()
        members = self.members(job)
        for raw in members:
            name = PodName(key_of(raw))
            if text(raw, "spec", "nodeName"):
                bound.add(name)
            elif gates_of(raw) <= {GATE}:
                unbound.add(name)  # somebody else's scheduling gate holds the pod: EDL does not count it as late
        return GangStatus(
            job=job.key,
            is_starting=True,
            bound=frozenset(bound),
            unbound=frozenset(unbound),
            unschedulable_reason=next(filter(None, map(unschedulable_reason, members)), ""),
        )


def is_as_created(raw: Raw, job: KubeJob) -> bool:
    """True if the pod is as EDL creates it: its name agrees with its labels, and it is gated or tied to a node."""
    role, number = _label(raw, ROLE), _label(raw, ORDINAL)
    is_named = role in _MEMBERS and text(raw, "metadata", "name") == f"{job.name}-{role}-{number}"
    return is_named and (GATE in gates_of(raw) or pinned_node(raw) is not None)


def _label(raw: Raw, name: str) -> str:
    return text(raw, "metadata", "labels", name)
