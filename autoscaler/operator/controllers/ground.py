"""What stands on the cluster of a job, as the store has it: the one place where the operator reads it."""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.cache.object_cache import Store
from autoscaler.clusters.kubernetes.cluster_view import Views
from autoscaler.clusters.kubernetes.objects.fields import controller_of
from autoscaler.clusters.kubernetes.objects.names import master_name, split_key
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import JobName
from autoscaler.errors import InvalidSpecError
from autoscaler.operator.job.job_pods import own_pods


class Ground:
    """Reads views and store; writes nothing.  What it hands out must not be changed."""

    def __init__(self, store: Store, views: Views) -> None:
        self._store = store
        self._views = views

    @property
    def jobs(self) -> Mapping[JobName, KubeJob]:
        """Those that could be read."""
        return self._views.jobs.known

    @property
    def wrong(self) -> Mapping[JobName, InvalidSpecError]:
        """Those that could not, and why."""
        return self._views.jobs.wrong

    def is_contested(self, job: JobName) -> bool:
        """Whether somebody else's autoscaler owns its count (A10)."""
        return job in self._views.jobs.contested

    def raw(self, job: JobName) -> Raw | None:
        """The TrainingJob as the API server has it."""
        return self._store.get(TRAINING_JOBS, split_key(job))

    def pods(self, job: KubeJob) -> list[Raw]:
        """The pods of this very job: ended, gated and leaving ones too."""
        return own_pods(job, self._views.pods.of_job(job.key))

    def pod(self, namespace: str, name: str) -> Raw | None:
        """Whoever's pod of this name."""
        return self._store.get(PODS, (namespace, name))

    def master(self, job: KubeJob) -> Raw | None:
        """The Deployment of its master, if it stands."""
        raw = self._store.get(DEPLOYMENTS, (job.namespace, master_name(job.name)))
        if raw is None or controller_of(raw).get("uid") != job.uid or raw["metadata"].get("deletionTimestamp"):
            return None
        return raw

    def priority(self, job: KubeJob) -> int | None:
        """Value of its core pods' class; None: there is no such class."""
        return self._views.classes.value_of(job.spec.priority_class)
