"""A whole run on this machine, started and stopped as one: folder, etcd, cluster, the planner's loop, samples.

    async with LocalRun(RunSettings(...)) as run:
        run.submit(manifests)
        ...
        await run.stop()

`control_server` answers other terminals, `autoscaler.cli` shows the run.  Leaving the context without `stop` kills
everything that runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from autoscaler.cluster_port import WriteOutcome
from autoscaler.clusters.local.cluster.local_cluster import LocalCluster
from autoscaler.clusters.local.cluster.local_jobs import LocalJob
from autoscaler.clusters.local.cluster.pod_launch import PodLauncher
from autoscaler.clusters.local.machine.pod_logs import keep_logs_short
from autoscaler.clusters.local.run.run_etcd import EtcdNews, keep_etcd, start_etcd, stop_etcd
from autoscaler.clusters.local.run.run_samples import SAMPLE_EVERY_S, sample_of
from autoscaler.clusters.local.run.run_settings import RunSettings
from autoscaler.clusters.local.run.run_snapshot import RunSnapshot, condition_of, is_change, take_snapshot
from autoscaler.clusters.local.run_files.checkpoint_locks import CheckpointLocks
from autoscaler.clusters.local.run_files.run_folder import RunFolder, make_run_folder, write_manifest
from autoscaler.clusters.local.run_files.run_journal import RecordedErrors, RunJournal
from autoscaler.domain import Action, Decision, Node, NodeName, Role
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.jobs.lifecycle import STOP_ORDER, JobEnding
from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint
from autoscaler.jobs.progress import JobProgress, MissingAnswer
from autoscaler.loop import JournalEntry, Loop, LoopPass
from autoscaler.manifests.api_types import Manifests, TrainingJob
from autoscaler.snapshots import SnapshotContent
from master.api.checkpoints.fallback import check_start
from master.api.checkpoints.resume import parse_requested_start
from master.api.checkpoints.storage import open_storage
from master.api.identities import HistoryId
from master.api.servers_answer import ServersAnswer

_DECISIONS_SHOWN: Final = 50
_STOP_MARGIN_S: Final = 2.0

log = logging.getLogger(__name__)


class LocalRun:
    """An async context; see the module.  `say` is told, in plain lines, what a user waits for at the start."""

    folder: RunFolder
    recorder: RunJournal
    cluster: LocalCluster
    loop: Loop

    def __init__(self, settings: RunSettings, *, say: Callable[[str], None] = lambda _: None) -> None:
        self.settings = settings
        self._say = say
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._crash: asyncio.Future[None]
        self._journaled: JournalEntry | None = None
        self._is_stopped = False
        self._outcomes: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        self._crash = asyncio.get_running_loop().create_future()
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()
        if self._crash.done():
            self._crash.exception()  # it has been told, or nobody asked
        try:
            self._describe(ended=True)
        except OSError as failure:
            log.warning("%s keeps what it said at the start: %s", self.folder.manifest, failure)

    async def _start(self) -> None:
        settings = self.settings
        self.folder = await asyncio.to_thread(
            make_run_folder, settings.parent, settings.name, described=self._description()
        )
        self._stack.callback(shutil.rmtree, self.folder.sockets, ignore_errors=True)
        self.recorder = self._stack.enter_context(RunJournal(self.folder, clock=time.monotonic))
        self._claims = self._stack.enter_context(
            CheckpointLocks(run=self.folder.root.name, allows_shared=self.settings.allows_shared_folders)
        )
        masters = await self._stack.enter_async_context(MasterConnections())

        def door_of(record: LocalJob) -> MasterEndpoint:
            return MasterEndpoint(job=record.name, address=record.place.master, token=record.place.token)

        async def look_at(record: LocalJob) -> JobProgress | MissingAnswer:
            return await masters.poll(door_of(record))

        async def set_servers(record: LocalJob, count: int) -> ServersAnswer | MissingAnswer:
            return await masters.set_servers(door_of(record), count)

        self._launching = PodLauncher(
            folder=self.folder,
            working_dir=settings.working_dir,
            environment=settings.environment,
            etcd=settings.etcd,
        )
        self.cluster = await self._stack.enter_async_context(
            LocalCluster(
                {
                    Node(name=NodeName(machine.name), allocatable=machine.capacity): devices
                    for machine, devices in zip(settings.machines, settings.devices, strict=True)
                },
                self._launching,
                self.recorder,
                clock=time.monotonic,
                look_at=look_at,
                set_servers=set_servers,
                on_crash=self.crash,
                errors=JobErrors(time.monotonic, RecordedErrors(self.recorder)),
            )
        )
        if settings.with_etcd:
            await self._start_etcd()
            processes, etcd_log = self.cluster.runtime.processes, self.folder.log_of("etcd")
            self._do(keep_etcd(processes, etcd_log, restart=self._restart_etcd, on_news=self._record_etcd_news), "etcd")
        self.loop = Loop(self.cluster, settings.policy, listener=self._listen, errors=self.cluster.errors)
        self._do(self.loop.run(), "planner loop")
        self._do(self._sample(), "samples")
        self._do(keep_logs_short(self.folder.logs), "log sizes")

    async def _start_etcd(self) -> None:
        self._launching.etcd = await start_etcd(
            self.cluster.runtime.processes,
            self.folder,
            self.folder.log_of("etcd"),
            self.settings.environment,
            say=self._say,
        )
        self.recorder.record_event("Started", "etcd/etcd", "Ready", self._launching.etcd)

    async def _restart_etcd(self, story: str) -> None:
        if self._is_stopped:
            return
        self.recorder.record_event("Exited", "etcd/etcd", "Restarting", f"{story}\nstarts again on its data")
        await self._start_etcd()
        self.cluster.jobs.use_etcd(self._launching.etcd)

    def _record_etcd_news(self, news: EtcdNews) -> None:
        """Record what befell the etcd server: masters wait for it, and training goes on meanwhile (M5)."""
        if not self._is_stopped:
            self.recorder.record_event(news.kind, "etcd/etcd", news.reason, news.message)

    # ---- what a run does ----------------------------------------------------------------------------------------

    def submit(self, manifests: Manifests) -> None:
        """Submit all jobs and Deployments.

        Raises:
            CheckpointFolderLockedError, StorageError: a job's checkpoint folder is in use, or what stands there cannot
                be read (M11); nothing was submitted.
            ValueError: a name is taken.
        """
        for job in manifests.jobs:
            if job.checkpoint.uri:
                self._claims.lock(job.name, job.checkpoint.uri, working_dir=self.settings.working_dir)
                self._check_start(job)
        for deployment in manifests.deployments:
            priority = manifests.priority_of(deployment.template.priority_class)
            self.cluster.deploy(deployment, priority=priority)
        for job in manifests.jobs:
            self.cluster.submit(job, priority=manifests.priority_of(job.priority_class))
        for notice in manifests.notices:
            self.recorder.record_event("Notice", "run", "Notice", notice)

    def _check_start(self, job: TrainingJob) -> None:
        """Check what the job's master will find, before anything starts.  Raises StorageError."""
        history = HistoryId(self.folder.root.name)  # nothing of this run is there yet: any answer is to be followed
        answer = parse_requested_start(job.checkpoint.start, history) if job.checkpoint.start else None
        storage = open_storage(job.checkpoint.uri)
        check_start(storage, answer, job.checkpoint.when_unreadable, now_s=time.time())

    def snapshot(self) -> RunSnapshot:
        """The run as it stands now."""
        decided = self.loop.last_plan.decisions if self.loop.last_plan is not None else ()
        journal = tuple(self.loop.journal)[-_DECISIONS_SHOWN:]
        return take_snapshot(self.folder.root.name, self.cluster, self.recorder, decided, journal)

    def planner_snapshot(self) -> SnapshotContent:
        """Everything that the next plan depends on, as it stands now."""
        view = replace(self.cluster.view(), history=self.loop.history)
        return SnapshotContent(now_s=self.cluster.now(), policy=self.loop.policy, view=view)

    def are_jobs_over(self) -> bool:
        """True if every job has ended and all its pods are gone, also if there is no job."""
        records = self.cluster.jobs.records.values()
        return all(
            record.life.ending is not None and not self.cluster.table.job_pods(record.name) for record in records
        )

    def failed_jobs(self) -> tuple[str, ...]:
        """Names of the jobs that ended in failure."""
        return tuple(n for n, record in self.cluster.jobs.records.items() if record.life.ending is JobEnding.FAILED)

    def crash(self, error: BaseException) -> None:
        """End the run with this error, which `crashed` raises."""
        if not self._crash.done() and not self._is_stopped:
            self._crash.set_exception(error)

    async def crashed(self) -> None:
        """Wait for a crash and raise it."""
        await asyncio.shield(self._crash)

    def outcomes(self) -> dict[str, str]:
        """State of each job in one word; kept in run.json at the end."""
        return {name: condition_of(record) for name, record in self.cluster.jobs.records.items()}

    @property
    def is_stopping(self) -> bool:
        """True once `stop` has been called."""
        return self._is_stopped

    async def stop(self) -> None:
        """End everything in order and within its grace: web and trainers, then servers, masters, etcd."""
        self._is_stopped = True
        self._outcomes = self.outcomes()
        for task in tuple(self._tasks):
            if task.get_name() == "planner loop":
                task.cancel()
        self.recorder.record_event("Job", "run", "Stopping", "pods leave within their grace")
        for name in tuple(self.cluster.deployments):
            self.cluster.delete_deployment(name)
        for role in (*STOP_ORDER, Role.EXTERNAL):
            await self._stop_role(role)
        await stop_etcd(self.cluster.runtime.processes)

    async def _stop_role(self, role: Role) -> None:
        pods = [pod for pod in self.cluster.table.pods.values() if pod.role is role]
        for pod in pods:
            if not pod.is_leaving:
                self.cluster.runtime.leave(pod.name, grace_s=pod.grace_s, why="the run is stopping")
        deadline_s = time.monotonic() + max((pod.grace_s for pod in pods), default=0.0) + _STOP_MARGIN_S
        names = {pod.name for pod in pods}
        while names & self.cluster.table.pods.keys() and (left_s := deadline_s - time.monotonic()) > 0:
            await self.cluster.changed(left_s)

    # ---- the inside ---------------------------------------------------------------------------------------------

    def _listen(self, step: LoopPass) -> None:
        """Record what was decided and done."""
        errors = self.cluster.errors
        for action, outcome in step.applied:
            errors.attempt(action.job, GuardedTask.REPORT_WRITES, partial(self._record_write, action, outcome))
        for entry in self._take_news():
            errors.attempt(entry.decision.job, GuardedTask.REPORT, partial(self._record_decision, entry.decision))

    def _record_write(self, action: Action, outcome: WriteOutcome) -> None:
        line = {"action": type(action).__name__, **asdict(action), "verdict": outcome.result}
        self.recorder.record_decision(line | ({"message": outcome.message} if outcome.message else {}))

    def _record_decision(self, decision: Decision) -> None:
        self.recorder.record_decision({"decision": decision.reason, **asdict(decision)})
        if is_change(decision):
            self.recorder.record_event("Decided", f"tj/{decision.job}", decision.reason, decision.message)

    def _take_news(self) -> list[JournalEntry]:
        journal = list(self.loop.journal)
        start = journal.index(self._journaled) + 1 if self._journaled in journal else 0
        if journal:
            self._journaled = journal[-1]
        return journal[start:]

    async def _sample(self) -> None:
        while True:
            self.recorder.record_sample(sample_of(self.snapshot()))
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _description(self) -> dict[str, Any]:
        machines = self.settings.machines
        return {
            "name": self.settings.name,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "pid": os.getpid(),
            "nodes": {machine.name: asdict(machine.capacity) for machine in machines},
            **self.settings.described,
        }

    def _describe(self, *, ended: bool) -> None:
        description = self._description() | {"started": self.folder.read_manifest().get("started")}
        if ended:
            description["ended"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            description["jobs"] = self._outcomes
        write_manifest(self.folder, description)

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(error)
