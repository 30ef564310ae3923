"""Objects of each job in the cache, read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODES, PODS, TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.cache.object_cache import Key, ObjectCache
from autoscaler.clusters.kubernetes.cluster_view import ViewBuilder
from autoscaler.clusters.kubernetes.objects.fields import controller_of, part, text
from autoscaler.clusters.kubernetes.objects.labels import JOB
from autoscaler.clusters.kubernetes.objects.names import job_key, master_name, split_key
from autoscaler.clusters.kubernetes.parsing.object_trimming import TRIMMERS
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import JobName, Role
from autoscaler.errors import InvalidSpecError
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.operator.job.job_pods import own_pods
from autoscaler.operator.store.work_queue import WorkQueue


class JobCache(ObjectCache):
    """An object cache that adds each job to `changed_jobs` when its object, its master or one of its pods changes.

    The job of a pod that is gone is read from the pod's name; a wrong guess only reconciles one job in vain.
    """

    def __init__(self, errors: JobErrors, *, namespaces: Mapping[Kind, tuple[str, ...]] | None = None) -> None:
        super().__init__(errors, TRIMMERS, namespaces=namespaces)
        self.changed_jobs = WorkQueue()

    def pop_changes(self) -> Mapping[Kind, frozenset[Key]]:
        """See `ObjectCache.pop_changes`."""
        changes = super().pop_changes()
        for name in self._jobs_of(changes):
            with self._errors.isolate(name, GuardedTask.QUEUE):
                self.changed_jobs.add(name)
        return changes

    def _jobs_of(self, changes: Mapping[Kind, frozenset[Key]]) -> set[JobName]:
        names = {job_key(*key) for key in changes.get(TRAINING_JOBS, ())}
        suffix = master_name("")
        names |= {
            job_key(namespace, name.removesuffix(suffix))
            for namespace, name in changes.get(DEPLOYMENTS, ())
            if name.endswith(suffix)
        }
        for key in changes.get(PODS, ()):
            raw = self.get(PODS, key)
            job = _job_in_name(key[1]) if raw is None else text(raw, "metadata", "labels", JOB)
            if job:
                names.add(job_key(key[0], job))
        return names


class JobObjects:
    """Reads views and cache.  What it returns must not be changed."""

    def __init__(self, cache: ObjectCache, views: ViewBuilder) -> None:
        self.cache = cache
        self.views = views

    @property
    def jobs(self) -> Mapping[JobName, KubeJob]:
        """The jobs whose objects can be read."""
        return self.views.jobs.known

    @property
    def unreadable(self) -> Mapping[JobName, InvalidSpecError]:
        """The jobs whose objects cannot be read, and why."""
        return self.views.jobs.invalid

    def is_contested(self, job: JobName) -> bool:
        """True if a HorizontalPodAutoscaler owns the job's number of trainers (A10)."""
        return job in self.views.jobs.contested

    def raw(self, job: JobName) -> Raw | None:
        """Return the TrainingJob as the API server has it."""
        return self.cache.get(TRAINING_JOBS, split_key(job))

    def pods(self, job: KubeJob) -> list[Raw]:
        """Return the pods of this very job: ended, gated and leaving ones too."""
        return own_pods(job, self.views.pods.of_job(job.key))

    def pod(self, namespace: str, name: str) -> Raw | None:
        """Return the pod of this name, whoever owns it."""
        return self.cache.get(PODS, (namespace, name))

    def master(self, job: KubeJob) -> Raw | None:
        """Return the Deployment of the job's masters, if it exists."""
        raw = self.cache.get(DEPLOYMENTS, (job.namespace, master_name(job.name)))
        if raw is None or controller_of(raw).get("uid") != job.uid or raw["metadata"].get("deletionTimestamp"):
            return None
        return raw

    def labels_of(self, nodes: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Return the labels of these nodes, of those that exist."""
        found = {name: self.cache.get(NODES, ("", name)) for name in nodes}
        return {name: part(raw, "metadata", "labels") for name, raw in found.items() if raw is not None}

    def priority(self, job: KubeJob) -> int | None:
        """Return the value of the job's priority class; None: there is no such class."""
        return self.views.classes.value_of(job.spec.priority_class)


def _job_in_name(pod: str) -> str:
    for role in (Role.TRAINER, Role.SERVER, Role.MASTER):
        job, found, _ = pod.rpartition(f"-{role.value}-")
        if found:
            return job
    return ""
