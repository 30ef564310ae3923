"""The records of all jobs: begun from what stands, and told what happens.

`jobs.life` decides what a life becomes.  What it asks for is read from its stage until it stands
(`record.leaving_roles`), so no effect can be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, assert_never

from autoscaler.clusters.kubernetes.objects.fields import part, parts
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import JobName, Role
from autoscaler.jobs import lifecycle as lives
from autoscaler.jobs.server_ratio import kept_in
from autoscaler.operator.controllers.ground import Ground
from autoscaler.operator.job.job_pods import roles_of
from autoscaler.operator.job.job_record import JobRecord
from autoscaler.operator.job.pod_termination import PodEnd
from autoscaler.operator.job.recovery import Found, checkpoint_at_s, restore, waits_since_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that a user should read: an event about the job.  `pod`: NAMESPACE/NAME, where one is concerned."""

    reason: str
    message: str
    is_warning: bool = False
    pod: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ears:
    """Who hears of what happens to jobs; none of them may block."""

    say: Callable[[KubeJob, Note], None]
    left: Callable[[KubeJob, Role, PodEnd], None]  # a pod leaves or has left; once each
    changed: Callable[[JobName], None]  # its status may have to be written
    touched: Callable[[], None]  # what the planner is told may have changed


class Records:
    """By name.  `wake` hears of jobs that should be looked at; `offset_s` takes Unix time to the clock."""

    def __init__(
        self,
        ground: Ground,
        ears: Ears,
        *,
        clock: Callable[[], float],
        offset_s: float,
        wake: Callable[[JobName], None],
    ) -> None:
        self.all: dict[JobName, JobRecord] = {}
        self._ground = ground
        self._ears = ears
        self._clock = clock
        self._offset_s = offset_s
        self._wake = wake

    def of(self, job: KubeJob) -> JobRecord:
        """The job's record: begun, or brought up to its spec as it is now."""
        record = self.all.get(job.key)
        if record is None or record.job.uid != job.uid:
            self.all[job.key] = self._begin(job)
            if job.is_deleting:
                self.tell(job, lives.DeleteAsked())
            self._wake(job.key)
        elif record.job is not job:
            policy = job.spec.run_policy
            self.all[job.key] = replace(record, job=job, life=replace(record.life, policy=policy))
            self.tell(job, lives.SuspendSet(on=policy.suspend))
            if job.is_deleting:
                self.tell(job, lives.DeleteAsked())
            self._wake(job.key)
        return self.all[job.key]

    def find(self, job: KubeJob) -> JobRecord | None:
        """The record of this very job, if it still has one."""
        record = self.all.get(job.key)
        return record if record is not None and record.job.uid == job.uid else None

    def change(self, job: KubeJob, **fields: Any) -> None:
        """Note something, if the job still has its record."""
        record = self.find(job)
        if record is not None:
            self.all[job.key] = replace(record, **fields)

    def tell(self, job: KubeJob, event: lives.Event) -> bool:
        """Let the job's life react.  True: nothing has to be kept of it any more."""
        record = self.find(job)
        if record is None:
            return False
        step = lives.handle(record.life, event, self._clock())
        if step.life != record.life:
            self.all[job.key] = replace(record, life=step.life)
            self._ears.changed(job.key)
            self._ears.touched()
            self._wake(job.key)
        is_done = False
        for effect in step.effects:
            match effect:
                case lives.Announce():
                    is_warning = effect.reason in {lives.Ending.FAILED, "TrainerFailed"}
                    self._ears.say(job, Note(reason=effect.reason, message=effect.message, is_warning=is_warning))
                case lives.StopRole():
                    pass  # read from the stage, until it stands
                case lives.Forget():
                    is_done = True
                case _:
                    assert_never(effect)
        return is_done

    def _begin(self, job: KubeJob) -> JobRecord:
        pods = self._ground.pods(job)
        found = Found(
            status=part(self._ground.raw(job.key) or {}, "status"),
            pods=pods,
            roles=roles_of(pods, has_master=self._ground.master(job) is not None),
        )
        life = restore(job, found, offset_s=self._offset_s, now_s=self._clock())
        now_s = self._clock()
        return JobRecord(
            job=job,
            life=life,
            ratio=kept_in(found.status),
            checkpoint_at_s=checkpoint_at_s(found.status, offset_s=self._offset_s, now_s=now_s),
            waiting_since_s=waits_since_s(job, found.status, offset_s=self._offset_s, now_s=now_s),
            resizes_before=tuple(parts(found.status, "resizes")),
        )
