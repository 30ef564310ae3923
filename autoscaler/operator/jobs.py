"""The lives of all TrainingJobs: their records, what they are told, and what is done about it.

`jobs.life` decides, `restoring` begins, `ends` says how a pod ended; this module feeds them with what the store shows
and carries out what they say.  It is level-triggered: what a life asks for is read from its stage and done until it
stands, so that a lost event or a refused write costs time alone.  Sizes are the planner's.

Failures are judged after one more question to the job's master, since a trainer that ends because the data has ended
has not failed.  A pod that has ended is taken away once it is judged, for its name is used again; the one that ended
its job stays until the status says so, so that an operator that dies between finds it and comes to the same end.  A
failure can thus be forgotten by a crash, and none is ever invented.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from autoscaler.clusters.kubernetes.api.port import Raw
from autoscaler.clusters.kubernetes.reading.jobs import KubeJob
from autoscaler.clusters.kubernetes.reading.raw import part, parts, text
from autoscaler.clusters.kubernetes.views import Facts
from autoscaler.domain import JobName, JobState, Role
from autoscaler.errors import ClusterError
from autoscaler.jobs import life as lives
from autoscaler.jobs.progress import JobProgress
from autoscaler.manifests.values import Mode
from autoscaler.operator.ends import By, PodEnd, end_of
from autoscaler.operator.ground import Ground
from autoscaler.operator.hands import Hands
from autoscaler.operator.record import (
    JobRecord,
    count_server_failure,
    facts_of,
    leaving_roles,
    news_of,
    next_look_at_s,
)
from autoscaler.operator.restoring import Found, restore
from autoscaler.operator.standing import has_ended, is_gated, is_leaving, role_of, roles_of, standing
from autoscaler.operator.trouble import blame

TICK_S: Final = 0.5
ASK_EVERY_S: Final = 2.0
LONGEST_ASK_PAUSE_S: Final = 16.0  # of a master that does not answer
AGAIN_S: Final = 5.0  # a deletion that has not shown by then is told once more
AT_ONCE: Final = 16  # masters asked, or ends judged, at the same time

Ask: TypeAlias = Callable[[KubeJob, Sequence[Raw]], Awaitable[tuple[str, JobProgress] | None]]

log = logging.getLogger(__name__)


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


class Jobs:
    """The records of all jobs, by name.  `ask` finds out how far a job is; None: its master does not answer."""

    def __init__(
        self,
        ground: Ground,
        hands: Hands,
        ears: Ears,
        *,
        ask: Ask,
        clock: Callable[[], float],
        offset_s: float,
        is_frozen: bool = False,
    ) -> None:
        self.records: dict[JobName, JobRecord] = {}
        self._ground = ground
        self._hands = hands
        self._ears = ears
        self._ask = ask
        self._clock = clock
        self._offset_s = offset_s
        self._is_frozen = is_frozen
        self._awake: set[JobName] = set()
        self._news = asyncio.Event()
        self._look_at_s: dict[JobName, float] = {}
        self._ask_at_s: dict[JobName, tuple[float, float]] = {}  # when, and the pause after that
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._judging: set[str] = set()  # UIDs of ended pods
        self._sent_away_s: dict[str, float] = {}  # by UID, those of the last seconds
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- what others ask ----------------------------------------------------------------------------------------

    def facts(self, job: KubeJob) -> Facts:
        """What the planner is told of the job, whose record begins with the first question."""
        return facts_of(self._record(job), self._clock())

    def wake(self, job: JobName) -> None:
        """Something of this job has changed."""
        self._awake.add(job)
        self._news.set()

    def note_told(self, job: JobName, pods: Sequence[str]) -> None:
        """EDL has told these pods (NAMESPACE/NAME) to leave, on the planner's word."""
        record = self.records.get(job)
        if record is None:
            return
        uids = {_uid(raw) for raw in self._ground.pods(record.job) if _name(raw) in pods}
        self.records[job] = replace(record, told=record.told | uids)

    async def run(self) -> None:
        """Let all jobs live until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_looking(), name="jobs: look")
                tasks.create_task(self._keep_asking(), name="jobs: ask the masters")
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def look(self, name: JobName) -> None:
        """Take in what stands of a job and do what its life asks for.  Raises ClusterError."""
        job = self._ground.jobs.get(name)
        if job is None:
            self._forget(name)
            return
        self._record(job)
        pods, master = self._ground.pods(job), self._ground.master(job)
        self._account(job, pods)
        for raw in pods:
            if has_ended(raw) and not is_leaving(raw):
                self._take_end(job, raw)
        self._tell(job, lives.Looked(roles=roles_of(pods, has_master=master is not None)))
        self._look_at_s[name] = next_look_at_s(self.records[name].life, self._clock())
        if self.may_write(job):
            await self._stop(job, pods, master)
            await self._clear_away(job, pods)
        self._ears.changed(name)

    async def ask(self, job: KubeJob) -> bool:
        """Bring the job's progress up to date; False when its master does not answer."""
        answer = await self._ask(job, standing(self._ground.pods(job), Role.MASTER))
        record = self.records.get(job.key)
        if answer is None or record is None or record.job.uid != job.uid:
            return False
        leader, progress = answer
        before = record.progress
        if before is not None and not progress.metrics:
            progress = replace(progress, metrics=before.metrics)  # those who reported them have left
        for reason, message in news_of(before, progress):
            self._ears.say(job, Note(reason=reason, message=message, is_warning=True))
        self.records[job.key] = replace(record, progress=progress, progress_at_s=self._clock(), leader=leader)
        if before is not None and progress.done > before.done:
            self._tell(job, lives.Advanced())
        if progress.has_failed:
            self._tell(job, lives.GivenUp(reason=progress.problem))
        elif progress.is_complete:
            self._tell(job, lives.EndReached(quarantined=progress.quarantined))
        self._ears.changed(job.key)
        return True

    def may_write(self, job: KubeJob) -> bool:
        """Whether EDL acts on the job, or only shows what it would do."""
        return not self._is_frozen and job.spec.mode is Mode.MANAGE

    # ---- records ------------------------------------------------------------------------------------------------

    def _record(self, job: KubeJob) -> JobRecord:
        record = self.records.get(job.key)
        if record is None or record.job.uid != job.uid:
            record = self.records[job.key] = self._begin(job)
            self.wake(job.key)
        elif record.job is not job:
            policy = job.spec.run_policy
            record = self.records[job.key] = replace(record, job=job, life=replace(record.life, policy=policy))
            self._tell(job, lives.SuspendSet(on=policy.suspend))
            if job.is_deleting:
                self._tell(job, lives.DeleteAsked())
            self.wake(job.key)
        return self.records[job.key]

    def _begin(self, job: KubeJob) -> JobRecord:
        pods = self._ground.pods(job)
        found = Found(
            status=part(self._ground.raw(job.key) or {}, "status"),
            pods=pods,
            roles=roles_of(pods, has_master=self._ground.master(job) is not None),
        )
        life = restore(job, found, offset_s=self._offset_s, now_s=self._clock())
        return JobRecord(job=job, life=life)

    def _forget(self, name: JobName) -> None:
        record = self.records.pop(name, None)
        if record is not None:
            self._spawn(self._hang_up(record.job), f"hang up on the master of {name}")
        self._look_at_s.pop(name, None)
        self._ask_at_s.pop(name, None)
        self._ears.changed(name)

    def _tell(self, job: KubeJob, event: lives.Event) -> None:
        """Let the job's life react; what it asks for is done by the next look."""
        record = self.records.get(job.key)
        if record is None or record.job.uid != job.uid:
            return
        step = lives.handle(record.life, event, self._clock())
        if step.life != record.life:
            self.records[job.key] = replace(record, life=step.life)
            self._ears.changed(job.key)
            self._ears.touched()
            self.wake(job.key)
        for effect in step.effects:
            match effect:
                case lives.Announce():
                    is_warning = effect.reason in {lives.Ending.FAILED, "TrainerFailed"}
                    self._ears.say(job, Note(reason=effect.reason, message=effect.message, is_warning=is_warning))
                case lives.StopRole():
                    pass  # read from the stage, until it stands (`leaving_roles`)
                case lives.Forget():
                    self._spawn(self._drop(job), f"drop {job.key}")
                case _:
                    assert_never(effect)

    # ---- pods ---------------------------------------------------------------------------------------------------

    def _account(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Tell once of each pod that is made to leave, and by whom; forget those that are gone."""
        record = self.records[job.key]
        standing_uids = frozenset(_uid(raw) for raw in pods)
        counted = record.counted & standing_uids
        for raw in pods:
            end, role = end_of(raw, record.told), role_of(raw)
            if end is None or role is None or end.by is By.ITSELF or end.uid in counted or end.node is None:
                continue
            counted |= {end.uid}
            self._ears.left(job, role, end)
        judged, told = record.judged & standing_uids, record.told & standing_uids
        if (counted, judged, told) != (record.counted, record.judged, record.told):
            self.records[job.key] = replace(record, counted=counted, judged=judged, told=told)

    def _take_end(self, job: KubeJob, raw: Raw) -> None:
        """A pod has ended by itself, or by its node."""
        record, role, uid = self.records[job.key], role_of(raw), _uid(raw)
        if uid in record.judged or uid in self._judging or role is None:
            return
        end = end_of(raw, record.told)
        if end is None or not end.is_failure or role is Role.MASTER or record.life.state is not JobState.ACTIVE:
            self.records[job.key] = replace(record, judged=record.judged | {uid})
            return
        if role is Role.TRAINER:
            self._tell(job, lives.TrainerEnded())
        self._judging.add(uid)
        self._spawn(self._judge(job, raw, role, end), f"judge the end of {end.pod}")

    async def _judge(self, job: KubeJob, raw: Raw, role: Role, end: PodEnd) -> None:
        """Find out why, and let the job's life know."""
        try:
            async with self._turn:
                if role is Role.TRAINER:
                    await self.ask(job)
                story = await self._story(job, raw, role, end)
            record = self.records.get(job.key)
            if record is None or record.job.uid != job.uid:
                return
            now_s = self._clock()
            trouble = blame(record.trouble, end.node, now_s) if end.node is not None else record.trouble
            record = replace(record, trouble=trouble, judged=record.judged | {end.uid})
            is_active = record.life.state is JobState.ACTIVE  # else it has ended while its master was asked
            self.records[job.key] = count_server_failure(record, now_s) if role is Role.SERVER else record
            if role is Role.TRAINER and is_active:
                self._ears.left(job, role, end)
                self._tell(job, lives.TrainerFailed(pod=raw["metadata"]["name"], story=story))
            elif role is Role.SERVER and is_active:
                message = f"parameter server {raw['metadata']['name']} {story}"
                self._ears.left(job, role, end)
                self._ears.say(job, Note(reason="ServerFailed", message=message, is_warning=True, pod=end.pod))
        finally:
            self._judging.discard(end.uid)
            self.wake(job.key)

    async def _story(self, job: KubeJob, raw: Raw, role: Role, end: PodEnd) -> str:
        story = end.story
        if end.code == 0 and role is Role.TRAINER:
            story += ", but data is left to train: a script ends when its loop over the session's data set ends"
        template = job.template(role)
        containers = parts(template.raw, "spec", "containers")
        lines = await self._hands.tail(raw, text(containers[template.container], "name"))
        return f"{story}; its last lines:\n{lines}" if lines else story

    async def _stop(self, job: KubeJob, pods: Sequence[Raw], master: Raw | None) -> None:
        """Let go what the job's life wants gone."""
        life = self.records[job.key].life
        roles = leaving_roles(life)
        for raw in pods:
            is_idle = is_gated(raw) and life.state is not JobState.ACTIVE
            is_unwanted = is_idle or (role_of(raw) in roles and role_of(raw) is not Role.MASTER)
            if is_unwanted and not is_leaving(raw) and not has_ended(raw):
                await self._send_away(job, raw)
        if master is not None and Role.MASTER in roles:
            await self._hands.delete_master(master)

    async def _send_away(self, job: KubeJob, raw: Raw) -> None:
        """Tell a pod to leave; again only if that has not shown for a while."""
        uid, now_s = _uid(raw), self._clock()
        if now_s < self._sent_away_s.get(uid, -AGAIN_S) + AGAIN_S:
            return
        record = self.records[job.key]
        self.records[job.key] = replace(record, told=record.told | {uid})
        await self._hands.delete_pod(raw)
        self._sent_away_s[uid] = now_s

    async def _clear_away(self, job: KubeJob, pods: Sequence[Raw]) -> None:
        """Take away the pods that have ended and are judged; while a failure is untold, those of trainers stay."""
        record = self.records[job.key]
        keeps_proof = record.life.ending is lives.Ending.FAILED and not self._is_failure_told(job)
        for raw in pods:
            if not has_ended(raw) or is_leaving(raw) or _uid(raw) not in record.judged:
                continue
            if not (keeps_proof and role_of(raw) is Role.TRAINER):
                await self._send_away(job, raw)

    def _is_failure_told(self, job: KubeJob) -> bool:
        conditions = parts(self._ground.raw(job.key) or {}, "status", "conditions")
        return any(text(one, "type") == "Failed" and one.get("status") == "True" for one in conditions)

    async def _drop(self, job: KubeJob) -> None:
        """The time after its end is over."""
        raw = self._ground.raw(job.key)
        if raw is None or raw["metadata"]["uid"] != job.uid or is_leaving(raw) or not self.may_write(job):
            return
        await self._hands.delete_job(raw)

    async def _hang_up(self, job: KubeJob) -> None:
        await self._ask(job, ())

    # ---- tasks --------------------------------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        while True:
            for name in self._due():
                try:
                    await self.look(name)
                except ClusterError as error:
                    log.warning("job %s: %s; trying again in %g s", name, error, TICK_S)
                    self._look_at_s[name] = self._clock()
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
        return sorted(names)

    async def _keep_asking(self) -> None:
        while True:
            now_s = self._clock()
            due = [job for name, job in self._asked().items() if now_s >= self._ask_at_s.get(name, (0.0, 0.0))[0]]
            await asyncio.gather(*(self._ask_in_turn(job) for job in due))
            await asyncio.sleep(TICK_S)

    def _asked(self) -> Mapping[JobName, KubeJob]:
        """Jobs whose masters may have something to say."""
        return {name: record.job for name, record in self.records.items() if record.life.stage is not lives.Stage.OVER}

    async def _ask_in_turn(self, job: KubeJob) -> None:
        async with self._turn:
            is_answered = await self.ask(job)
        _, pause_s = self._ask_at_s.get(job.key, (0.0, ASK_EVERY_S))
        pause_s = ASK_EVERY_S if is_answered else min(2 * pause_s, LONGEST_ASK_PAUSE_S)
        if job.key in self.records:
            self._ask_at_s[job.key] = (self._clock() + pause_s, pause_s)

    def _spawn(self, work: Awaitable[None], name: str) -> None:
        task = asyncio.ensure_future(_logged(work, name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(work: Awaitable[None], name: str) -> None:
    """A piece of work that may fail: the next look begins it again."""
    try:
        await work
    except ClusterError as error:
        log.warning("%s: %s", name, error)


def _uid(raw: Raw) -> str:
    uid: str = raw["metadata"]["uid"]
    return uid


def _name(raw: Raw) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
