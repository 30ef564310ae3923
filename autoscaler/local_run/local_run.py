"""A whole run on this machine, started and stopped as one: the operator's term over the control plane of one machine.

    async with LocalRun(RunSettings(...)) as run:
        await run.submit(manifests)
        ...
        await run.stop()

Around the term stand what a cluster has elsewhere: the run's folder and its records, locks on checkpoint folders, etcd,
and the socket where other terminals find the API (`control_plane.api_socket`).  `autoscaler.cli` shows the run.
Leaving the context without `stop` kills everything that runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError
from autoscaler.clusters.kubernetes.api.kinds import (
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    TRAINING_JOBS,
)
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.clusters.kubernetes.memory_api.watch_history import ObjectChange
from autoscaler.clusters.kubernetes.objects.fields import Raw, text
from autoscaler.clusters.kubernetes.objects.labels import JOB
from autoscaler.clusters.kubernetes.objects.names import job_key
from autoscaler.clusters.local.control_plane.api_socket import ApiSocket
from autoscaler.clusters.local.control_plane.checkpoint_admission import CheckpointAdmission
from autoscaler.clusters.local.control_plane.control_plane import EDL_CLASSES, ControlPlane
from autoscaler.clusters.local.control_plane.pod_annotations import PID
from autoscaler.clusters.local.machine.pod_logs import keep_logs_short
from autoscaler.clusters.local.run_files.checkpoint_locks import CheckpointLocks
from autoscaler.clusters.local.run_files.run_folder import RunFolder, make_run_folder, write_manifest
from autoscaler.clusters.local.run_files.run_journal import RecordedErrors, RunJournal
from autoscaler.domain import Node, NodeName
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key
from autoscaler.jobs.lifecycle import CompletionReason, JobEnding
from autoscaler.local_run.event_journal import EventJournal
from autoscaler.local_run.run_etcd import EtcdEvent, start_etcd, stop_etcd, supervise_etcd
from autoscaler.local_run.run_samples import SAMPLE_EVERY_S, sample_of
from autoscaler.local_run.run_settings import MetricsAddress, RunSettings
from autoscaler.local_run.run_shutdown import stop_pods
from autoscaler.local_run.run_snapshot import RunSnapshot, job_condition, take_snapshot
from autoscaler.local_run.submission import build_objects, check_objects
from autoscaler.manifests.api_types import Manifests, TrainingJob
from master.api.checkpoints.fallback import check_start
from master.api.checkpoints.resume import parse_requested_start
from master.api.checkpoints.storage import open_storage
from master.api.identities import HistoryId

if TYPE_CHECKING:  # `_import_run_term`
    from autoscaler.local_run.run_term import RunTerm
    from autoscaler.operator.job.job_record import JobRecord
    from autoscaler.operator.leader_term import LeaderTerm

_GRACE: Final = "pods end within their grace periods"
_SAMPLES: Final = object_key("run", "", "samples")

log = logging.getLogger(__name__)


class LocalRun:
    """An async context; see the module.  `report` gets, in plain lines, what a user waits for at the start."""

    folder: RunFolder
    recorder: RunJournal
    plane: ControlPlane
    api: MemoryApi
    term: LeaderTerm

    def __init__(self, settings: RunSettings, *, report: Callable[[str], None] = lambda _: None) -> None:
        self.settings = settings
        self._report = report
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._crash: asyncio.Future[None]
        self._is_stopped = False
        self._outcomes: dict[str, str] = {}
        self.metrics_url = ""  # for Prometheus; empty: not asked for

    async def __aenter__(self) -> Self:
        self._crash = asyncio.get_running_loop().create_future()
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()
        if self._crash.done():
            self._crash.exception()  # it has been reported, or nobody asked
        try:
            self._describe_end()
        except OSError as failure:
            log.warning("%s keeps what it said at the start: %s", self.folder.manifest, failure)

    async def _start(self) -> None:
        settings, enter = self.settings, self._stack.enter_context
        self.folder = await asyncio.to_thread(
            make_run_folder, settings.parent, settings.name, described=self._description()
        )
        for folder in (self.folder.sockets, self.folder.tokens):
            self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self.recorder = enter(RunJournal(self.folder, clock=time.monotonic))
        locks = enter(
            CheckpointLocks(
                run=self.folder.root.name,
                working_dir=settings.working_dir,
                own=self.folder.checkpoints,
                allows_shared=settings.allows_shared_folders,
            )
        )
        errors = self._errors = JobErrors(time.monotonic, RecordedErrors(self.recorder))
        self.events = EventJournal(self.recorder, clock=time.monotonic, errors=errors)
        nodes = zip(settings.machines, settings.devices, strict=True)
        self.plane = await self._stack.enter_async_context(
            ControlPlane(
                {Node(name=NodeName(one.name), allocatable=one.capacity): devices for one, devices in nodes},
                self.folder,
                working_dir=settings.working_dir,
                environment=settings.environment,
                clock=time.monotonic,
                wall_s=time.time,
                errors=errors,
                on_crash=self.crash,
                on_changes=self._handle_changes,
                serves_metrics=settings.metrics is not None,
                cuda_ids=settings.cuda_ids,
            )
        )
        self._checkpoints = CheckpointAdmission(self.plane.server, locks)
        self.api = MemoryApi(self.plane.server, field_manager="kubectl")
        imported = asyncio.create_task(asyncio.to_thread(_import_run_term))
        endpoints = await self._start_etcd() if settings.with_etcd else settings.etcd
        run_term = (await imported)(self.plane, settings, endpoints, self.recorder)
        self.term = run_term.term
        if settings.metrics is not None:
            await self._serve_metrics(settings.metrics, run_term)
        self._do(run_term.run(), "term")
        self._do(self._sample(), "samples")
        self._do(keep_logs_short(self.folder.logs), "log sizes")
        if settings.with_etcd:
            processes, etcd_log = self.plane.kubelet.processes, self.folder.log_of("etcd")
            self._do(
                supervise_etcd(processes, etcd_log, restart=self._restart_etcd, on_event=self._record_etcd_event),
                "etcd",
            )
        await self._stack.enter_async_context(ApiSocket(self.api, self.folder.control_socket()))

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    # ---- etcd ---------------------------------------------------------------------------------------------------

    async def _start_etcd(self) -> str:
        """Return its endpoints: sockets in the run's folder, so that masters find a later one at the same place."""
        endpoints = await start_etcd(
            self.plane.kubelet.processes,
            self.folder,
            self.folder.log_of("etcd"),
            self.settings.environment,
            report=self._report,
        )
        self.recorder.record_event("Started", "etcd/etcd", "Ready", endpoints)
        return endpoints

    async def _restart_etcd(self, reason: str) -> None:
        if self._is_stopped:
            return
        self.recorder.record_event("Exited", "etcd/etcd", "Restarting", f"{reason}\nstarts again on its data")
        await self._start_etcd()

    def _record_etcd_event(self, event: EtcdEvent) -> None:
        """Record what befell the etcd server: masters wait for it, and training goes on meanwhile (M5)."""
        if not self._is_stopped:
            self.recorder.record_event(event.kind, "etcd/etcd", event.reason, event.message)

    async def _serve_metrics(self, address: MetricsAddress, term: RunTerm) -> None:
        """Raises MetricsPortError."""
        from autoscaler.local_run.run_metrics import serving_metrics  # noqa: PLC0415 - where it is asked for

        pages = serving_metrics(address, term, lambda: self.plane.server.all(PODS))
        self.metrics_url = await self._stack.enter_async_context(pages)

    # ---- what a run does ----------------------------------------------------------------------------------------

    async def submit(self, manifests: Manifests) -> None:
        """Submit all jobs and Deployments.

        Raises:
            CheckpointFolderLockedError, StorageError: a job's checkpoint folder is in use, or what stands there cannot
                be read (M11); nothing was submitted.
            InvalidSpecError: the operator refuses a job; nothing was submitted.
            ClusterError: the API server refuses an object; a name is taken.
        """
        objects = tuple(build_objects(manifests, self.folder.checkpoints))
        check_objects(objects)
        with self._checkpoints.reserve(body for kind, body in objects if kind == TRAINING_JOBS):
            for job in manifests.jobs:
                if job.checkpoint.uri:
                    self._check_start(job)
            await self._raise_own_classes(manifests)
            for namespace in sorted({_namespace(body) for _, body in objects} - {""}):
                with suppress(AlreadyExistsError):
                    await self.api.create(NAMESPACES, {"metadata": {"name": namespace}})
            for kind, body in objects:
                await self.api.create(kind, body)
        for notice in manifests.notices:
            self.recorder.record_event("Notice", "run", "Notice", notice)

    def _check_start(self, job: TrainingJob) -> None:
        """Check what the job's master will find, before anything starts.  Raises StorageError."""
        history = HistoryId(self.folder.root.name)  # nothing of this run is there yet: any answer is to be followed
        answer = parse_requested_start(job.checkpoint.start, history) if job.checkpoint.start else None
        storage = open_storage(job.checkpoint.uri)
        check_start(storage, answer, job.checkpoint.when_unreadable, now_s=time.time())

    async def _raise_own_classes(self, manifests: Manifests) -> None:
        """EDL's own classes stand level with pods that name none."""
        if (default := manifests.priority_of(None)) != 0:
            for name in EDL_CLASSES:
                await self.api.patch(PRIORITY_CLASSES, name, {"value": default})

    def _handle_changes(self, changes: Sequence[ObjectChange]) -> None:
        self.events.handle_changes(changes)
        self._checkpoints.handle_changes(changes)

    def snapshot(self) -> RunSnapshot:
        """The run as it stands now."""
        return take_snapshot(self.folder.root.name, self.plane.server, self.term, self.events)

    def jobs(self) -> dict[str, JobRecord]:
        """Records that the operator keeps of jobs, by name; a job that it has not yet seen is not among them."""
        return {record.job.name: record for record in self.term.store.records.values()}

    def are_jobs_over(self) -> bool:
        """True if every job has ended and all its pods are gone, also if there is no job."""
        if any(text(pod, "metadata", "labels", JOB) for pod in self._pods()):
            return False
        records = self.term.store.records
        jobs = (records.get(job_key(_namespace(raw), _name(raw))) for raw in self.plane.server.all(TRAINING_JOBS))
        return all(job is not None and job.life.ending is not None for job in jobs)

    def failed_jobs(self) -> tuple[str, ...]:
        """Names of the jobs that ended in failure, or whose script failed after the end."""
        lives = {name: record.life for name, record in self.jobs().items()}
        return tuple(
            name
            for name, life in lives.items()
            if life.ending is JobEnding.FAILED
            or (life.ending is JobEnding.COMPLETED and life.completion_reason is CompletionReason.SCRIPT_FAILED)
        )

    def kill(self, pod: str, number: signal.Signals = signal.SIGKILL) -> bool:
        """Send the pod's process a signal, as a fault from outside; False if it has none now."""
        raw = next((one for one in self._pods() if _name(one) == pod), None)
        pid = "" if raw is None else text(raw, "metadata", "annotations", PID)
        if raw is None or not pid or not self.plane.kubelet.send_signal(_namespace(raw), pod, number):
            return False
        self.recorder.record_event("Killed", f"pod/{pod}", number.name, f"{number.name} was sent to pid {pid}")
        return True

    def crash(self, error: BaseException) -> None:
        """End the run with this error, which `crashed` raises."""
        if not self._crash.done() and not self._is_stopped:
            self._crash.set_exception(error)

    async def crashed(self) -> None:
        """Wait for a crash and raise it."""
        await asyncio.shield(self._crash)

    def outcomes(self) -> dict[str, str]:
        """State of each job in one word, before the run was stopped; kept in run.json at the end."""
        return self._outcomes if self._is_stopped else {n: job_condition(job) for n, job in self.jobs().items()}

    @property
    def is_stopping(self) -> bool:
        """True once `stop` has been called."""
        return self._is_stopped

    async def stop(self, why: str = "") -> None:
        """End everything in order and within its grace: web and trainers, then servers, masters, etcd.

        Jobs leave as those that a user suspends; pods that the operator does not delete are deleted here (M7).  `why`
        begins the event `Stopping`: who reads the run folder later finds out what ended the run.
        """
        self._outcomes = self.outcomes()
        self._is_stopped = True
        self.recorder.record_event("Job", "run", "Stopping", "; ".join(filter(None, (why, _GRACE))))
        await stop_pods(self.plane.server, self.api)
        await stop_etcd(self.plane.kubelet.processes)

    def _pods(self) -> list[Raw]:
        return list(self.plane.server.all(PODS))

    # ---- records ------------------------------------------------------------------------------------------------

    async def _sample(self) -> None:
        while True:
            with self._errors.isolate(_SAMPLES, GuardedTask.REPORT):
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

    def _describe_end(self) -> None:
        description = self._description() | {"started": self.folder.read_manifest().get("started")}
        description |= {"ended": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "jobs": self._outcomes}
        write_manifest(self.folder, description)

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(error)


def _import_run_term() -> type[RunTerm]:
    from autoscaler.local_run.run_term import RunTerm  # noqa: PLC0415 - while etcd starts

    return RunTerm


def _name(raw: Raw) -> str:
    return text(raw, "metadata", "name")


def _namespace(raw: Raw) -> str:
    return text(raw, "metadata", "namespace")
