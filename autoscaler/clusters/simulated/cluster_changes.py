"""Changes of the simulated cluster by users, other controllers and faults.  `cluster` adds the port and the time."""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.clusters.simulated.action_writes import shape_of
from autoscaler.clusters.simulated.controllers.node_lifecycle import NodeLifecycle
from autoscaler.clusters.simulated.controllers.replica_sets import Hpa, SimDeployment
from autoscaler.clusters.simulated.controllers.simulated_jobs import SimulatedJobs
from autoscaler.clusters.simulated.controllers.training_model import TrainingWork
from autoscaler.clusters.simulated.controllers.workload_controllers import WorkloadControllers
from autoscaler.clusters.simulated.scheduling.scheduler import Scheduler
from autoscaler.clusters.simulated.scheduling.scheduler_profile import SchedulerProfile
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.clusters.simulated.world.world import World
from autoscaler.domain import Job, JobName, JobState, NodeName, PodName, Role, Shape, Tier
from autoscaler.errors import InvalidSpecError


class ClusterChanges:
    """Everything takes effect at the present instant of virtual time.

    Raises:
        InvalidSpecError: a name is unknown or taken, a number impossible; then nothing has changed.
    """

    def __init__(self, world: World, scheduler: SchedulerProfile) -> None:
        self._world = world
        self._workloads = WorkloadControllers(world)
        self._jobs = SimulatedJobs(world, when_over=self._workloads.forget_job)
        self._scheduler = Scheduler(world, scheduler)
        self._nodes = NodeLifecycle(world, self._scheduler)

    # ---- jobs ---------------------------------------------------------------------------------------------------

    def submit(self, job: Job, work: TrainingWork | None = None) -> None:
        """Add the job; `submitted_at_s` is now.  Raises InvalidSpecError."""
        self._jobs.submit(job, work or TrainingWork())

    def edit_job(self, job: Job) -> None:
        """Replace the spec of a job: bounds, weight, pinned size, state."""
        self._job(job.name)
        self._jobs.replace(job)

    def delete_job(self, name: str) -> None:
        """End the job; its pods terminate and are not replaced."""
        self._job(name)
        self._jobs.end(JobName(name), is_deleted=True)

    def set_replicas(self, job: str, role: Role, replicas: int, *, priority: int = 0, spreads: bool = False) -> None:
        """Let a controller keep this many pods of the role alive, at its rate; it chooses the victims.

        The scheduler places them.  `spreads`: as a ReplicaSet (servers, master); else as a batch Job (trainers, 2017).
        A role is either a controller's or the planner's, never both.
        """
        spec = self._job(job)
        self._workloads.set_part(
            job,
            role,
            replicas,
            self._shape_of(spec, role),
            priority=priority,
            spreads=spreads,
            grace_s=spec.grace_s,
        )

    def create_pods(
        self,
        job: str,
        role: Role,
        count: int,
        *,
        tier: Tier = Tier.CORE,
        priority: int = 0,
        spreads: bool = False,
        can_preempt: bool = False,
    ) -> list[PodName]:
        """Create pods of a job at once, without a node and a controller.  Returns their names."""
        spec = self._job(job)
        shape = self._shape_of(spec, role)
        names = []
        for _ in range(count):
            ordinal = self._world.next_ordinal(job, role)
            pod = SimPod(
                name=PodName(f"{job}-{role}-{ordinal}"),
                role=role,
                tier=tier,
                shape=shape,
                owner=job,
                priority=priority,
                ordinal=ordinal,
                grace_s=spec.grace_s,
                can_preempt=can_preempt,
                spread_group=f"job/{job}/{role}" if spreads else None,
            )
            self._world.create(pod)
            names.append(pod.name)
        return names

    def delete_pods(self, names: Iterable[str], *, grace_s: float | None = None, why: str = "deleted") -> None:
        """Terminate pods within this grace period, or their own; pods that are gone are skipped."""
        for name in names:
            pod = self._world.pods.get(PodName(name))
            if pod is not None:
                self._world.terminate(pod, grace_s=pod.grace_s if grace_s is None else grace_s, reason=why)

    def kill_pod(self, name: str) -> None:
        """Remove the pod at once; its unfinished work is lost."""
        pod = self._world.pods.get(PodName(name))
        if pod is not None:
            self._world.kill(pod)

    # ---- workloads of others ------------------------------------------------------------------------------------

    def add_deployment(self, deployment: SimDeployment) -> None:
        """Add a Deployment; its pods come at the controller's rate.  Raises InvalidSpecError."""
        self._workloads.add(deployment)

    def scale(self, name: str, replicas: int) -> None:
        """Set a Deployment's replicas."""
        self._workloads.scale(name, replicas)

    def roll(self, name: str) -> None:
        """Roll out a Deployment, within a quarter above and below its replicas."""
        self._workloads.roll(name)

    def add_hpa(self, hpa: Hpa) -> None:
        """Let an HPA own the Deployment's replicas."""
        self._workloads.add_hpa(hpa)

    def set_load(self, name: str, load: float) -> None:
        """Set the load of a Deployment with an HPA, in the HPA's unit."""
        self._workloads.set_load(name, load)

    # ---- nodes --------------------------------------------------------------------------------------------------

    def lose_node(self, name: NodeName) -> None:
        """Stop the machine; the cluster notices after `Physics.loss_detection_s`."""
        self._nodes.lose(name)

    def restore_node(self, name: NodeName) -> None:
        """Start the machine; its node is Ready."""
        self._nodes.restore(name)

    def cordon(self, name: NodeName) -> None:
        self._nodes.cordon(name)

    def uncordon(self, name: NodeName) -> None:
        self._nodes.cordon(name, on=False)

    def drain_node(self, name: NodeName, *, evicts_jobs: bool = False) -> None:
        """Cordon the node and evict its pods; pods of jobs leave by EDL's plan, unless `evicts_jobs`."""
        self._nodes.drain(name, evicts_jobs=evicts_jobs)

    # ---- inside --------------------------------------------------------------------------------------------------

    def _job(self, name: str) -> Job:
        life = self._jobs.by_name.get(JobName(name))
        if life is None:
            raise InvalidSpecError(f"jobs.{name}", "there is no such job", "submit it first")
        return life.job

    def _shape_of(self, job: Job, role: Role) -> Shape:
        """Return what a new pod of the job requests."""
        shape = shape_of(job, role)
        if shape is None:
            raise InvalidSpecError(f"jobs.{job.name}", f"it has no {role}", "a role that its spec names")
        if job.state is JobState.OVER:
            raise InvalidSpecError(f"jobs.{job.name}", "it is over", "a job that is not")
        return shape
