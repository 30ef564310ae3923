"""The local cluster behind the port: what the planner sees of it, and how its actions are carried out.

Beside the port it does what on Kubernetes others do: it creates a Deployment's pods, binds pending ones (`scheduling`),
and lets jobs live (`jobs`).  Sizes and the places of EDL's pods are the planner's.  `run` puts a whole run around it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self, assert_never

from autoscaler.clusters.local import lives
from autoscaler.clusters.local.deployments import compare, pod_name
from autoscaler.clusters.local.gpus import choose
from autoscaler.clusters.local.jobs import JobRecord, Jobs, LookAt, to_domain
from autoscaler.clusters.local.launching import Launching
from autoscaler.clusters.local.pods import LocalPod, to_view
from autoscaler.clusters.local.processes import Command
from autoscaler.clusters.local.recorder import Recorder
from autoscaler.clusters.local.runtime import Gone, Runtime
from autoscaler.clusters.local.scheduling import place_pending
from autoscaler.clusters.local.table import Table, free_room
from autoscaler.clusters.port import Outcome, Verdict
from autoscaler.domain import (
    Action,
    AdmitGang,
    ClusterView,
    CreatePod,
    DeletePod,
    JobState,
    Node,
    NodeName,
    PodName,
    PodPhase,
    Role,
    Shape,
    Tier,
    Workload,
    WorkloadName,
)
from autoscaler.manifests.values import Deployment, PodTemplate, TrainingJob

DONE: Final = Outcome(verdict=Verdict.DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRecord:
    """A Deployment; `wanted` is what `edl scale` set last.  `is_deleted`: goes when its last pod has gone."""

    deployment: Deployment
    priority: int
    wanted: int
    is_deleted: bool = False


class LocalCluster:
    """One machine's virtual nodes.  An async context: inside it pods run, and none is left behind it.

    `on_crash` hears of what cannot be: a bug, or the loss of the process that owns the pods.
    """

    def __init__(
        self,
        nodes: Mapping[Node, tuple[int, ...]],
        launching: Launching,
        recorder: Recorder,
        *,
        clock: Callable[[], float],
        look_at: LookAt,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self.table = Table(nodes)
        self.recorder = recorder
        self.deployments: dict[str, DeploymentRecord] = {}
        self._gpus = {node.name: devices for node, devices in nodes.items()}
        self._launching = launching
        self._clock = clock
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_reconcile_due = False
        self._is_reconciling = False
        self._stack = AsyncExitStack()
        self.runtime = Runtime(
            self.table,
            recorder,
            clock=clock,
            command_of=self._command_of,
            on_gone=self._take_gone,
            on_crash=on_crash,
        )
        self.jobs = Jobs(self.table, self.runtime, recorder, clock=clock, look_at=look_at)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.runtime.processes)
        self._do(self.jobs.watch(), "watch the masters")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.runtime.close()
        await self._stack.aclose()

    # ---- the port -----------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._clock()

    async def observe(self) -> ClusterView:
        """The table as a view; it is always complete and never stale."""
        return ClusterView(
            revision=self.table.revision,
            observed_at_s=self._clock(),
            nodes=tuple(self.table.nodes.values()),
            pods=tuple(to_view(pod) for pod in self.table.pods.values()),
            jobs=tuple(to_domain(record) for record in self.jobs.records.values() if self._is_seen(record)),
            workloads=tuple(_to_workload(record) for record in self.deployments.values()),
        )

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action, whole or not at all."""
        match action:
            case CreatePod():
                return self._create((action,))
            case AdmitGang():
                return self._create(action.pods)
            case DeletePod():
                return self._delete(action)
            case _:
                assert_never(action)

    async def changed(self, timeout_s: float) -> bool:
        return await self.table.wait_for_change(timeout_s)

    # ---- what users ask for -------------------------------------------------------------------------------------

    def submit(self, job: TrainingJob, *, priority: int) -> None:
        """Take a job in; it waits for its minimum.  Raises ValueError when there is one of that name."""
        if job.name in self.jobs.records:
            raise ValueError(f"there is a job {job.name} already")
        record = JobRecord(
            job=job,
            place=self._launching.place_job(job),
            priority=priority,
            submitted_at_s=self._clock(),
            life=lives.Life(policy=job.run_policy),
            pinned=job.trainer.replicas.pinned,
        )
        self.jobs.add(record)

    def deploy(self, deployment: Deployment, *, priority: int) -> None:
        """Run the replicas of a Deployment.  Raises ValueError when there is one of that name."""
        if deployment.name in self.deployments:
            raise ValueError(f"there is a deployment {deployment.name} already")
        record = DeploymentRecord(deployment=deployment, priority=priority, wanted=deployment.replicas)
        self.deployments[deployment.name] = record
        message = f"{deployment.replicas} replicas wanted"
        self.recorder.note("Submitted", f"deployment/{deployment.name}", "Submitted", message)
        self.reconcile()

    def scale(self, name: str, replicas: int) -> None:
        """From now on so many replicas of a Deployment.  Raises KeyError."""
        record = self.deployments[name]
        self.deployments[name] = replace(record, wanted=replicas)
        self.recorder.note("Resized", f"deployment/{name}", "Scaled", f"from {record.wanted} to {replicas} replicas")
        self.reconcile()

    def pin(self, name: str, trainers: int) -> None:
        """Hold a job at this size, 0: EDL decides.  Raises KeyError."""
        self.jobs.pin(name, trainers)

    def suspend(self, name: str, *, on: bool) -> None:
        """All pods of the job leave, or it may start again.  Raises KeyError."""
        self.jobs.tell(self.jobs.records[name].name, lives.SuspendSet(on=on))

    def delete_job(self, name: str) -> None:
        """Stop the job and forget it.  Raises KeyError."""
        self.recorder.note("Job", f"tj/{self.jobs.records[name].name}", "DeleteAsked")
        self.jobs.tell(name, lives.DeleteAsked())
        self.jobs.look()

    def delete_deployment(self, name: str) -> None:
        """Stop its pods and forget it.  Raises KeyError."""
        self.deployments[name] = replace(self.deployments[name], wanted=0, is_deleted=True)
        self.reconcile()

    def leave(self, pod: PodName, *, why: str, grace_s: float | None = None) -> None:
        """Tell one pod to leave, within its grace unless told otherwise.  Raises KeyError."""
        standing = self.table.pods[pod]
        self.runtime.leave(pod, grace_s=standing.grace_s if grace_s is None else grace_s, why=why)
        self.reconcile()

    def kill(self, pod: PodName, number: signal.Signals = signal.SIGKILL) -> bool:
        """A fault from outside; False when the pod has no process now.  Raises KeyError."""
        return self.runtime.send_signal(pod, number)

    def drain_node(self, name: NodeName, *, on: bool = True) -> None:
        """Nothing new comes to the node and all pods leave it; `on=False` opens it again.  Raises KeyError."""
        self.table.set_node(replace(self.table.nodes[name], is_draining=on, is_cordoned=on))
        self.recorder.note("Drained" if on else "Opened", f"node/{name}", "Draining" if on else "Uncordoned")
        if on:
            for pod in tuple(self.table.pods.values()):
                if pod.node == name and not pod.is_job_pod and not pod.is_leaving:
                    self.runtime.leave(pod.name, grace_s=pod.grace_s, why=f"node {name} is drained")
        self.reconcile()

    # ---- Deployments and scheduling -----------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Create and stop web pods until there are as many as wanted, and bind those that fit.

        A pod without a process is gone the moment it is told to leave, which asks for another pass; passes never nest.
        """
        self._is_reconcile_due = True
        if self._is_reconciling:
            return
        self._is_reconciling = True
        try:
            while self._is_reconcile_due:
                self._is_reconcile_due = False
                self._reconcile_once()
        finally:
            self._is_reconciling = False

    def _reconcile_once(self) -> None:
        for name, record in tuple(self.deployments.items()):
            pods = self.table.web_pods(name)
            difference = compare(name, record.wanted, pods, self.table.pods.keys())
            for ordinal in difference.create:
                self._add_web_pod(record, ordinal)
            for pod in difference.stop:
                self.runtime.leave(pod, grace_s=record.deployment.template.grace_s, why="fewer replicas are wanted")
            if record.is_deleted and not self.table.web_pods(name):
                del self.deployments[name]
                self.recorder.note("Deleted", f"deployment/{name}", "Gone")
                self.table.touch()
        self._bind_pending()

    def _add_web_pod(self, record: DeploymentRecord, ordinal: int) -> None:
        name = pod_name(record.deployment.name, ordinal)
        self._add_pod(
            name,
            role=Role.OTHER,
            tier=Tier.FOREIGN,
            owner=record.deployment.name,
            ordinal=ordinal,
            template=record.deployment.template,
            priority=record.priority,
            node=None,
        )
        self.recorder.note("Created", f"pod/{name}", "Pending", "wants a node")

    def _bind_pending(self) -> None:
        pending = [pod for pod in self.table.pods.values() if pod.phase is PodPhase.PENDING]
        if not pending:
            return
        nodes = tuple(self.table.nodes.values())
        free = free_room(self.table.nodes, self.table.pods.values())
        for name, node in place_pending([to_view(pod) for pod in pending], nodes, free).items():
            if node is not None:
                self._bind(name, node)
            elif self.table.pods[name].unschedulable_since_s is None:
                self.table.update(name, unschedulable_since_s=self._clock())
                self.recorder.note("Scheduled", f"pod/{name}", "Unschedulable", "no node has room for it")

    def _bind(self, name: PodName, node: NodeName) -> None:
        pod = self.table.pods[name]
        gpus = self._choose_gpus(node, pod.template)
        self.table.update(name, node=node, gpus=gpus, phase=PodPhase.STARTING, unschedulable_since_s=None)
        self.recorder.note("Scheduled", f"pod/{name}", "Scheduled", f"to {node}")
        self.runtime.launch(name)

    # ---- writes of the planner ----------------------------------------------------------------------------------

    def _create(self, wanted: tuple[CreatePod, ...]) -> Outcome:
        """All of them or none."""
        missing = [action for action in wanted if not self._stands(action)]
        free = free_room(self.table.nodes, self.table.pods.values())
        for action in missing:
            if problem := self._find_problem(action):
                return Outcome(verdict=Verdict.REFUSED, message=problem)
            requests = self._template(action).requests
            if not requests.fits_into(free[action.node]):
                return Outcome(verdict=Verdict.REFUSED, message=f"the room on {action.node} is taken")
            free[action.node] -= requests
        for action in missing:
            self._create_pod(action)
        return DONE

    def _find_problem(self, action: CreatePod) -> str:
        record, node = self.jobs.records.get(action.job), self.table.nodes.get(action.node)
        if record is None or record.life.state is not JobState.ACTIVE:
            return f"job {action.job} takes no pods"
        if node is None or not node.is_open():
            return f"node {action.node} takes no pods"
        if _name_of(action) in self.table.pods:
            return f"pod {_name_of(action)} stands elsewhere or is leaving"
        if action.role is Role.SERVER and record.job.server is None:
            return f"job {action.job} has no parameter servers"
        return ""

    def _stands(self, action: CreatePod) -> bool:
        pod = self.table.pods.get(_name_of(action))
        return pod is not None and pod.owner == action.job and pod.node == action.node and not pod.is_leaving

    def _create_pod(self, action: CreatePod) -> None:
        name, template = _name_of(action), self._template(action)
        record = self.jobs.records[action.job]
        self._add_pod(
            name,
            role=action.role,
            tier=action.tier,
            owner=action.job,
            ordinal=action.ordinal,
            template=template,
            priority=record.priority,
            node=action.node,
        )
        self.recorder.note("Scheduled", f"pod/{name}", "Created", f"{action.tier} on {action.node}: {action.cause}")
        self.runtime.launch(name)

    def _delete(self, action: DeletePod) -> Outcome:
        pod = self.table.pods.get(action.pod)
        if pod is None or (pod.is_leaving and pod.owner == action.job):
            return DONE
        if not pod.is_job_pod or pod.owner != action.job:
            return Outcome(verdict=Verdict.REFUSED, message=f"pod {action.pod} is no pod of job {action.job}")
        beneficiary = f" for {action.beneficiary}" if action.beneficiary else ""
        self.runtime.leave(action.pod, grace_s=action.grace_s, why=f"{action.cause}{beneficiary}")
        return DONE

    # ---- pods ---------------------------------------------------------------------------------------------------

    def _add_pod(
        self,
        name: PodName,
        *,
        role: Role,
        tier: Tier,
        owner: str,
        ordinal: int,
        template: PodTemplate,
        priority: int,
        node: NodeName | None,
    ) -> None:
        self.table.add(
            LocalPod(
                name=name,
                role=role,
                tier=tier,
                owner=owner,
                ordinal=ordinal,
                template=template,
                priority=priority,
                grace_s=template.grace_s,
                created_at_s=self._clock(),
                log=self._launching.folder.log_of(name),
                phase=PodPhase.PENDING if node is None else PodPhase.STARTING,
                node=node,
                gpus=() if node is None else self._choose_gpus(node, template),
                port=self._launching.ports.take() if template.container_port is not None else None,
            )
        )

    def _choose_gpus(self, node: NodeName, template: PodTemplate) -> tuple[int, ...]:
        used = (gpu for pod in self.table.pods.values() if pod.node == node for gpu in pod.gpus)
        return choose(self._gpus[node], used, template.requests.gpu_count)

    def _command_of(self, pod: LocalPod) -> Command:
        return self._launching.command_of(pod, self.jobs.records.get(pod.owner) if pod.is_job_pod else None)

    def _template(self, action: CreatePod) -> PodTemplate:
        job = self.jobs.records[action.job].job
        match action.role:
            case Role.TRAINER:
                return job.trainer.template
            case Role.SERVER:
                assert job.server is not None
                return job.server.template
            case Role.MASTER:
                return job.master.template
            case Role.OTHER:
                raise ValueError("the planner creates no pods of others")
            case _:
                assert_never(action.role)

    def _take_gone(self, gone: Gone) -> None:
        if gone.pod.port is not None:
            self._launching.ports.give_back(gone.pod.port)
        self.reconcile()
        if gone.pod.is_job_pod:
            self._do(self.jobs.take_gone(gone), f"judge the end of {gone.pod.name}")

    def _is_seen(self, record: JobRecord) -> bool:
        return record.life.state is not JobState.OVER or bool(self.table.job_pods(record.name))

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)


def _name_of(action: CreatePod) -> PodName:
    return PodName(f"{action.job}-{action.role}-{action.ordinal}")


def _to_workload(record: DeploymentRecord) -> Workload:
    return Workload(
        name=WorkloadName(record.deployment.name),
        shape=Shape(requests=record.deployment.template.requests),
        priority=record.priority,
        desired_replicas=record.wanted,
    )
