"""Local cluster: the adapter of `autoscaler.cluster_port` for virtual nodes on this machine.

It also does what the controllers of Kubernetes do there: it runs Deployments (`web_deployments`) and jobs
(`local_jobs`).  The planner decides the sizes and nodes of EDL's pods.  `run` puts a whole run around the cluster.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, assert_never

from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.clusters.local.cluster.local_jobs import AskProgress, LocalJob, LocalJobs, SetServers, to_domain
from autoscaler.clusters.local.cluster.pod_factory import PodFactory
from autoscaler.clusters.local.cluster.pod_launch import PodLauncher
from autoscaler.clusters.local.cluster.web_deployments import DeploymentRecord, WebDeployments
from autoscaler.clusters.local.machine.processes import Command
from autoscaler.clusters.local.pods.local_pod import LocalPod, to_view
from autoscaler.clusters.local.pods.pod_runtime import DroppedPod, PodRuntime, name_of_pod, owner_of
from autoscaler.clusters.local.pods.pod_table import PodTable, free_room
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import (
    Action,
    AdmitGang,
    Capabilities,
    Cause,
    ClusterView,
    CreatePod,
    DeletePod,
    Job,
    JobName,
    JobState,
    Node,
    NodeName,
    PodName,
    Role,
    Shape,
    Workload,
    WorkloadName,
)
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.jobs import lifecycle as lives
from autoscaler.jobs.server_count import SPARE_ORDINALS
from autoscaler.manifests.api_types import PodTemplate, TrainingJob, WebDeployment

DONE: Final = WriteOutcome(result=WriteResult.DONE)
CAPABILITIES: Final = Capabilities(servers_elastic=True, moves_servers=True)


class LocalCluster:
    """One machine's virtual nodes.  An async context: inside it pods run, and none is left behind it.

    `on_crash` hears of what cannot be: a bug that is no job's, or the loss of the process that owns the pods.  `errors`
    keeps what goes wrong with single jobs: the others go on (A11).
    """

    def __init__(
        self,
        nodes: Mapping[Node, tuple[int, ...]],
        launching: PodLauncher,
        recorder: RunJournal,
        *,
        clock: Callable[[], float],
        look_at: AskProgress,
        set_servers: SetServers,
        on_crash: Callable[[BaseException], None],
        errors: JobErrors,
    ) -> None:
        self.errors = errors
        self._drawn: dict[str, Job] = {}  # as the planner was shown them last
        self.table = PodTable(nodes)
        self.recorder = recorder
        self._launching = launching
        self._clock = clock
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self.runtime = PodRuntime(
            self.table,
            recorder,
            clock=clock,
            command_of=self._command_of,
            standby_of=self._standby_of,
            on_gone=self._take_gone,
            on_restart=self._take_restart,
            on_crash=on_crash,
            errors=errors,
        )
        gpus = {node.name: devices for node, devices in nodes.items()}
        self._maker = PodFactory(self.table, launching, gpus, clock=clock)
        self.web = WebDeployments(self.table, self.runtime, recorder, self._maker, clock=clock, errors=errors)
        self.jobs = LocalJobs(
            self.table,
            self.runtime,
            recorder,
            clock=clock,
            look_at=look_at,
            set_servers=set_servers,
            errors=errors,
        )

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.runtime.processes)
        self._do(self.jobs.poll_masters(), "watch the masters")
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
        return self.view()

    def view(self) -> ClusterView:
        """What `observe` answers, at once."""
        return ClusterView(
            revision=self.table.revision,
            observed_at_s=self._clock(),
            nodes=tuple(self.table.nodes.values()),
            pods=self.errors.read_each(self.table.pods.values(), name_of_pod, GuardedTask.PODS, to_view),
            jobs=self._draw(),
            workloads=tuple(_to_workload(record) for record in self.web.records.values()),
            capabilities=CAPABILITIES,
        )

    def _draw(self) -> tuple[Job, ...]:
        """The jobs as the planner sees them; one that cannot be drawn is as it was."""
        records, fails = self.jobs.records, self.errors.fails
        found = self.errors.read_each(
            records.values(), lambda record: JobName(record.name), GuardedTask.PLAN_INPUT, self._draw_one
        )
        before = {
            name: job
            for name, job in self._drawn.items()
            if name in records and fails(job.name, GuardedTask.PLAN_INPUT)
        }
        self._drawn = before | {job.name: job for job in found}
        return tuple(self._drawn[name] for name in records if name in self._drawn)

    def _draw_one(self, record: LocalJob) -> Job | None:
        return to_domain(record) if self._is_seen(record) else None

    async def apply(self, action: Action) -> WriteOutcome:
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
        record = LocalJob(
            job=job,
            place=self._launching.place_job(job),
            priority=priority,
            submitted_at_s=self._clock(),
            life=lives.Life(policy=job.run_policy),
            pinned=job.trainer.replicas.pinned,
        )
        self.jobs.add(record)

    @property
    def deployments(self) -> Mapping[str, DeploymentRecord]:
        """Those of the run, by name."""
        return self.web.records

    def deploy(self, deployment: WebDeployment, *, priority: int) -> None:
        """Run the replicas of a Deployment.  Raises ValueError when there is one of that name."""
        self.web.deploy(deployment, priority=priority)

    def scale(self, name: str, replicas: int) -> None:
        """From now on so many replicas of a Deployment.  Raises KeyError."""
        self.web.scale(name, replicas)

    def delete_deployment(self, name: str) -> None:
        """Stop its pods and forget it.  Raises KeyError."""
        self.web.delete(name)

    def pin(self, name: str, trainers: int, *, met: str = "") -> None:
        """Hold a job at this size, 0: EDL decides; `met` is told with it.  Raises KeyError."""
        self.jobs.pin(name, trainers, met=met)

    def pin_servers(self, name: str, servers: int, *, met: str = "") -> None:
        """Hold a job at so many parameter servers, 0: EDL decides; `met` is told with it.  Raises KeyError."""
        self.jobs.pin_servers(name, servers, met=met)

    def suspend(self, name: str, *, on: bool) -> None:
        """All pods of the job leave, or it may start again.  Raises KeyError."""
        self.jobs.handle_event(self.jobs.records[name].name, lives.SuspendRequested(on=on))

    def delete_job(self, name: str) -> None:
        """Stop the job and forget it.  Raises KeyError."""
        self.recorder.record_event("Job", f"tj/{self.jobs.records[name].name}", "DeleteAsked")
        self.jobs.handle_event(name, lives.DeletionRequested())
        self.jobs.reconcile()

    def leave(self, pod: PodName, *, why: str, grace_s: float | None = None) -> None:
        """Tell one pod to leave, within its grace unless told otherwise.  Raises KeyError."""
        standing = self.table.pods[pod]
        self.runtime.leave(pod, grace_s=standing.grace_s if grace_s is None else grace_s, why=why)
        self.web.reconcile()

    def kill(self, pod: PodName, number: signal.Signals = signal.SIGKILL) -> bool:
        """A fault from outside; False when the pod has no process now.  Raises KeyError."""
        return self.runtime.send_signal(pod, number)

    def drain_node(self, name: NodeName, *, on: bool = True) -> None:
        """Nothing new comes to the node and all pods leave it; `on=False` opens it again.  Raises KeyError."""
        self.table.set_node(replace(self.table.nodes[name], is_draining=on, is_cordoned=on))
        self.recorder.record_event("Drained" if on else "Opened", f"node/{name}", "Draining" if on else "Uncordoned")
        if on:
            for pod in tuple(self.table.pods.values()):
                if pod.node == name and not pod.is_job_pod and not pod.is_leaving:
                    self.runtime.leave(pod.name, grace_s=pod.grace_s, why=f"node {name} is drained")
        self.web.reconcile()

    # ---- writes of the planner ----------------------------------------------------------------------------------

    def _create(self, wanted: tuple[CreatePod, ...]) -> WriteOutcome:
        """All of them or none."""
        missing = [action for action in wanted if not self._stands(action)]
        free = free_room(self.table.nodes, self.table.pods.values())
        for action in missing:
            if problem := self._find_problem(action):
                return WriteOutcome(result=WriteResult.REFUSED, message=problem)
            requests = self._template(action).requests
            if not requests.fits_into(free[action.node]):
                return WriteOutcome(result=WriteResult.REFUSED, message=f"the room on {action.node} is taken")
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
        return self._find_server_problem(action, record) if action.role is Role.SERVER else ""

    def _find_server_problem(self, action: CreatePod, record: LocalJob) -> str:
        """A job begins with its first numbers, for which its master waits; later any number below the most will do."""
        most = 0 if record.job.server is None else record.job.server.replicas.maximum
        leaving = sorted(pod.ordinal for pod in self.table.job_pods(action.job, Role.SERVER) if pod.is_leaving)
        if action.ordinal >= most + (SPARE_ORDINALS if action.replaces is not None else 0):
            still = f"; still leaving: {', '.join(map(str, leaving))}" if leaving else ""
            return f"job {action.job} has no server {action.ordinal}: its {most} are numbered from 0{still}"
        is_new = record.progress is None or not record.progress.lineage
        if is_new and leaving and leaving[0] < action.ordinal:
            return f"job {action.job} begins with its first servers, and server {leaving[0]} is still leaving"
        return ""

    def _stands(self, action: CreatePod) -> bool:
        pod = self.table.pods.get(_name_of(action))
        return pod is not None and pod.owner == action.job and pod.node == action.node and not pod.is_leaving

    def _create_pod(self, action: CreatePod) -> None:
        name, template = _name_of(action), self._template(action)
        record = self.jobs.records[action.job]
        self._maker.make(
            name,
            template,
            role=action.role,
            tier=action.tier,
            owner=action.job,
            ordinal=action.ordinal,
            priority=record.priority,
            node=action.node,
        )
        self.recorder.record_event(
            "Scheduled", f"pod/{name}", "Created", f"{action.tier} on {action.node}: {action.cause}"
        )
        self.runtime.launch(name)

    def _delete(self, action: DeletePod) -> WriteOutcome:
        pod = self.table.pods.get(action.pod)
        if pod is None or (pod.is_leaving and pod.owner == action.job):
            return DONE
        if not pod.is_job_pod or pod.owner != action.job:
            return WriteOutcome(result=WriteResult.REFUSED, message=f"pod {action.pod} is no pod of job {action.job}")
        self.runtime.leave(action.pod, grace_s=action.grace_s, why=_why_it_leaves(action))
        return DONE

    # ---- pods ---------------------------------------------------------------------------------------------------

    def _command_of(self, pod: LocalPod) -> Command:
        return self._launching.command_of(pod, self.jobs.records.get(pod.owner) if pod.is_job_pod else None)

    def _standby_of(self, pod: LocalPod) -> Command | None:
        return self._launching.standby_of(pod, self.jobs.records.get(pod.owner) if pod.is_job_pod else None)

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
            case Role.EXTERNAL:
                raise ValueError("the planner creates no external pods")
            case _:
                assert_never(action.role)

    def _take_gone(self, gone: DroppedPod) -> None:
        if gone.pod.port is not None:
            self._launching.ports.release(gone.pod.port)
        self.web.reconcile()
        if gone.pod.is_job_pod:
            judging = self.errors.attempt_async(
                owner_of(gone.pod), GuardedTask.POD_END, partial(self.jobs.handle_dropped_pod, gone)
            )
            self._do(judging, f"judge the end of {gone.pod.name}")

    def _take_restart(self, pod: LocalPod) -> None:
        if pod.is_job_pod:
            self.jobs.handle_restart(pod)

    def _is_seen(self, record: LocalJob) -> bool:
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


def _why_it_leaves(action: DeletePod) -> str:
    """Of a planner's deletion, for people: a node or a word of the spec is no one who gains by it."""
    whom = action.beneficiary
    match action.cause:
        case Cause.LOST_NODE:
            return f"node {whom} is drained"
        case Cause.EDIT:
            return f"{whom} asks for fewer" if whom.startswith("spec.") else f"the job is {whom}"
        case Cause.RATIO:
            return "its job's trainers need fewer servers"
        case Cause.STEP:
            return "without it the job has a whole step"
        case _:
            return f"{action.cause} for {whom}" if whom else str(action.cause)


def _to_workload(record: DeploymentRecord) -> Workload:
    return Workload(
        name=WorkloadName(record.deployment.name),
        shape=Shape(requests=record.deployment.template.requests),
        priority=record.priority,
        desired_replicas=record.wanted,
    )
