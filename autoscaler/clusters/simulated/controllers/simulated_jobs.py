"""Training jobs of the simulated cluster: their working pods, and the samples that result.

A job trains while its master, all servers of its minimum and a trainer work.  `training_model` has the arithmetic.  A
job that has done its work is OVER: its processes end by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from autoscaler.clusters.simulated.controllers.training_model import TrainingProgress, TrainingWork
from autoscaler.clusters.simulated.world.run_recorder import JobRow
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.clusters.simulated.world.world import PodChange, World
from autoscaler.domain import Job, JobName, JobState, PodName, Role
from autoscaler.errors import InvalidSpecError


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedJob:
    """One job.  Terminating pods, and pods of a dead node, are neither `ready` nor `working`.

    Where servers can move their state, one that leaves works until it is gone.
    """

    job: Job
    progress: TrainingProgress
    pods: dict[PodName, SimPod] = field(default_factory=dict)
    ready: dict[Role, set[PodName]] = field(default_factory=lambda: {role: set() for role in Role})
    working: dict[Role, set[PodName]] = field(default_factory=lambda: {role: set() for role in Role})
    is_deleted: bool = False
    finish: int = 0  # the plan to finish that counts
    is_trainable: bool = False
    trainers: int = 0  # that worked at the last count


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """Samples that a job has trained, and the pods that train."""

    trained: float
    trainers: int
    servers: int


class SimulatedJobs:
    """All jobs by name.  `when_over` is called with each job that ends, before its pods terminate."""

    def __init__(self, world: World, when_over: Callable[[str], None]) -> None:
        self._world = world
        self._when_over = when_over
        self.by_name: dict[JobName, SimulatedJob] = {}
        world.listen(self.handle_pod_change)

    def submit(self, job: Job, work: TrainingWork) -> None:
        """Add the job.  Raises InvalidSpecError if its name is taken."""
        if job.name in self.by_name:
            raise InvalidSpecError(f"jobs.{job.name}", "this name is taken", "another name")
        submitted = replace(job, submitted_at_s=self._world.now_s)
        self.by_name[job.name] = SimulatedJob(job=submitted, progress=TrainingProgress(work))
        self._record(self.by_name[job.name])
        self._world.touch()

    def replace(self, job: Job) -> None:
        """Replace the job's spec: bounds, weight, state."""
        life = self.by_name[job.name]
        life.job = replace(job, submitted_at_s=life.job.submitted_at_s)
        self._recount(life)
        self._world.touch()

    def end(self, name: JobName, *, is_deleted: bool) -> None:
        """End the job and terminate its pods; a deleted job is forgotten with the last of them."""
        life = self.by_name[name]
        self._when_over(name)
        life.is_deleted = life.is_deleted or is_deleted
        life.job = replace(life.job, state=JobState.OVER)
        for pod in list(life.pods.values()):
            self._world.terminate(pod, grace_s=life.job.grace_s, reason="the job is over")
        self._forget_if_empty(life)
        self._world.touch()

    def report(self, name: JobName) -> TrainingReport:
        """Return what a master would tell of the job now."""
        life = self.by_name[name]
        life.progress.count(self._world.now_s)
        return TrainingReport(
            trained=life.progress.trained,
            trainers=len(life.working[Role.TRAINER]) if life.is_trainable else 0,
            servers=len(life.working[Role.SERVER]),
        )

    def record_all(self) -> None:
        """Record every job's samples as they are now."""
        for life in self.by_name.values():
            life.progress.count(self._world.now_s)
            self._record(life)

    def handle_pod_change(self, pod: SimPod, change: PodChange) -> None:
        """Update the job's ready and working pods."""
        if pod.is_external:
            return
        life = self.by_name[JobName(pod.owner)]
        match change:
            case PodChange.CREATED:
                life.pods[pod.name] = pod
            case PodChange.RUNNING:
                life.ready[pod.role].add(pod.name)
            case PodChange.WORKING:
                life.working[pod.role].add(pod.name)
                self._freeze_for(life, pod)
            case PodChange.LEAVING:
                self._handle_terminating(life, pod)
            case PodChange.STOPPED:
                self._stop(life, pod)
                self._subtract_lost_samples(life, pod)
            case PodChange.GONE:
                self._stop(life, pod)
                if not pod.was_drained:
                    self._subtract_lost_samples(life, pod)
                del life.pods[pod.name]
                self._forget_if_empty(life)
            case PodChange.BOUND:
                return
            case _:
                assert_never(change)
        self._recount(life)

    def _recount(self, life: SimulatedJob) -> None:
        """Set the job's speed by its working pods."""
        servers, trainers = len(life.working[Role.SERVER]), len(life.working[Role.TRAINER])
        life.is_trainable = (
            len(life.working[Role.MASTER]) >= min(1, life.job.master.replicas)
            and servers >= life.job.server_count
            and trainers > 0
            and life.job.state is JobState.ACTIVE
        )
        progress = life.progress
        samples_per_s = progress.work.curve.samples_per_s(trainers, servers) if life.is_trainable else 0.0
        if trainers != life.trainers and progress.work.resize_pause_s and life.trainers:
            progress.freeze(self._world.now_s + progress.work.resize_pause_s, self._world.now_s)
        life.trainers = trainers
        progress.set_speed(samples_per_s, self._world.now_s)
        self._plan_end(life)
        self._record(life)

    def _plan_end(self, life: SimulatedJob) -> None:
        done_at_s = life.progress.done_at_s(self._world.now_s)
        life.finish += 1
        if done_at_s is not None:
            self._world.timeline.at(done_at_s, partial(self._finish, life, life.finish))

    def _finish(self, life: SimulatedJob, finish: int) -> None:
        if life.finish == finish and life.job.state is JobState.ACTIVE:
            life.progress.count(self._world.now_s)
            self.end(life.job.name, is_deleted=False)

    def _stop(self, life: SimulatedJob, pod: SimPod) -> None:
        """Remove the pod from the working ones; count what is lost with it unless it hands over."""
        life.ready[pod.role].discard(pod.name)
        if pod.name not in life.working[pod.role]:
            return
        progress = life.progress
        if pod.role is Role.TRAINER:
            trainers = len(life.working[Role.TRAINER])
            pod.at_risk_samples = progress.samples_per_s / trainers * progress.work.in_flight_s
        elif pod.role is Role.SERVER:
            pod.at_risk_samples = progress.since_checkpoint(self._world.now_s)
        life.working[pod.role].discard(pod.name)

    def _handle_terminating(self, life: SimulatedJob, pod: SimPod) -> None:
        """The pod terminates; a server that hands over its state works until that is done."""
        if self._hands_over(pod):
            life.ready[pod.role].discard(pod.name)
        else:
            self._stop(life, pod)
        self._freeze_for(life, pod)

    def _subtract_lost_samples(self, life: SimulatedJob, pod: SimPod) -> None:
        life.progress.lose(pod.at_risk_samples, self._world.now_s)
        pod.at_risk_samples = 0.0

    def _hands_over(self, pod: SimPod) -> bool:
        """True if the pod is a server that works until its state has moved."""
        return pod.role is Role.SERVER and self._world.moves_servers

    def _freeze_for(self, life: SimulatedJob, pod: SimPod) -> None:
        """Freeze the job while a server comes or goes, since routes change."""
        if self._hands_over(pod):
            now_s = self._world.now_s
            life.progress.freeze(now_s + self._world.physics.server_freeze_s, now_s)

    def _forget_if_empty(self, life: SimulatedJob) -> None:
        if life.is_deleted and not life.pods:
            self.by_name.pop(life.job.name, None)

    def _record(self, life: SimulatedJob) -> None:
        row = JobRow(
            t_s=self._world.now_s,
            trainers=len(life.ready[Role.TRAINER]),
            servers=len(life.ready[Role.SERVER]),
            masters=len(life.ready[Role.MASTER]),
            is_trainable=life.is_trainable,
            samples_trained=life.progress.trained,
            samples_lost=life.progress.lost,
        )
        self._world.record.record_job(life.job.name, row)
