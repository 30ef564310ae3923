"""What the faults happen to: three etcd members, a local run with its planner, and one ledger job after another."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, SECRETS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.builders.pod_environment import TOKEN
from autoscaler.clusters.kubernetes.objects.names import member_secret, store_name
from autoscaler.clusters.local.run_files.run_journal import RunEvent
from autoscaler.domain import PodPhase, Resources, Role
from autoscaler.etcd_server.etcd_members import EtcdCluster, start_etcd
from autoscaler.etcd_server.finder import find_etcd
from autoscaler.jobs.lifecycle import JobEnding
from autoscaler.local_run.local_run import LocalRun
from autoscaler.local_run.run_settings import RunSettings
from autoscaler.local_run.run_snapshot import JobLine, PodLine
from autoscaler.manifests import parse_files
from autoscaler.manifests.conversion import make_virtual_node
from master.api.master_status import JobStatus
from tests.chaos.ledger import PROGRAM
from tests.chaos.ledger_shape import LedgerShape
from tests.harness.master_status import describe_status, try_status

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.1
WEB = "web"
NAMESPACE = "default"
MOST_WEB = 4  # pods of one CPU: then there is room for no trainer above the minimum of two


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosJobShape(LedgerShape):
    """`trainers` are the fewest."""

    epochs: int = 40
    step_s: float = 0.05
    buckets: int = 64
    most_trainers: int = 4
    most_servers: int = 0  # 0: their number is fixed
    is_group: bool = False
    copies: int = 1  # of each bucket
    checkpoint_every_s: float = 1.5
    leader_ttl_s: int = 3
    reconnect_s: float = 3.0
    grace_s: float = 20.0
    checkpoint_uri: str = ""  # empty: the run folder
    trainer_options: tuple[str, ...] = ()
    program: tuple[str, ...] = ()  # another trainer than the ledger, with the option --haste


def job_yaml(name: str, shape: ChaosJobShape, diaries: Path, haste: Path) -> str:
    """The same file that a user would write."""
    command = (*(shape.program or (*shape.trainer(diaries), *shape.trainer_options)), f"--haste={haste}")
    servers = f"""
  parameterServer:
    minReplicas: {shape.servers}
    maxReplicas: {max(shape.servers, shape.most_servers)}
    replicas: {shape.servers}
    copies: {shape.copies}
    template:
      spec:
        terminationGracePeriodSeconds: {shape.grace_s:g}
        containers:
          - name: server
            resources: {{requests: {{cpu: 500m, memory: 128Mi}}}}"""
    group = "\n  group: {}" if shape.is_group else ""
    return f"""
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {{name: {name}}}
spec:
  runPolicy: {{backoffLimit: {shape.backoff_limit}}}
  trainer:
    minReplicas: {shape.trainers}
    maxReplicas: {max(shape.trainers, shape.most_trainers)}
    template:
      spec:
        terminationGracePeriodSeconds: {shape.grace_s:g}
        containers:
          - name: trainer
            command: [{", ".join(f'"{word}"' for word in command)}]
            resources: {{requests: {{cpu: 1, memory: 128Mi}}}}{servers if shape.servers else ""}{group}
  master:
    template:
      spec:
        containers:
          - name: master
            env:
              - {{name: EDL_BUCKETS, value: "{shape.buckets}"}}
              - {{name: EDL_LEADER_TTL_S, value: "{shape.leader_ttl_s}"}}
              - {{name: EDL_RECONNECT_S, value: "{shape.reconnect_s}"}}
              - {{name: EDL_LEASE_FLOOR_S, value: "{shape.lease_floor_s}"}}
              - {{name: EDL_CHECK_INVARIANTS, value: "1"}}
            resources: {{requests: {{cpu: 250m, memory: 128Mi}}}}
  checkpoint: {{everySeconds: {shape.checkpoint_every_s}, uri: "{shape.checkpoint_uri}"}}
"""


def web_yaml() -> str:
    """Plain web pods, which come before any trainer above its job's minimum."""
    return f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {WEB}}}
spec:
  replicas: 0
  template:
    spec:
      terminationGracePeriodSeconds: 2
      containers:
        - name: web
          command: [{sys.executable}, {PROGRAM.with_name("web.py")}]
          ports: [{{containerPort: 8080}}]
          resources: {{requests: {{cpu: 1, memory: 64Mi}}}}
"""


class ChaosRun:
    """One run.  Made by `start_chaos_run`."""

    def __init__(self, run: LocalRun, etcd: EtcdCluster | None, say: Callable[[str], None]) -> None:
        self.local_run = run
        self.etcd = etcd
        self.say = say
        self._drained: set[str] = set()  # pods, as events name them, until they are told

    @property
    def root(self) -> Path:
        return self.local_run.folder.root

    async def submit(self, name: str, shape: ChaosJobShape) -> None:
        """A new job; the diaries of its trainers stand in `diaries(name)`."""
        self.diaries(name).mkdir(parents=True)
        file = self.root / f"{name}.yaml"
        file.write_text(job_yaml(name, shape, self.diaries(name), self._haste(name)), encoding="utf-8")
        await self.local_run.submit(parse_files([file]))

    async def submit_web(self) -> None:
        """A Deployment without pods yet; `scale_web` makes the wave."""
        file = self.root / f"{WEB}.yaml"
        file.write_text(web_yaml(), encoding="utf-8")
        await self.local_run.submit(parse_files([file]))

    def diaries(self, job: str) -> Path:
        return (self.root / "diaries" / job).resolve()

    def _haste(self, job: str) -> Path:
        return (self.root / f"{job}.haste").resolve()

    def hurry(self, job: str) -> None:
        """Its trainers compute no longer than they must: what is left is soon trained."""
        self._haste(job).touch()

    def job(self, job: str) -> JobLine:
        """The job as the run sees it now."""
        return next(line for line in self.local_run.snapshot().jobs if line.name == job)

    def checkpoint_uri(self, job: str) -> str:
        raw = self.local_run.plane.server.get(TRAINING_JOBS, NAMESPACE, job)
        return raw["spec"]["checkpoint"]["uri"]

    def pods(self, job: str, role: Role) -> list[PodLine]:
        """Those that have a process and are not leaving."""
        pods = [pod for pod in self._pods_of(job) if pod.role is role and pod.pid]
        return sorted((pod for pod in pods if pod.phase is not PodPhase.TERMINATING), key=lambda pod: pod.name)

    def has_pods(self, job: str) -> bool:
        """True while any pod of the job is there, also a leaving one."""
        return bool(self._pods_of(job))

    def _pods_of(self, job: str) -> list[PodLine]:
        return [pod for pod in self.local_run.snapshot().pods if pod.owner == job and pod.role is not Role.EXTERNAL]

    def log_of(self, pod: PodLine) -> Path:
        return self.local_run.folder.log_of(pod.name)

    @property
    def events(self) -> list[RunEvent]:
        """The newest of the run."""
        return list(self.local_run.recorder.events)

    def has_ended(self, job: str) -> bool:
        return self.job(job).condition in {JobEnding.COMPLETED, JobEnding.FAILED}

    # ---- what users and faults do -------------------------------------------------------------------------------

    def kill(self, pod: str, number: signal.Signals = signal.SIGKILL) -> bool:
        """False when the pod is gone or has no process now."""
        return self.local_run.kill(pod, number)

    async def drain(self, pod: str) -> None:
        """Tell one pod to leave, within its grace."""
        self._drained.add(f"pod/{pod}")
        with suppress(NotFoundError):
            await self.local_run.api.delete(PODS, pod, namespace=NAMESPACE)

    def was_drained(self, pod: str) -> bool:
        """True if `drain` has told this pod to leave; asked once for each."""
        try:
            self._drained.remove(pod)
        except KeyError:
            return False
        return True

    async def suspend(self, job: str, *, on: bool) -> None:
        await self.edit(job, {"runPolicy": {"suspend": on}})

    async def pin_servers(self, job: str, count: int) -> None:
        await self.edit(job, {"parameterServer": {"replicas": count}})

    async def edit(self, job: str, spec: Mapping[str, Any]) -> None:
        """Change fields of the job's spec, as `kubectl edit`."""
        await self.local_run.api.patch(TRAINING_JOBS, job, {"spec": spec}, namespace=NAMESPACE)

    async def scale_web(self, replicas: int) -> None:
        await self.local_run.api.patch(DEPLOYMENTS, WEB, {"spec": {"replicas": replicas}}, namespace=NAMESPACE)

    # ---- what its master says -----------------------------------------------------------------------------------

    async def status(self, job: str) -> JobStatus | None:
        """None: no master answers now."""
        server = self.local_run.plane.server
        name = store_name(NAMESPACE, job, server.get(TRAINING_JOBS, NAMESPACE, job)["metadata"]["uid"])
        try:
            secret = server.get(SECRETS, NAMESPACE, member_secret(job))
        except NotFoundError:
            return None
        token = base64.b64decode(secret["data"][TOKEN]).decode()
        return await try_status(self.local_run.plane.socket_of(name), name, token=token)

    async def answer(self, job: str, budget_s: float) -> JobStatus:
        """What a master says, as soon as one answers.  Raises TimeoutError."""
        return await self.wait_for(job, lambda _: True, "a master answers", budget_s)

    async def wait_for(self, job: str, condition: Callable[[JobStatus], bool], what: str, budget_s: float) -> JobStatus:
        """The first status that fulfils it.  Raises TimeoutError with the last one, also when the job has ended."""
        status, until_s = None, time.monotonic() + budget_s
        while time.monotonic() < until_s and (status is None or not self.has_ended(job)):
            status = await self.status(job) or status
            if status is not None and condition(status):
                return status
            await asyncio.sleep(POLL_S)
        raise TimeoutError(
            f"{what}: not within {budget_s:g} s, or not before the end; the master's last word: {status}"
        )

    async def wait_end(self, job: str, budget_s: float) -> None:
        """The job has ended and its pods are gone.  Raises TimeoutError."""
        until_s = time.monotonic() + budget_s
        while not self.has_ended(job) or self.has_pods(job):
            if time.monotonic() > until_s:
                raise TimeoutError(
                    f"{job} did not end within {budget_s:g} s: {describe_status(await self.status(job))}"
                )
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def start_chaos_run(
    parent: Path, *, nodes: int = 2, members: int = 3, say: Callable[[str], None] = lambda _: None
) -> AsyncIterator[ChaosRun]:
    """etcd members that keep their promises, and a run without jobs; all of it is gone behind the context.

    Without members, masters keep their records in memory: what they knew dies with them.
    """
    await asyncio.to_thread(parent.mkdir, parents=True, exist_ok=True)
    machines = tuple(
        make_virtual_node(f"node-{i}", Resources(cpu_milli=4000, memory_bytes=8 << 30)) for i in range(1, nodes + 1)
    )
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(start_etcd_members(parent, members, say)) if members else None
        settings = RunSettings(
            name="chaos",
            machines=machines,
            devices=((),) * nodes,
            parent=parent,
            environment=os.environ | {"PYTHONPATH": str(ROOT)},  # scripts import this EDL, wherever one is installed
            with_etcd=False,
            etcd=",".join(etcd.endpoints) if etcd else "",
        )
        run = await stack.enter_async_context(LocalRun(settings, report=say))
        crash = asyncio.create_task(run.crashed())
        try:
            yield ChaosRun(run, etcd, say)
            if crash.done():
                crash.result()
            await run.stop()
        finally:
            crash.cancel()
            await asyncio.gather(crash, return_exceptions=True)
    left = await asyncio.to_thread(find_run_processes, run.folder.root)
    if left:
        raise RuntimeError(f"the run has left processes behind: {left}")


def find_run_processes(root: Path) -> list[int]:
    """Processes whose environment names this run's folder."""
    mark = f"EDL_TOKEN_FILE={root / 'tokens'}/".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(setting.startswith(mark) for setting in (folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
    return found


@asynccontextmanager
async def start_etcd_members(parent: Path, members: int, say: Callable[[str], None]) -> AsyncIterator[EtcdCluster]:
    """An etcd that keeps its promises, in a folder of its own below `parent`."""
    binary = await asyncio.to_thread(find_etcd, allow_demo_version=False, environ=os.environ, report=say)
    if not binary.version.keeps_promises:
        raise RuntimeError(f"{binary} may lose data when it is killed: no test for promises")
    folder = parent / f"etcd-{os.getpid()}"
    async with start_etcd(binary, folder, members=members) as etcd:
        yield etcd
    for member in etcd.members:  # 64 MB of write-ahead log each; the members' own logs stay
        await asyncio.to_thread(shutil.rmtree, folder / member.name)
