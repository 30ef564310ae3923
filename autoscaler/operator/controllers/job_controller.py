"""Lets all TrainingJobs live: tells their lives what the store shows, and does what they ask for.

`jobs.life` decides, `records` keeps, `failures` judges pods that ended, `rounds` asks; this module looks at what
stands.  It is level-triggered: what a life asks for is read from its stage and done until it stands, so that a lost
event or a refused write costs time alone.  Sizes are the planner's.

A pod that has ended is taken away once it is judged, for its name is used again; the one that ended its job stays until
the status says so, so that an operator that dies between finds it and comes to the same end (ADR 0152).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from autoscaler.bounded_gather import each
from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.cluster_view import Facts
from autoscaler.clusters.kubernetes.objects.fields import key_of, parts, text, whole
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import JobName, JobState, Role
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import JobErrors, Step
from autoscaler.jobs import lifecycle as lives
from autoscaler.jobs.answers import MalformedAnswer, NoAnswer, NoProgress
from autoscaler.jobs.progress import JobProgress, follow, news_of
from autoscaler.jobs.server_ratio import Ratio, observe
from autoscaler.manifests.api_types import Mode
from autoscaler.operator.controllers.ground import Ground
from autoscaler.operator.controllers.job_store import Ears, Note, Records
from autoscaler.operator.controllers.job_writer import Hands
from autoscaler.operator.controllers.master_count import MasterCount
from autoscaler.operator.controllers.pod_failures import Failures, uncounted
from autoscaler.operator.controllers.progress_poller import Rounds, rest_after
from autoscaler.operator.job.job_pods import (
    grace_beyond,
    has_ended,
    is_gated,
    is_leaving,
    role_of,
    roles_of,
    standing,
    uid_of,
)
from autoscaler.operator.job.job_record import (
    JobRecord,
    facts_of,
    leaving_roles,
    next_look_at_s,
    owning_of,
    waiting_since_s,
)
from autoscaler.operator.job.pod_termination import By, end_of

TICK_S: Final = 0.5
AGAIN_S: Final = 5.0  # a deletion that has not shown by then is told once more
AT_ONCE: Final = 16  # pods told to leave at the same time

Ask: TypeAlias = Callable[[KubeJob, Sequence[Raw]], Awaitable[tuple[str, JobProgress] | NoAnswer]]

log = logging.getLogger(__name__)


class Jobs:
    """All jobs.  `ask` finds out how far a job is: which of these masters leads and what it says.

    `reading_s`: what it took of a core to read that.

    With `is_frozen` nothing is written for any of them.
    """

    def __init__(
        self,
        ground: Ground,
        hands: Hands,
        ears: Ears,
        *,
        ask: Ask,
        reading_s: Callable[[KubeJob], float],
        clock: Callable[[], float],
        offset_s: float,
        errors: JobErrors,
        is_frozen: bool = False,
    ) -> None:
        self._ground = ground
        self._hands = hands
        self._ears = ears
        self._ask = ask
        self._reading_s = reading_s
        self._clock = clock
        self._is_frozen = is_frozen
        self._errors = errors
        self._records = Records(ground, ears, clock=clock, offset_s=offset_s, wake=self.wake)
        self.failures = Failures(
            self._records,
            hands,
            ears,
            ask=self.ask,
            rest_s=lambda job: self._rested_at_s.get(job.key, 0.0) - self._clock(),
            clock=clock,
            wake=self.wake,
            errors=errors,
        )
        self._masters = MasterCount(hands, ears, clock=clock)
        self._awake: set[JobName] = set()
        self._news = asyncio.Event()
        self._look_at_s: dict[JobName, float] = {}
        self._rested_at_s: dict[JobName, float] = {}  # until then its master is left alone
        self._sent_away_s: dict[str, float] = {}  # by UID, those of the last seconds
        self._rounds = Rounds(
            ask=self.ask,
            hang_up=lambda job: self._ask(job, ()),
            jobs=self._asked,
            rest_s=self._rest_s,
            clock=clock,
            errors=errors,
        )

    # ---- what others ask ----------------------------------------------------------------------------------------

    @property
    def records(self) -> Mapping[JobName, JobRecord]:
        """What is kept of each job."""
        return self._records.all

    def facts(self, job: KubeJob) -> Facts:
        """What the planner is told of the job, whose record begins with the first question."""
        return facts_of(self._records.of(job), self._clock())

    def wake(self, job: JobName) -> None:
        """Something of this job has changed."""
        self._awake.add(job)
        self._news.set()

    def note_told(self, job: JobName, pods: Sequence[str]) -> None:
        """EDL is about to tell these pods (NAMESPACE/NAME) to leave, on the planner's word."""
        record = self.records.get(job)
        if record is not None:
            uids = {uid_of(raw) for raw in self._ground.pods(record.job) if key_of(raw) in pods}
            self._records.change(record.job, told=record.told | uids)

    def give_up(self, job: KubeJob, reason: str) -> None:
        """The job fails, with these words."""
        self._records.tell(job, lives.GivenUp(reason=reason))

    def may_write(self, job: KubeJob) -> bool:
        """Whether EDL acts on the job, or only shows what it would do."""
        return not self._is_frozen and job.spec.mode is Mode.MANAGE

    async def run(self) -> None:
        """Let all jobs live until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_looking(), name="jobs: look")
                tasks.create_task(self._rounds.run(), name="jobs: ask the masters")
        finally:
            await self.failures.close()

    # ---- one job ------------------------------------------------------------------------------------------------

    async def look(self, name: JobName) -> None:
        """Take in what stands of a job and do what its life asks for.  Raises ClusterError."""
        job = self._ground.jobs.get(name)
        if job is None:
            self._forget(name)
            return
        self._records.of(job)
        pods, master = self._ground.pods(job), self._ground.master(job)
        self._account(job, pods)
        for raw in pods:
            if has_ended(raw) and is_leaving(raw):
                self.failures.tell_end(job, raw)
            elif has_ended(raw):
                self.failures.take(job, raw)
        is_done = self._records.tell(job, lives.Looked(roles=roles_of(pods, has_master=master is not None)))
        self._note_waiting(job, has_started=master is not None)
        self._look_at_s[name] = next_look_at_s(self.records[name].life, self._clock())
        if self.may_write(job):
            await self._stop(job, pods, master)
            await self._clear_away(job, pods)
            if is_done:
                await self._drop(job)
            elif master is not None and self.records[name].life.state is JobState.ACTIVE:
                await self._masters.keep(job, master)
            await self._hold_to_grace(job, pods)  # last: where it is refused, the rest is done
        self._ears.changed(name)

    def _note_waiting(self, job: KubeJob, *, has_started: bool) -> None:
        if (record := self._records.find(job)) is not None:
            managed, now_s = self.may_write(job), self._clock()
            since_s = waiting_since_s(record, has_started=has_started, is_managed=managed, now_s=now_s)
            self._records.change(job, waiting_since_s=since_s)

    async def ask(self, job: KubeJob) -> bool:
        """Bring the job's progress up to date; False when its master does not say how far it is."""
        answer = await self._ask(job, standing(self._ground.pods(job), Role.MASTER))
        record = self._records.find(job)
        if record is None:
            return False
        self._rested_at_s[job.key] = self._clock() + self._rest_s(job)
        if not isinstance(answer, tuple):
            self._take_no_answer(record, answer)
            return False
        leader, progress = answer
        before = record.progress
        progress = follow(before, progress)
        for reason, message in news_of(before, progress, goes_on=record.life.state is JobState.ACTIVE):
            self._ears.say(job, Note(reason=reason, message=message, is_warning=True))
        owning = owning_of(record, self._clock())
        spared = record.spared | uncounted(job, standing(self._ground.pods(job), Role.SERVER), progress)
        self._records.change(
            job,
            progress=progress,
            progress_at_s=self._clock(),
            quiet=None,
            checkpoint_at_s=_checkpoint_at_s(record, progress, self._clock()),
            leader=leader,
            spared=spared,
            ratio=self._measure(record, progress),
        )
        if owning_of(self.records[job.key], self._clock()) != owning:
            self._ears.touched()  # a server that waited for that may take another's place
        if before is not None and progress.done > before.done:
            self._records.tell(job, lives.Advanced())
        if progress.has_failed:
            self._records.tell(job, lives.GivenUp(reason=progress.problem))
        elif progress.is_complete:
            self._records.tell(job, lives.EndReached(quarantined=progress.quarantined))
        self._ears.changed(job.key)
        return True

    def _rest_s(self, job: KubeJob) -> float:
        """How long its masters are left alone after what one of them said last."""
        return rest_after(self._reading_s(job), pods=len(self._ground.pods(job)))

    def _take_no_answer(self, record: JobRecord, answer: NoAnswer) -> None:
        """No word of how far the job is: once that lasts its status says so, in place of what was said last.

        That its master answers what cannot be is told at once, and once.
        """
        now_s, problem = self._clock(), answer.problem if isinstance(answer, MalformedAnswer) else ""
        self._records.change(
            record.job,
            refused_at_s=record.refused_at_s if answer is NoProgress.SILENT else now_s,
            quiet=answer,
            quiet_since_s=now_s if record.quiet is None else record.quiet_since_s,
        )
        if record.progress is not None or answer != record.quiet:  # else it says NoAnswer, as before
            self._ears.changed(record.job.key)
        if problem and answer != record.quiet:
            told = f"its master's answer is not taken: {problem}"
            self._ears.say(record.job, Note(reason="MalformedAnswer", message=told, is_warning=True))

    def _measure(self, record: JobRecord, progress: JobProgress) -> Ratio:
        """How many trainers one of its servers is to serve from now on."""
        server, before = record.job.spec.server, record.ratio
        if server is None or not server.is_ratio_measured or record.life.state is not JobState.ACTIVE:
            return before
        ratio = observe(before, progress, server.replicas, self._clock())
        if ratio.trainers_per_server != before.trainers_per_server:
            self._ears.say(record.job, Note(reason="RatioMeasured", message=ratio.tell(before)))
            self._ears.touched()
        return ratio

    def _forget(self, name: JobName) -> None:
        record = self._records.all.pop(name, None)
        if record is not None:
            self._rounds.forget(record.job)
        self._look_at_s.pop(name, None)
        self._rested_at_s.pop(name, None)
        self.failures.forget(name)
        self._ears.changed(name)

    def _account(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Tell once of each pod that is made to leave, and by whom; forget those that are gone."""
        record = self.records[job.key]
        there = frozenset(uid_of(raw) for raw in pods)
        counted = record.counted & there
        for raw in pods:
            end, role = end_of(raw, record.told), role_of(raw)
            if end is None or role is None or end.by is By.ITSELF or end.uid in counted or end.node is None:
                continue
            counted |= {end.uid}
            self._ears.left(job, role, end)
        judged, told, spared = record.judged & there, record.told & there, record.spared & there
        if (counted, judged, told, spared) != (record.counted, record.judged, record.told, record.spared):
            self._records.change(job, counted=counted, judged=judged, told=told, spared=spared)

    # ---- writes -------------------------------------------------------------------------------------------------

    async def _stop(self, job: KubeJob, pods: Sequence[Raw], master: Raw | None) -> None:
        """Let go what the job's life wants gone."""
        life = self.records[job.key].life
        roles = leaving_roles(life)
        unwanted = []
        for raw in pods:
            is_idle = is_gated(raw) and life.state is not JobState.ACTIVE
            is_unwanted = is_idle or (role_of(raw) in roles and role_of(raw) is not Role.MASTER)
            if is_unwanted and not is_leaving(raw) and not has_ended(raw):
                unwanted.append(raw)
        await self._send_away(job, unwanted)
        if master is not None and Role.MASTER in roles:
            await self._hands.delete_master(master)

    async def _hold_to_grace(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Nobody leaves for longer than the pod's own spec gives."""
        now_s = self._clock()
        for raw in pods:
            grace_s = None if has_ended(raw) else grace_beyond(raw)
            if grace_s is None or now_s < self._sent_away_s.get(uid_of(raw), -AGAIN_S) + AGAIN_S:
                continue
            self._sent_away_s[uid_of(raw)] = now_s
            await self._hands.shorten_grace(raw, grace_s)
            message = f"somebody told it to leave within {whole(raw, 'metadata', 'deletionGracePeriodSeconds')} s; "
            message += f"its terminationGracePeriodSeconds is {grace_s}, which holds again"
            self._ears.say(job, Note(reason="GraceRestored", message=message, pod=key_of(raw), is_warning=True))

    async def _clear_away(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Take away the pods that have ended and are judged; while a failure is untold, those of trainers stay."""
        record = self.records[job.key]
        keeps_proof = record.life.ending is lives.Ending.FAILED and not self._is_failure_told(job)
        judged = [raw for raw in pods if has_ended(raw) and not is_leaving(raw) and uid_of(raw) in record.judged]
        await self._send_away(job, [raw for raw in judged if not (keeps_proof and role_of(raw) is Role.TRAINER)])

    async def _send_away(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Tell pods to leave, several at a time; one again only if that has not shown for a while."""
        now_s = self._clock()
        due = [raw for raw in pods if now_s >= self._sent_away_s.get(uid_of(raw), -AGAIN_S) + AGAIN_S]
        if due:
            self._records.change(job, told=self.records[job.key].told | {uid_of(raw) for raw in due})
            await each((partial(self._send_one_away, raw) for raw in due), at_once=AT_ONCE)

    async def _send_one_away(self, raw: Raw) -> None:
        await self._hands.delete_pod(raw)
        self._sent_away_s[uid_of(raw)] = self._clock()

    async def _drop(self, job: KubeJob) -> None:
        """The time after its end is over."""
        raw = self._ground.raw(job.key)
        if raw is not None and uid_of(raw) == job.uid and not is_leaving(raw):
            await self._hands.delete_job(raw)

    def _is_failure_told(self, job: KubeJob) -> bool:
        conditions = parts(self._ground.raw(job.key) or {}, "status", "conditions")
        return any(text(one, "type") == "Failed" and one.get("status") == "True" for one in conditions)

    # ---- tasks --------------------------------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        while True:
            for name in self._due():
                try:
                    with self._errors.around(name, Step.LIFE):
                        await self.look(name)
                except ClusterError as error:
                    log.warning("job %s: %s; trying again in %g s", name, error, TICK_S)
                    self._look_at_s[name] = self._clock()
                if again_at_s := self._errors.again_at_s(name, Step.LIFE):
                    self._look_at_s[name] = again_at_s
                await asyncio.sleep(0)  # others have their turn
            try:
                async with asyncio.timeout(TICK_S):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()

    def _due(self) -> list[JobName]:
        now_s = self._clock()
        self._sent_away_s = {uid: at_s for uid, at_s in self._sent_away_s.items() if now_s < at_s + AGAIN_S}
        names, self._awake = self._awake, set()
        names |= {name for name, at_s in self._look_at_s.items() if now_s >= at_s}
        paused = {name for name in names if self._errors.is_paused(name, Step.LIFE)}
        self._look_at_s |= {name: self._errors.again_at_s(name, Step.LIFE) for name in paused}
        return sorted(names - paused)

    def _asked(self) -> list[KubeJob]:
        """Jobs whose masters may have something to say, and do not rest, whatever they were asked for last."""
        now_s, living = self._clock(), (one for one in self.records.values() if one.life.stage is not lives.Stage.OVER)
        return [one.job for one in living if now_s >= self._rested_at_s.get(one.job.key, 0.0)]


def _checkpoint_at_s(record: JobRecord, progress: JobProgress, now_s: float) -> float:
    """When the job's last checkpoint was committed; where its master does not know, what was known before stands."""
    return record.checkpoint_at_s if progress.checkpoint_age_s is None else now_s - progress.checkpoint_age_s
