"""Jobs of a run: their records, and what is done about the events of their lives.

`jobs.lifecycle` decides; this module hands it events, carries out its effects, and polls each master's status.  A fault
of EDL with one job stays that job's alone (`errors`, A11).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, assert_never

from autoscaler.clusters.local.pods.hung_processes import HungProcesses
from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.clusters.local.pods.member_environment import JobPlace
from autoscaler.clusters.local.pods.pod_runtime import DroppedPod, PodRuntime
from autoscaler.clusters.local.pods.pod_table import PodTable
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import Job, JobName, JobState, PodPhase, Role
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.jobs import lifecycle as lives
from autoscaler.jobs.progress import (
    JobProgress,
    MissingAnswer,
    WhyNoAnswer,
    early_exit_problem,
    merge_progress,
    progress_events,
)
from autoscaler.jobs.server_count import describe_loss, describe_servers, loss_of, only_copies_of, servers_wanted
from autoscaler.jobs.server_ratio import ServerRatio, observe_ratio
from autoscaler.manifests.api_types import TrainingJob
from autoscaler.manifests.planner_job import planned_job
from master.api.servers_answer import ServersAnswer

_LOOK_EVERY_S: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """One job as the cluster keeps it.  `pinned` is what `edl scale tj/NAME --trainers` set last."""

    job: TrainingJob
    place: JobPlace
    priority: int
    submitted_at_s: float
    life: lives.Life
    pinned: int
    progress: JobProgress | None = None
    progress_at_s: float | None = None
    quiet: MissingAnswer | None = None  # what came in place of the last answer; None: it came
    quiet_since_s: float = 0.0  # the first question since the last answer that got none
    ratio: ServerRatio = field(default_factory=ServerRatio)  # where it is measured

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def trainers_per_server(self) -> int:
        """As its file says, or as measured; 0 for a job without servers."""
        server = self.job.server
        if server is None:
            return 0
        return self.ratio.trainers_per_server if server.is_ratio_measured else server.trainers_per_server


AskProgress = Callable[[LocalJob], Awaitable[JobProgress | MissingAnswer]]
SetServers = Callable[[LocalJob, int], Awaitable[ServersAnswer | MissingAnswer]]


def to_domain(record: LocalJob) -> Job:
    """The job as the planner sees it."""
    planned = planned_job(
        record.job, priority=record.priority, pinned=record.pinned, submitted_at_s=record.submitted_at_s
    )
    if planned.servers is not None:
        servers = replace(planned.servers, trainers_per_server=record.trainers_per_server)
        planned = replace(planned, servers=servers)
    return replace(
        planned,
        state=record.life.state,
        hold_until_s=record.life.hold_until_s,
        checkpoint_age_s=None if record.progress is None else record.progress.checkpoint_age_s,
        waiting_share=0.0 if record.progress is None else record.progress.waiting_share,
    )


class LocalJobs:
    """Records of all jobs by name.  `look_at` asks a master for progress, `set_servers` sets its number of servers."""

    def __init__(
        self,
        table: PodTable,
        runtime: PodRuntime,
        recorder: RunJournal,
        *,
        clock: Callable[[], float],
        look_at: AskProgress,
        set_servers: SetServers,
        errors: JobErrors,
    ) -> None:
        self._errors = errors
        self._table = table
        self._runtime = runtime
        self._recorder = recorder
        self._clock = clock
        self._look_at = look_at
        self._set_servers = set_servers
        self._said: dict[str, str] = {}  # by the job's master about its servers
        self._unanswered: set[str] = set()  # jobs whose master has not yet said what became of the number
        self._hung_processes = HungProcesses(runtime, clock=clock)
        self.records: dict[str, LocalJob] = {}

    def add(self, record: LocalJob) -> None:
        self.records[record.name] = record
        self._recorder.record_event("Submitted", f"tj/{record.name}", "Submitted", f"weight {record.job.weight}")
        if record.job.run_policy.suspend:
            self.handle_event(record.name, lives.SuspendRequested(on=True))
        self._table.touch()

    def pin(self, name: str, trainers: int, *, met: str = "") -> None:
        """Pin the job to this size; 0 lets EDL decide.  `met` says what became of the size before, for people."""
        self.records[name] = replace(self.records[name], pinned=trainers)
        message = f"pinned to {_counted(trainers, 'trainer')}" if trainers else "EDL decides the size again"
        self._note_pin(name, trainers, message, met)

    def pin_servers(self, name: str, servers: int, *, met: str = "") -> None:
        """Pin the number of parameter servers, which must be in bounds; 0 lets EDL decide.  The job must have some."""
        record = self.records[name]
        assert record.job.server is not None
        replicas = replace(record.job.server.replicas, pinned=servers)
        job = replace(record.job, server=replace(record.job.server, replicas=replicas))
        self.records[name] = replace(record, job=job)
        message = f"pinned to {_counted(servers, 'server')}" if servers else "EDL decides the number of servers again"
        self._note_pin(name, servers, message, met)

    def _note_pin(self, name: str, count: int, message: str, met: str) -> None:
        told = f"{message}; {met}" if met else message
        self._recorder.record_event("Resized", f"tj/{name}", "Pinned" if count else "Unpinned", told)
        self._table.touch()

    def use_etcd(self, endpoints: str) -> None:
        """Restart each master in place with the new address of etcd."""
        for name, record in self.records.items():
            with self._errors.isolate(JobName(name), GuardedTask.START):
                self.records[name] = replace(record, place=replace(record.place, etcd=endpoints))
                for pod in self._masters(name):
                    self._runtime.standbys.end(pod)  # it knows the old address
                    self._runtime.send_signal(pod.name, signal.SIGKILL)

    def handle_event(self, name: str, event: lives.LifeEvent) -> None:
        """Hand the event to the job's life, and carry out its effects."""
        record = self.records.get(name)
        if record is None:
            return
        step = lives.handle(record.life, event, self._clock())
        if step.life != record.life:
            self.records[name] = replace(record, life=step.life)
            self._table.touch()
        for effect in step.effects:
            self._carry_out(name, effect)

    def reconcile(self) -> None:
        """Tell every life which pods its job still has; called after changes and now and then."""
        for name in map(JobName, tuple(self.records)):
            if not self._errors.is_paused(name, GuardedTask.LIFE):
                self._errors.attempt(name, GuardedTask.LIFE, partial(self._look, name))

    def _look(self, name: str) -> None:
        roles = frozenset(pod.role for pod in self._table.job_pods(name))
        self.handle_event(name, lives.PodsObserved(roles=roles))

    async def handle_dropped_pod(self, gone: DroppedPod) -> None:
        """Handle the end of a pod.  A trainer that ended unasked is judged after one more question to the master."""
        name, pod = gone.pod.owner, gone.pod
        record = self.records.get(name)
        if record is None:
            return
        if pod.role is Role.TRAINER and not pod.is_leaving and record.life.state is JobState.ACTIVE:
            self.handle_event(name, lives.TrainerEnded())
            await self.refresh_progress(name)
            self._judge_end(name, gone)
        if pod.role is Role.SERVER and pod.is_leaving:
            self._note_loss(record, gone)
        self.reconcile()

    def handle_restart(self, pod: LocalPod) -> None:
        """Record what is lost when a server's process ends unasked: the buckets that no other server has."""
        record = self.records.get(pod.owner)
        if record is None or record.job.server is None or pod.role is not Role.SERVER:
            return
        if record.life.stage is lives.LifeStage.ACTIVE and (lost := only_copies_of(pod.ordinal, record.progress)):
            told = describe_loss(pod.name, lost, record.job.server.after_loss)
            self._recorder.record_event("Job", f"tj/{record.name}", "ServerLost", told)

    async def poll_masters(self) -> None:
        """Poll the masters until cancelled."""
        while True:
            due = [name for name in map(JobName, self.records) if not self._errors.is_paused(name, GuardedTask.POLL)]
            await asyncio.gather(
                *(self._errors.attempt_async(name, GuardedTask.POLL, partial(self._ask_master, name)) for name in due)
            )
            self.reconcile()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _ask_master(self, name: str) -> None:
        if self._has_master(name):
            await self.refresh_progress(name)

    async def refresh_progress(self, name: str) -> None:
        """Bring the job's progress up to date, when its master answers."""
        record = self.records.get(name)
        if record is None:
            return
        masters, servers = tuple(self._masters(name)), tuple(self._standing(name, Role.SERVER))
        answer = await self._look_at(record)
        self._note_silence(masters, servers, answer)
        record = self.records.get(name)
        if record is None:
            return
        if not isinstance(answer, JobProgress):
            since_s = self._clock() if record.quiet is None else record.quiet_since_s
            self.records[name] = replace(record, quiet=answer, quiet_since_s=since_s)
        else:
            self._take(record, answer)
            await self._tell_servers(name, answer.servers_wanted)

    async def _tell_servers(self, name: str, known: int) -> None:
        """Set the master's number of servers where it counts on another one."""
        record = self.records.get(name)
        if record is None or record.job.server is None or record.life.stage is not lives.LifeStage.ACTIVE:
            return  # what stops takes its servers along
        standing = [pod.ordinal for pod in self._table.job_pods(name, Role.SERVER) if not pod.is_leaving]
        if not standing:
            return  # all of them go, with the run or with their node: nobody is there to hold the model
        wanted = servers_wanted(record.job.server.replicas.minimum, standing)
        if wanted == known and name not in self._unanswered:
            return
        answer = await self._set_servers(record, wanted)
        if isinstance(answer, ServersAnswer):
            self._unanswered.discard(name)
            self._note_servers(name, wanted, standing, answer)
        elif answer is WhyNoAnswer.SILENT:
            self._unanswered.add(name)  # it may hold all the same: asked again, so that the user hears of it

    def _note_servers(self, name: str, wanted: int, standing: Iterable[int], answer: ServersAnswer) -> None:
        """Record the master's answer to a number of servers, if it differs from the last."""
        if answer.refused is not None:
            said = f"{wanted} servers are refused: {answer.refused.field} {answer.refused.message}"
        else:
            said = f"the model is to be held by {describe_servers(wanted, standing)}"
            said += f", in place of {answer.replaces}" if answer.replaces else ""
        if self._said.get(name) != said:
            reason = "ServersSet" if answer.refused is None else "ServersRefused"
            self._recorder.record_event("Resized", f"tj/{name}", reason, said)
        self._said[name] = said

    def _note_silence(
        self, masters: Iterable[LocalPod], servers: Iterable[LocalPod], answer: JobProgress | MissingAnswer
    ) -> None:
        for master in masters:
            self._hung_processes.observe(master, is_heard=answer is not WhyNoAnswer.SILENT, lacking="no answer")
        if not isinstance(answer, JobProgress):
            return  # nothing is known of its servers
        for server in servers:
            is_heard = server.name in answer.connected
            self._hung_processes.observe(server, is_heard=is_heard, lacking="not connected to its master")

    def _take(self, record: LocalJob, progress: JobProgress) -> None:
        name = record.name
        has_advanced = record.progress is not None and progress.done > record.progress.done
        progress = merge_progress(record.progress, progress)
        for reason, message in progress_events(
            record.progress, progress, is_active=record.life.state is JobState.ACTIVE
        ):
            self._recorder.record_event("Job", f"tj/{name}", reason, message)
        self.records[name] = replace(
            record, progress=progress, progress_at_s=self._clock(), quiet=None, ratio=self._measure(record, progress)
        )
        for pod in self._masters(name):
            self._runtime.mark_ready(pod.name)
        if has_advanced or (record.progress is None and progress.done > 0):
            self.handle_event(name, lives.BatchesCompleted())
        if progress.has_failed:
            self.handle_event(name, lives.GivenUp(reason=progress.problem))
        elif progress.is_complete:
            self.handle_event(name, lives.EndReached(quarantined=progress.quarantined))

    def _measure(self, record: LocalJob, progress: JobProgress) -> ServerRatio:
        """Measure how many trainers one server is to serve from now on."""
        server, before = record.job.server, record.ratio
        if server is None or not server.is_ratio_measured or record.life.stage is not lives.LifeStage.ACTIVE:
            return before
        ratio = observe_ratio(before, progress, server.replicas, self._clock())
        if ratio.trainers_per_server != before.trainers_per_server:
            self._recorder.record_event("Resized", f"tj/{record.name}", "RatioMeasured", ratio.describe_change(before))
        return ratio

    def _judge_end(self, name: str, gone: DroppedPod) -> None:
        """Exit 0 is success only when there is nothing left to train."""
        record = self.records.get(name)
        if record is None or record.life.state is not JobState.ACTIVE:
            return  # it was deleted, or has ended, while its master was asked
        story = gone.story
        if gone.code == 0:
            if record.progress is not None and record.progress.is_trained:
                return  # it was told the end, while somebody saves or may still do so
            story += early_exit_problem(record.progress, has_servers=record.job.server is not None)
        self.handle_event(name, lives.TrainerFailed(pod=gone.pod.name, exit_description=story))

    def _note_loss(self, record: LocalJob, gone: DroppedPod) -> None:
        """Record what a server that was told to leave still held, unless its job is over."""
        goes_on = record.life.needs_model and any(
            not pod.is_leaving for pod in self._table.job_pods(record.name, Role.MASTER)
        )
        lost = loss_of(gone.code, gone.story) if goes_on and gone.code is not None else ""
        now = self.records[record.name].progress if record.name in self.records else None
        owned = dict(now.buckets) if now is not None else {}
        if lost and owned.get(gone.pod.ordinal) != 0:  # one that leaves gets no more, however old the count
            self._recorder.record_event("Job", f"tj/{record.name}", "ServerLost", f"{gone.pod.name}: {lost}")

    def _carry_out(self, name: str, effect: lives.LifeEffect) -> None:
        match effect:
            case lives.Announce():
                kind = "Failed" if effect.reason in {lives.JobEnding.FAILED, "TrainerFailed"} else "Job"
                self._recorder.record_event(kind, f"tj/{name}", effect.reason, effect.message)
            case lives.StopRole():
                for pod in self._table.job_pods(name, effect.role):
                    if not pod.is_leaving:
                        self._runtime.leave(pod.name, grace_s=pod.grace_s, why="its job is stopping")
            case lives.DropRecord():
                if not self._table.job_pods(name):
                    self.records.pop(name, None)
                    self._said.pop(name, None)
                    self._unanswered.discard(name)
                    self._errors.forget(JobName(name))
                    self._recorder.record_event("Job", f"tj/{name}", "Forgotten")
            case _:
                assert_never(effect)

    def _has_master(self, name: str) -> bool:
        return any(True for _ in self._masters(name))

    def _masters(self, name: str) -> Iterable[LocalPod]:
        return self._standing(name, Role.MASTER)

    def _standing(self, name: str, role: Role) -> Iterable[LocalPod]:
        return (
            pod
            for pod in self._table.job_pods(name, role)
            if pod.phase in {PodPhase.STARTING, PodPhase.READY} and pod.pid is not None
        )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
