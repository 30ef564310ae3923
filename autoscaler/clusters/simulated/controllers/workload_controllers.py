"""Controllers at work: they call what `replica_sets` computes, one call after the other, within their rate limit.

All controllers share one limit and take turns.  In kube-controller-manager only controllers of one kind do:
ReplicaSets and batch Jobs have a client each.  One limit for both matches the logs of 2017 better: jobs could train
after 120 s on average, as measured then, and after 94 s with two limits; what ran and what was killed agrees within
4 %.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from autoscaler.clusters.simulated.controllers.replica_sets import (
    Hpa,
    HpaState,
    ReplicaController,
    SimDeployment,
    TokenBucket,
    pods_to_create,
    pods_to_delete,
)
from autoscaler.clusters.simulated.world.run_recorder import WebRow
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.clusters.simulated.world.world import PodChange, World
from autoscaler.domain import PodName, Role, Shape, Tier, Workload, WorkloadName
from autoscaler.errors import InvalidSpecError


class WorkloadControllers:
    """All controllers by name: `job/NAME/ROLE` for a role of a job, any other name for a Deployment."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._controllers: dict[str, ReplicaController] = {}
        self._hpas: dict[str, HpaState] = {}
        physics = world.physics
        self._queue: deque[ReplicaController] = deque()
        self._is_serving = False
        self._tokens = TokenBucket(physics.create_rate_per_s, physics.create_burst)
        world.listen(self.handle_pod_change)

    # ---- what users do ------------------------------------------------------------------------------------------

    def add(self, deployment: SimDeployment) -> None:
        """Add a Deployment.  Raises InvalidSpecError if its name is taken."""
        if deployment.name in self._controllers or "/" in deployment.name:
            raise InvalidSpecError(f"deployments.{deployment.name}", "this name is taken", "another name, without /")
        self._controllers[deployment.name] = ReplicaController(
            name=deployment.name,
            owner=deployment.name,
            role=Role.EXTERNAL,
            tier=Tier.EXTERNAL,
            shape=deployment.shape,
            wanted=deployment.replicas,
            priority=deployment.priority,
            can_preempt=deployment.can_preempt,
            grace_s=deployment.grace_s,
            spread_group=f"{deployment.name}#0",
        )
        self._enqueue(self._controllers[deployment.name])

    def scale(self, name: str, replicas: int) -> None:
        """Set a Deployment's replicas.  Raises InvalidSpecError."""
        if replicas < 0:
            raise InvalidSpecError(f"deployments.{name}.replicas", f"is {replicas}", "0 or more")
        self._set_replicas(self._deployment(name), replicas)

    def roll(self, name: str) -> None:
        """Roll out a new template of the same shape."""
        controller = self._deployment(name)
        controller.generation += 1
        controller.spread_group = f"{name}#{controller.generation}"  # each template has a ReplicaSet of its own
        self._enqueue(controller)

    def add_hpa(self, hpa: Hpa) -> None:
        """Let an HPA own the Deployment's replicas, from one period from now."""
        self._deployment(hpa.deployment)
        self._hpas[hpa.deployment] = HpaState(hpa, self._world.physics)
        self._world.timeline.after(self._world.physics.hpa_sync_s, partial(self._sync, hpa.deployment))

    def set_load(self, name: str, load: float) -> None:
        """Set the load that the Deployment's replicas share."""
        if name not in self._hpas or not load >= 0:
            raise InvalidSpecError(f"deployments.{name}.load", f"is {load}", "at least 0, on a Deployment with an HPA")
        self._hpas[name].load = load

    def set_part(
        self, job: str, role: Role, replicas: int, shape: Shape, *, priority: int, spreads: bool, grace_s: float
    ) -> None:
        """Keep this many pods of a role of a job alive, as a ReplicaSet (`spreads`) or a batch Job would."""
        name = f"job/{job}/{role}"
        controller = self._controllers.get(name)
        if controller is None:
            controller = self._controllers[name] = ReplicaController(
                name=name,
                owner=job,
                role=role,
                tier=Tier.CORE,
                shape=shape,
                wanted=0,
                priority=priority,
                grace_s=grace_s,
                spread_group=name if spreads else None,
            )
        self._set_replicas(controller, replicas)

    def forget_job(self, job: str) -> None:
        """Stop replacing pods of the job."""
        for role in Role:
            controller = self._controllers.pop(f"job/{job}/{role}", None)
            if controller is not None:
                controller.wanted = 0
                controller.pods.clear()
                controller.victims.clear()

    # ---- views --------------------------------------------------------------------------------------------------

    def views(self) -> tuple[Workload, ...]:
        """Return the Deployments as the planner sees them: as their owners last wrote them.

        An HPA announces nothing: its status names a count in the instant in which it writes it.
        """
        return tuple(
            Workload(
                name=WorkloadName(controller.name),
                shape=controller.shape,
                priority=controller.priority,
                desired_replicas=controller.wanted,
                max_replicas=self._most(controller),
            )
            for controller in self._controllers.values()
            if controller.role is Role.EXTERNAL
        )

    def handle_pod_change(self, pod: SimPod, change: PodChange) -> None:
        """Update the pod's controller, which may have to replace the pod."""
        controller = None if pod.controller is None else self._controllers.get(pod.controller)
        if controller is None:
            return
        match change:
            case PodChange.CREATED:
                controller.pods[pod.name] = pod
            case PodChange.RUNNING:
                controller.ready.add(pod.name)
                if controller.generation:
                    self._enqueue(controller)
            case PodChange.STOPPED:
                controller.ready.discard(pod.name)
            case PodChange.LEAVING | PodChange.GONE if pod.name in controller.pods:
                del controller.pods[pod.name]
                controller.ready.discard(pod.name)
                self._enqueue(controller)
            case _:
                return
        self._record(controller)

    def _most(self, controller: ReplicaController) -> int:
        hpa = self._hpas.get(controller.name)
        return 0 if hpa is None else hpa.hpa.max_replicas

    # ---- controller calls ---------------------------------------------------------------------------------------

    def _deployment(self, name: str) -> ReplicaController:
        if name not in self._controllers or "/" in name:
            known = ", ".join(sorted(name for name in self._controllers if "/" not in name)) or "none"
            raise InvalidSpecError(f"deployments.{name}", "there is no such Deployment", f"known: {known}")
        return self._controllers[name]

    def _set_replicas(self, controller: ReplicaController, replicas: int) -> None:
        controller.wanted = replicas
        self._world.touch()
        self._enqueue(controller)
        self._record(controller)

    def _enqueue(self, controller: ReplicaController) -> None:
        """Queue the controller for a token; it acts on its pods once it has one."""
        controller.victims.clear()
        if not controller.is_queued:
            controller.is_queued = True
            self._queue.append(controller)
            if not self._is_serving:
                self._is_serving = True
                self._world.timeline.after(0.0, self._serve)

    def _serve(self) -> None:
        """Let the controllers make one call each, in turn, as far as the tokens go."""
        while self._queue:
            controller = self._queue[0]
            makes = pods_to_create(controller) > 0
            if not makes and not controller.victims:
                controller.victims.extend(pods_to_delete(controller, self._world.physics, self._world.now_s))
            if (makes or controller.victims) and not self._tokens.try_take(self._world.now_s):
                self._world.timeline.after(self._tokens.next_in_s(), self._serve)
                return
            self._queue.popleft()
            controller.is_queued = False
            if makes:
                self._create_pod(controller)
                self._enqueue(controller)
            elif controller.victims:
                self._end_next(controller)
        self._is_serving = False

    def _end_next(self, controller: ReplicaController) -> None:
        """Terminate the next victim; those chosen with it follow."""
        pod = controller.victims.popleft()
        following = list(controller.victims)
        self._world.terminate(pod, grace_s=pod.grace_s, reason="fewer replicas are wanted")
        self._enqueue(controller)
        controller.victims.extend(other for other in following if not other.is_leaving)

    def _create_pod(self, controller: ReplicaController) -> None:
        prefix = controller.owner if controller.role is Role.EXTERNAL else f"{controller.owner}-{controller.role}"
        ordinal = self._world.next_ordinal(controller.owner, controller.role)
        pod = SimPod(
            name=PodName(f"{prefix}-{ordinal}"),
            role=controller.role,
            tier=controller.tier,
            shape=controller.shape,
            owner=controller.owner,
            priority=controller.priority,
            ordinal=ordinal,
            grace_s=controller.grace_s,
            can_preempt=controller.can_preempt,
            spread_group=controller.spread_group,
            generation=controller.generation,
            controller=controller.name,
        )
        self._world.create(pod)

    def _sync(self, name: str) -> None:
        """Run one period of an HPA."""
        controller = self._controllers[name]
        wanted = self._hpas[name].update(controller.wanted, self._world.now_s)
        if wanted != controller.wanted:
            self._set_replicas(controller, wanted)
        self._world.timeline.after(self._world.physics.hpa_sync_s, partial(self._sync, name))

    def _record(self, controller: ReplicaController) -> None:
        if controller.role is Role.EXTERNAL:
            running = len(controller.ready)
            row = WebRow(self._world.now_s, controller.wanted, running, len(controller.pods) - running)
            self._world.record.record_web(controller.name, row)
