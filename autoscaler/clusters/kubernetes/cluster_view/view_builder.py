"""Builder of the planner's view from jobs, pods, nodes, workloads and quotas."""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.clusters.kubernetes.api.kinds import PRIORITY_CLASSES, RESOURCE_QUOTAS
from autoscaler.clusters.kubernetes.cache.expectations import Expectations
from autoscaler.clusters.kubernetes.cache.object_cache import AGED_KINDS, WATCHED_KINDS, ObjectCache
from autoscaler.clusters.kubernetes.cluster_view.job_view import RuntimeOf, TrackedJobs
from autoscaler.clusters.kubernetes.cluster_view.node_view import TrackedNodes
from autoscaler.clusters.kubernetes.cluster_view.pod_view import TrackedPods
from autoscaler.clusters.kubernetes.cluster_view.workload_view import TrackedWorkloads, read_quotas
from autoscaler.clusters.kubernetes.parsing.priority_classes import PriorityClasses, parse_priority_classes
from autoscaler.domain import Capabilities, ClusterView, IdlePod, Reclaim
from autoscaler.fault_isolation import JobErrors


class ViewBuilder:
    """Builds the planner's view of the object cache; `jobs`, `pods` and `classes` are as of the last `build`.

    `offset_s` converts Unix time to the cluster's clock.  `expected`: own writes that no watch has shown yet.
    `elastic_servers`: the number of parameter servers may change; `moves_servers`: and their nodes.  `fixes_observed`:
    see `TrackedJobs`.  `errors` isolates failures of single jobs and objects.
    """

    def __init__(
        self,
        store: ObjectCache,
        *,
        reclaim: Reclaim,
        offset_s: float,
        runtime_of: RuntimeOf,
        expected: Callable[[], Expectations],
        errors: JobErrors,
        elastic_servers: bool = False,
        moves_servers: bool = False,
        fixes_observed: bool = False,
    ) -> None:
        self._store = store
        self._reclaim = reclaim
        self.classes = PriorityClasses()
        self._errors = errors
        self.jobs = TrackedJobs(
            store, offset_s=offset_s, runtime_of=runtime_of, errors=errors, fixes_observed=fixes_observed
        )
        self.pods = TrackedPods(
            store,
            jobs_by_uid=self.jobs.by_uid,
            reclaim=reclaim,
            offset_s=offset_s,
            expected=expected,
            bucket_owners=self.jobs.bucket_owners,
            errors=errors,
        )
        self.idle_pods: tuple[IdlePod, ...] = ()  # by name; set by who reads the agents' reports
        self._nodes = TrackedNodes(store, offset_s=offset_s)
        self._workloads = TrackedWorkloads(store, errors)
        capabilities = Capabilities(replaces_masters=True, servers_elastic=elastic_servers, moves_servers=moves_servers)
        self._view = ClusterView(revision=0, observed_at_s=0.0, is_synced=False, capabilities=capabilities)

    @property
    def last(self) -> ClusterView:
        """The view of the last `build`; an empty one that is not synced before the first."""
        return self._view

    def build(self, now_s: float) -> ClusterView:
        """Return the view of everything in the cache.  Its revision rises with each difference."""
        changes = self._store.pop_changes()
        if changes.get(PRIORITY_CLASSES):
            self.classes = parse_priority_classes(self._store.objects(PRIORITY_CLASSES).values())
        moved = self.jobs.parse_changes(changes)
        pods = self.pods.parse_changes(changes, moved)
        jobs = self.jobs.to_planner_jobs(self.classes, self.pods.trainers(self.jobs.counted))
        self.pods.reserve_for_masters(self.jobs.active(), pods)
        nodes = self._nodes.parse_changes(changes, now_s)
        workloads = self._workloads.parse_changes(changes, self.classes, now_s)
        quotas = read_quotas(self._store, self._reclaim, self._errors) if changes.get(RESOURCE_QUOTAS) else None
        idle_pods = None if self.idle_pods == self._view.idle_pods else self.idle_pods
        is_new = any((pods, jobs, nodes, workloads, quotas is not None, idle_pods is not None))
        self._view = self._view.evolve(
            nodes=nodes.found,
            gone_nodes=nodes.gone,
            pods=pods.found,
            gone_pods=pods.gone,
            jobs=jobs.found,
            gone_jobs=jobs.gone,
            workloads=workloads.found,
            gone_workloads=workloads.gone,
            quotas=quotas,
            idle_pods=idle_pods,
            revision=self._view.revision + is_new,
            observed_at_s=self._store.oldest_confirmed_at_s(AGED_KINDS) or 0.0,
            is_synced=self._store.is_synced(WATCHED_KINDS),
        )
        return self._view
