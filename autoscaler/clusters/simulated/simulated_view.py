"""The planner's view of the simulated cluster, derived from the one before: only changes are rebuilt."""

from __future__ import annotations

from autoscaler.clusters.simulated.controllers.simulated_jobs import SimulatedJobs
from autoscaler.clusters.simulated.controllers.workload_controllers import WorkloadControllers
from autoscaler.clusters.simulated.world.sim_pods import to_view
from autoscaler.clusters.simulated.world.world import World
from autoscaler.domain import Capabilities, ClusterView, Job, JobName, Workload, WorkloadName


class SimulatedView:
    """Derives each view from the last; unchanged things stay the same objects."""

    def __init__(
        self, world: World, jobs: SimulatedJobs, workloads: WorkloadControllers, capabilities: Capabilities
    ) -> None:
        self._world = world
        self._jobs = jobs
        self._workloads = workloads
        nodes = tuple(slot.node for slot in world.table.slots)
        self._last = ClusterView(revision=0, observed_at_s=world.now_s, nodes=nodes, capabilities=capabilities)
        self._seen_jobs: dict[JobName, Job] = {}
        self._seen_workloads: dict[WorkloadName, Workload] = {}

    def latest(self) -> ClusterView:
        world = self._world
        if self._last.revision != world.revision:
            self._last = self._update()
        elif self._last.observed_at_s != world.now_s:
            self._last = self._last.evolve(observed_at_s=world.now_s)
        return self._last

    def _update(self) -> ClusterView:
        world = self._world
        jobs = {life.job.name: life.job for life in self._jobs.by_name.values()}
        workloads = {workload.name: workload for workload in self._workloads.views()}
        view = self._last.evolve(
            nodes=[world.table.slot(name).node for name in world.changed_nodes],
            pods=[to_view(world.pods[name]) for name in world.changed_pods if name in world.pods],
            jobs=[job for name, job in jobs.items() if self._seen_jobs.get(name) is not job],
            workloads=[workload for name, workload in workloads.items() if self._seen_workloads.get(name) != workload],
            gone_pods=[name for name in world.changed_pods if name not in world.pods],
            gone_jobs=self._seen_jobs.keys() - jobs.keys(),
            gone_workloads=self._seen_workloads.keys() - workloads.keys(),
            revision=world.revision,
            observed_at_s=world.now_s,
        )
        world.changed_pods.clear()
        world.changed_nodes.clear()
        self._seen_jobs, self._seen_workloads = jobs, workloads
        return view
