"""A cluster in virtual time, behind the port `Cluster`: the same loop and planner run on it as on a real one.

Time passes only while somebody waits: the loop through `changed`, anybody else through `run_until`.  What happens is
decided by `physics` and a seed; two runs with the same calls are equal to the last event.  Beside the port stands what
users, other controllers and accidents do to a cluster; what came of it is in `record`, as plain data.

Emulated: kube-scheduler (`scheduler` and what it names), controllers and HPAs (`workloads`), grace and drain (`world`),
death of nodes (`nodes`), training (`jobs`).  Not emulated: volumes, zones, pod affinity, PodDisruptionBudgets, quotas,
image pulls of their own, usage beyond requests, and the 0.02 s between a write of EDL's and its binding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import numpy as np

from autoscaler.clusters.port import Outcome
from autoscaler.clusters.simulated.controllers import Deployment, Hpa
from autoscaler.clusters.simulated.invariants import Invariants
from autoscaler.clusters.simulated.jobs import Jobs
from autoscaler.clusters.simulated.node_table import NodeTable
from autoscaler.clusters.simulated.nodes import Nodes
from autoscaler.clusters.simulated.physics import Physics
from autoscaler.clusters.simulated.pods import SimPod
from autoscaler.clusters.simulated.profile import KUBE_SCHEDULER, SchedulerProfile
from autoscaler.clusters.simulated.scheduler import Scheduler
from autoscaler.clusters.simulated.training import Work
from autoscaler.clusters.simulated.views import Views
from autoscaler.clusters.simulated.workloads import Workloads
from autoscaler.clusters.simulated.world import World
from autoscaler.clusters.simulated.writes import Writes, shape_of
from autoscaler.domain import (
    Action,
    Capabilities,
    ClusterView,
    Job,
    JobName,
    Node,
    NodeName,
    PodName,
    Reclaim,
    Resources,
    Role,
    Shape,
    Tier,
)
from autoscaler.errors import InvalidSpecError

CHANCES_AT_ONCE: Final = 256  # a draw from NumPy costs as much as a hundred from a list


class SimulationOverError(Exception):
    """The instant is reached at which `run_loop` was told to end; it ends the loop, and nobody else sees it."""


class SimulatedCluster:
    """Nodes given once, everything else as it comes.

    `daemons` stand on their nodes from the beginning and stay.  `reclaim` must be the policy's: it decides which
    priority surplus gets.  `surplus_grace_s` is the grace that the scheduler gives surplus when it preempts.  With
    `checks` every event ends in the invariants; without, only the port refuses.

    Raises:
        InvalidSpecError: a node stands twice or has impossible amounts; a daemon's node is unknown or too small.
        InvariantViolationError: while time passes, a bug here.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        physics: Physics | None = None,
        scheduler: SchedulerProfile = KUBE_SCHEDULER,
        seed: int = 0,
        reclaim: Reclaim = Reclaim.PLANNER,
        surplus_grace_s: float = 10.0,
        servers_elastic: bool = False,
        daemons: Mapping[NodeName, Shape] | None = None,
        checks: bool = True,
    ) -> None:
        self._world = World(NodeTable(nodes), physics or Physics(), chances(seed))
        self._world.moves_servers = servers_elastic
        self._jobs = Jobs(self._world)
        self._workloads = Workloads(self._world)
        self._scheduler = Scheduler(self._world, scheduler)
        self._nodes = Nodes(self._world, self._scheduler)
        self._writes = Writes(self._world, self._jobs, reclaim, surplus_grace_s)
        self._views = Views(self._world, self._jobs, self._workloads, Capabilities(servers_elastic=servers_elastic))
        self._invariants = Invariants(self._world) if checks else None
        self._seen_revision = 0
        self._ends_at_s: float | None = None
        self.record = self._world.record
        for name, shape in (daemons or {}).items():
            self._stand(name, shape)

    # ---- the port -----------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds of virtual time since the cluster was made."""
        return self._world.now_s

    async def observe(self) -> ClusterView:
        return self.view()

    async def apply(self, action: Action) -> Outcome:
        return self._writes.carry_out(action)

    async def changed(self, timeout_s: float) -> bool:
        """Let time pass until something has changed, `timeout_s` at most."""
        until_s = self.now() + timeout_s
        if self._ends_at_s is not None:
            until_s = min(until_s, self._ends_at_s)
        world = self._world
        while world.revision == self._seen_revision and self._happen(until_s):
            pass
        is_changed = world.revision != self._seen_revision
        self._seen_revision = world.revision
        if not is_changed:
            world.timeline.pass_to(until_s)
            if self._ends_at_s is not None and world.now_s >= self._ends_at_s:
                self._jobs.record_all()
                raise SimulationOverError
        return is_changed

    # ---- time ---------------------------------------------------------------------------------------------------

    def run_until(self, at_s: float) -> None:
        """Let everything happen up to and at this instant; the clock stands there afterwards."""
        while self._happen(at_s):
            pass
        self._world.timeline.pass_to(at_s)
        self._jobs.record_all()

    def at(self, at_s: float, call: Callable[[], object]) -> None:
        """Call it at that instant; at once in turn, if that is past."""
        self._world.timeline.at(at_s, call)

    def every(self, period_s: float, call: Callable[[], object], *, first_s: float = 0.0) -> None:
        """Call it at `first_s` and every period from then on."""
        if not period_s > 0:
            raise InvalidSpecError("period_s", f"is {period_s}", "above 0")
        self.at(first_s, partial(self._again, period_s, call))

    def end_at(self, at_s: float | None) -> None:
        """Let `changed` raise SimulationOverError when this instant is reached; None: never."""
        self._ends_at_s = at_s

    # ---- jobs ---------------------------------------------------------------------------------------------------

    def submit(self, job: Job, work: Work | None = None) -> None:
        """The job is there from now on; `submitted_at_s` is now.  Raises InvalidSpecError."""
        self._jobs.submit(job, work or Work())

    def edit_job(self, job: Job) -> None:
        """Put in another spec of a job that is there: bounds, weight, pinned size, state."""
        self._job(job.name)
        self._jobs.replace(job)

    def delete_job(self, name: str) -> None:
        """The job is over; its pods leave with their grace, and nobody replaces them."""
        self._job(name)
        self._workloads.forget_job(name)
        self._jobs.end(JobName(name), is_deleted=True)

    def set_replicas(self, job: str, role: Role, replicas: int, *, priority: int = 0, spreads: bool = False) -> None:
        """Let a controller keep so many pods of this role alive, at its rate; it chooses who leaves.

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
        """Create pods of a job at once, without a node and without a controller.  Returns their names."""
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
        """Tell pods to leave within this grace, or within their own; those that are gone already are left out."""
        for name in names:
            pod = self._world.pods.get(PodName(name))
            if pod is not None:
                self._world.tell_to_leave(pod, grace_s=pod.grace_s if grace_s is None else grace_s, why=why)

    def kill_pod(self, name: str) -> None:
        """The pod is gone at once, and what it had in hand is lost."""
        pod = self._world.pods.get(PodName(name))
        if pod is not None:
            self._world.kill(pod)

    # ---- workloads of others ------------------------------------------------------------------------------------

    def add_deployment(self, deployment: Deployment) -> None:
        """The Deployment is there; its pods come at the controller's rate.  Raises InvalidSpecError."""
        self._workloads.add(deployment)

    def scale(self, name: str, replicas: int) -> None:
        """Change a Deployment's replicas."""
        self._workloads.scale(name, replicas)

    def roll(self, name: str) -> None:
        """Replace a Deployment's pods, a quarter more and a quarter fewer than wanted at most."""
        self._workloads.roll(name)

    def add_hpa(self, hpa: Hpa) -> None:
        """An HPA owns the Deployment's replicas from now on."""
        self._workloads.add_hpa(hpa)

    def set_load(self, name: str, load: float) -> None:
        """The load that a Deployment with an HPA has from now on, in the HPA's unit."""
        self._workloads.set_load(name, load)

    # ---- nodes --------------------------------------------------------------------------------------------------

    def lose_node(self, name: NodeName) -> None:
        """The machine dies; the cluster knows after `physics.loss_detection_s`."""
        self._nodes.lose(name)

    def restore_node(self, name: NodeName) -> None:
        """The machine is back and Ready."""
        self._nodes.restore(name)

    def cordon(self, name: NodeName) -> None:
        """Nothing new comes to the node."""
        self._nodes.cordon(name)

    def uncordon(self, name: NodeName) -> None:
        """The node is open again."""
        self._nodes.cordon(name, on=False)

    def drain_node(self, name: NodeName, *, evicts_jobs: bool = False) -> None:
        """Cordon, and let its pods leave; jobs' pods by EDL's plan, unless `evicts_jobs`."""
        self._nodes.drain(name, evicts_jobs=evicts_jobs)

    # ---- reading ------------------------------------------------------------------------------------------------

    @property
    def pods(self) -> Mapping[PodName, SimPod]:
        """Every pod that is not gone.  To be read, never written."""
        return self._world.pods

    @property
    def jobs(self) -> Mapping[JobName, Job]:
        """Every job that is not forgotten."""
        return {name: life.job for name, life in self._jobs.lives.items()}

    def view(self) -> ClusterView:
        """What the planner would see now."""
        return self._views.latest()

    def free_on(self, name: NodeName) -> Resources:
        """What is allocatable on the node and not requested by pods that stand there."""
        table = self._world.table
        slot = table.slot(name)
        return table.resources_of([w - r for w, r in zip(slot.allocatable, slot.requested, strict=True)])

    def check(self) -> None:
        """Raise InvariantViolationError unless everything holds, on every node."""
        Invariants(self._world).check_everything()

    # ---- inside -------------------------------------------------------------------------------------------------

    def _happen(self, until_s: float) -> bool:
        """Let the next thing happen if it comes by then."""
        next_at_s = self._world.timeline.next_at_s()
        if next_at_s is None or next_at_s > until_s:
            return False
        self._world.timeline.happen()
        if self._invariants is not None:
            self._invariants.check()
        return True

    def _again(self, period_s: float, call: Callable[[], object]) -> None:
        self._world.timeline.after(period_s, partial(self._again, period_s, call))
        call()

    def _job(self, name: str) -> Job:
        life = self._jobs.lives.get(JobName(name))
        if life is None:
            raise InvalidSpecError(f"jobs.{name}", "there is no such job", "submit it first")
        return life.job

    def _shape_of(self, job: Job, role: Role) -> Shape:
        shape = shape_of(job, role)
        if shape is None:
            raise InvalidSpecError(f"jobs.{job.name}", f"it has no {role}", "a role that its spec names")
        return shape

    def _stand(self, name: NodeName, shape: Shape) -> None:
        table = self._world.table
        amounts = table.amounts_of(shape.requests)
        if name not in table.index or amounts is None or not table.slot(name).has_room_for(amounts):
            raise InvalidSpecError(f"daemons.{name}", f"has no room for {shape.requests}", "a node that holds it")
        pod = SimPod(
            name=PodName(f"daemon-{name}"),
            role=Role.OTHER,
            tier=Tier.FOREIGN,
            shape=shape,
            owner="",
            priority=DAEMON_PRIORITY,
        )
        self._world.stand(pod, name)


DAEMON_PRIORITY: Final = 2_000_001_000  # of system-node-critical: nobody preempts them


def chances(seed: int) -> Callable[[], float]:
    """An endless row of numbers in [0, 1), the same for the same seed."""
    source = np.random.default_rng(seed)
    row: list[float] = []

    def chance() -> float:
        if not row:
            row.extend(reversed(source.random(CHANCES_AT_ONCE).tolist()))
        return row.pop()

    return chance
