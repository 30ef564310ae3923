"""Poller of the jobs' masters, for their progress.

An answering master is polled every `POLL_EVERY_S`; a silent one less and less often, within a separate concurrency
limit.  When many masters fall silent at once (a network partition), each still times out once within the limit of
answering masters, so that limit is large.  A user may run any program as master, and decoding a huge answer takes
seconds of CPU; after such an answer the master is not polled for a while, so that a job's cost stays proportional to
its pods (A11).

Not here: how a master is polled (`master_client`), what a pod's end means (`pod_failures`).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import key_of, text, to_time
from autoscaler.clusters.kubernetes.objects.labels import COMPARE
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob, has_devices
from autoscaler.domain import JobName, JobState, PodName, Role
from autoscaler.fault_isolation import GuardedTask
from autoscaler.jobs import life_events
from autoscaler.jobs import lifecycle as lives
from autoscaler.jobs.idle_report import idle_events
from autoscaler.jobs.progress import (
    JobProgress,
    MalformedAnswer,
    MissingAnswer,
    WhyNoAnswer,
    merge_progress,
)
from autoscaler.jobs.progress_events import progress_events
from autoscaler.jobs.server_ratio import ServerRatio, observe_ratio
from autoscaler.jobs.standstill import (
    awaited_text,
    is_standstill_told,
    observe_standstill,
    standstill_text,
    takes_part,
)
from autoscaler.jobs.throughput_watch import ThroughputWatch, observe_throughput
from autoscaler.jobs.trainer_ledger import Device, TrainerVerdict, judge_all, observe_ledger
from autoscaler.operator.controllers.master_client import MasterClient
from autoscaler.operator.controllers.server_drain import ServerDrains
from autoscaler.operator.job.job_pods import active_pods, is_starting, names_of, role_of, waiting_reasons
from autoscaler.operator.job.job_record import JobRecord, bucket_owners_of, emptied_servers, released_servers
from autoscaler.operator.job.throughput_status import setting_of
from autoscaler.operator.store.event_recorder import JobEvent
from autoscaler.operator.store.job_store import JobStore

TICK_S: Final = 0.5
POLL_EVERY_S: Final = 2.0
LONGEST_PAUSE_S: Final = 16.0  # of a master that does not answer
CONCURRENT_ANSWERING: Final = 64  # masters that answered when they were asked last: many may fall silent together
CONCURRENT_SILENT: Final = (
    48  # the others, behind a semaphore of their own: two hundred silent ones keep nobody waiting
)
POLL_LIMIT_S: Final = 5.0  # of the whole question: up to three masters, a second each, and the job's Secrets

DECODE_SHARE: Final = 1 / 200
"""Share of a CPU core for decoding one job's answers; a job of `PODS_PER_SHARE` pods gets twice as much."""

PODS_PER_SHARE: Final = 25

log = logging.getLogger(__name__)


class ProgressPoller:
    """Keeps the progress in every job's record up to date."""

    def __init__(
        self,
        store: JobStore,
        masters: MasterClient,
        drains: ServerDrains,
        *,
        poll_every_s: float = POLL_EVERY_S,
        tick_s: float = TICK_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self._poll_every_s = poll_every_s
        self._longest_pause_s = longest_pause_s
        self._tick_s = tick_s
        self._store = store
        self._masters = masters
        self._drains = drains
        self._next: dict[JobName, tuple[float, float]] = {}  # when, and the pause after that
        self._paused_until_s: dict[JobName, float] = {}  # until then the job's master is left alone
        self._answering = asyncio.Semaphore(CONCURRENT_ANSWERING)
        self._silent = asyncio.Semaphore(CONCURRENT_SILENT)
        self._under_way: set[JobName] = set()  # polled now, or waiting for its turn
        self._closing: list[KubeJob] = []  # whose connections are still to be closed

    def forget(self, job: KubeJob) -> None:
        """Close the connections to a deleted job's masters once no poll is in flight."""
        self._next.pop(job.key, None)
        self._paused_until_s.pop(job.key, None)
        self._closing.append(job)

    def pause_left_s(self, job: KubeJob) -> float:
        """Seconds until the job's master may be polled again; 0 or less: now."""
        return self._paused_until_s.get(job.key, 0.0) - self._store.clock()

    async def run(self) -> None:
        """Poll until cancelled.  A fault with one job's question is that job's (`fault_isolation`)."""
        errors = self._store.errors
        async with asyncio.TaskGroup() as polls:
            while True:
                now_s = self._store.clock()
                for job in self.pollable():
                    is_due = now_s >= self._next.get(job.key, (0.0, 0.0))[0]
                    if is_due and job.key not in self._under_way and not errors.is_paused(job.key, GuardedTask.POLL):
                        self._under_way.add(job.key)
                        work = errors.attempt_async(job.key, GuardedTask.POLL, partial(self._poll_in_turn, job))
                        polls.create_task(work).add_done_callback(partial(_discard, self._under_way, job.key))
                for job in [job for job in self._closing if job.key not in self._under_way]:
                    self._closing.remove(job)
                    with errors.isolate(job.key, GuardedTask.CLOSE):
                        await self._masters.close(job)
                await asyncio.sleep(self._tick_s)

    def pollable(self) -> list[KubeJob]:
        """Jobs whose masters are due for a poll."""
        now_s, records = self._store.clock(), self._store.records.values()
        living = (one.job for one in records if one.life.stage is not lives.LifeStage.OVER)
        return [job for job in living if now_s >= self._paused_until_s.get(job.key, 0.0)]

    async def poll(self, job: KubeJob) -> bool:
        """Poll the job's master and update its progress; False if it gave none."""
        masters = active_pods(self._store.objects.pods(job), Role.MASTER)
        wish = text(self._store.objects.raw(job.key) or {}, "metadata", "annotations", COMPARE)
        answer = await self._masters.poll(job, masters, comparison=wish)
        if isinstance(answer, tuple):
            leader, progress = answer
            answer = leader, await self._drains.apply_count(job, masters, leader, progress)
        record = self._store.find(job)
        if record is None:
            return False
        self._paused_until_s[job.key] = self._store.clock() + self._pause_s(job)
        if not isinstance(answer, tuple):
            self._handle_no_answer(record, answer)
            return False
        self._handle_progress(record, *answer)
        return True

    async def _poll_in_turn(self, job: KubeJob) -> None:
        is_answered = False
        _, pause_s = self._next.get(job.key, (0.0, 0.0))
        answered_last = pause_s == self._poll_every_s  # the shortest pause
        turn = self._answering if answered_last else self._silent
        try:
            async with turn, asyncio.timeout(POLL_LIMIT_S):
                is_answered = await self.poll(job)
        except TimeoutError:
            log.debug("job %s: no answer within %g s", job.key, POLL_LIMIT_S)
        every_s = self._poll_every_s
        pause_s = every_s if is_answered else min(2 * max(pause_s, every_s), self._longest_pause_s)
        if all(gone.uid != job.uid for gone in self._closing):
            self._next[job.key] = (self._store.clock() + max(pause_s, self._pause_s(job)), pause_s)

    def _pause_s(self, job: KubeJob) -> float:
        """Return how long the job's masters are left alone after their last answer."""
        return pause_after(self._masters.decode_s(job), pods=len(self._store.objects.pods(job)))

    def _handle_progress(self, record: JobRecord, leader: str, progress: JobProgress) -> None:
        store, job, before, now_s = self._store, record.job, record.progress, self._store.clock()
        progress = merge_progress(before, progress)
        for reason, message in progress_events(before, progress, is_active=record.life.state is JobState.ACTIVE):
            store.events.emit(job, JobEvent(reason=reason, message=message, is_warning=True))
        owning = bucket_owners_of(record, now_s)
        servers = [raw for raw in store.objects.pods(job) if role_of(raw) is Role.SERVER]
        store.change(
            job,
            progress=progress,
            progress_at_s=now_s,
            polled_at_s=now_s,
            missing_answer=None,
            checkpoint_at_s=_checkpoint_at_s(record, progress, now_s),
            leader=leader,
            released=record.released
            | released_servers(job, active_pods(store.objects.pods(job), Role.SERVER), progress),
            emptied=emptied_servers(record, servers, progress),
            ratio=self._measure_ratio(record, progress),
            throughput=self._measure_throughput(record, progress),
        )
        self._judge_trainers(record, progress)
        self._watch_standstill(record, progress)
        if bucket_owners_of(store.records[job.key], now_s) != owning:
            store.request_plan()  # a waiting replacement server may be complete now
        if before is not None and progress.done > before.done:
            store.handle(job, life_events.BatchesCompleted())
        if progress.has_failed:
            reason = life_events.FailureReason.GIVEN_UP
            if progress.is_over_backoff_limit:
                reason = life_events.FailureReason.BACKOFF_LIMIT_EXCEEDED
            store.handle(job, life_events.GivenUp(reason=reason, message=progress.problem))
        elif progress.is_complete:
            store.handle(job, _end_of(progress))
        store.to_write_status.add(job.key)

    def _handle_no_answer(self, record: JobRecord, answer: MissingAnswer) -> None:
        """Record since when no progress is known; emit one event for a malformed answer."""
        store, now_s = self._store, self._store.clock()
        problem = answer.problem if isinstance(answer, MalformedAnswer) else ""
        store.change(
            record.job,
            polled_at_s=now_s,
            refused_at_s=record.refused_at_s if answer is WhyNoAnswer.SILENT else now_s,
            missing_answer=answer,
            unanswered_since_s=now_s if record.missing_answer is None else record.unanswered_since_s,
        )
        self._set_still(record, ())  # whoever is not heard of works
        if record.progress is not None or answer != record.missing_answer:  # else the status says NoAnswer, as before
            store.to_write_status.add(record.job.key)
        if problem and answer != record.missing_answer:
            message = f"the job's master sent an invalid status: {problem}"
            store.events.emit(record.job, JobEvent(reason="MalformedAnswer", message=message, is_warning=True))

    def _judge_trainers(self, record: JobRecord, progress: JobProgress) -> None:
        """Follow the ledger of the job's trainers; report those that have become idle or hung."""
        store, job = self._store, record.job
        is_group, window_s = job.spec.group is not None, store.idle_window_s(job)
        ledger = observe_ledger(record.ledger, progress, store.clock(), is_group=is_group, window_s=window_s)
        store.change(job, ledger=ledger)
        active = active_pods(store.objects.pods(job), Role.TRAINER)
        keys = {text(raw, "metadata", "name"): PodName(key_of(raw)) for raw in active}
        devices = {name: store.devices[key] for name, key in keys.items() if key in store.devices}
        default = Device.UNKNOWN if has_devices(job, Role.TRAINER) else Device.NONE
        found = judge_all(ledger, window_s=window_s, devices=devices, default=default)
        self._set_still(record, tuple(one for one in found if one.name in keys))

    def _watch_standstill(self, record: JobRecord, progress: JobProgress) -> None:
        """Follow since when no trainer of the job takes part; emit one event once that has lasted.

        Nothing is told while a trainer pod that came since then is starting, up to its `STARTING_S`.
        """
        store, job, now_s = self._store, record.job, self._store.clock()
        before_s, started_at_s = record.standstill_since_s, record.life.started_at_s
        if before_s is not None and started_at_s is not None and before_s < started_at_s:
            before_s = None  # of before a suspension
        is_active = record.life.state is JobState.ACTIVE
        since_s = observe_standstill(before_s, progress, now_s) if is_active else None
        pods = active_pods(store.objects.pods(job), Role.TRAINER)
        took_part_at_s = now_s if any(map(takes_part, progress.ledger)) else record.took_part_at_s
        is_recovered = record.progress is None  # what an earlier leader has written is what it has told
        was_told = before_s is not None and (
            is_recovered or (is_standstill_told(before_s, record.progress_at_s) and not record.is_start_awaited)
        )
        now_unix_s, after_unix_s = now_s - store.offset_s, took_part_at_s - store.offset_s
        starting = (is_starting(raw, now_unix_s=now_unix_s, after_unix_s=after_unix_s) for raw in pods)
        is_awaited = since_s is not None and not was_told and any(starting)
        store.change(job, standstill_since_s=since_s, is_start_awaited=is_awaited, took_part_at_s=took_part_at_s)
        if since_s is None or was_told or is_awaited or not is_standstill_told(since_s, now_s):
            return
        decision = store.plan_report_of(job.key).decision
        scaling = "" if decision is None else decision.message
        awaited = awaited_text(progress, names_of(pods), scaling, waiting_reasons(pods))
        since = f"since {to_time(since_s - store.offset_s)}"
        message = f"{standstill_text(since, progress)}. {awaited}"
        store.events.emit(job, JobEvent(reason="NoTrainer", message=message, is_warning=True))

    def _set_still(self, record: JobRecord, still: tuple[TrainerVerdict, ...]) -> None:
        store, job = self._store, record.job
        if still == record.still:
            return
        store.change(job, still=still)
        if record.life.state is JobState.ACTIVE:
            texts = idle_events(record.still, still, format_since=lambda since_s: to_time(since_s - store.offset_s))
            for reason, message in texts:
                store.events.emit(job, JobEvent(reason=reason, message=message, is_warning=True))
        store.to_write_status.add(job.key)
        store.request_plan()

    def _measure_ratio(self, record: JobRecord, progress: JobProgress) -> ServerRatio:
        """Return how many trainers one server of the job is to serve from now on."""
        server, before = record.job.spec.server, record.ratio
        if server is None or not server.is_ratio_measured or record.life.state is not JobState.ACTIVE:
            return before
        ratio = observe_ratio(before, progress, server.replicas, self._store.clock())
        if ratio.trainers_per_server != before.trainers_per_server:
            self._store.events.emit(record.job, JobEvent(reason="RatioMeasured", message=ratio.describe_change(before)))
            self._store.request_plan()
        return ratio

    def _measure_throughput(self, record: JobRecord, progress: JobProgress) -> ThroughputWatch:
        """Return what is known of the job's throughput by size; a new curve is planned with."""
        store, job, before = self._store, record.job, record.throughput
        trainers = active_pods(store.objects.pods(job), Role.TRAINER)
        labels = store.objects.labels_of({text(raw, "spec", "nodeName") for raw in trainers})
        now_s = store.clock()
        watch = observe_throughput(
            before,
            progress,
            setting=setting_of(job, trainers, labels),
            now_s=now_s,
            unix_s=now_s - store.offset_s,
        )
        if watch.curve != before.curve:
            store.request_plan()
        return watch


def pause_after(decode_s: float, *, pods: int) -> float:
    """Pause before the next poll, by the last answer's decode time and the job's number of pods."""
    return decode_s / (DECODE_SHARE * (1 + pods / PODS_PER_SHARE))


def _checkpoint_at_s(record: JobRecord, progress: JobProgress, now_s: float) -> float:
    """Return when the last checkpoint was committed; if the master does not know, the earlier value is kept."""
    return record.checkpoint_at_s if progress.checkpoint_age_s is None else now_s - progress.checkpoint_age_s


def _discard(under_way: set[JobName], job: JobName, _task: asyncio.Task[None]) -> None:
    under_way.discard(job)


def _end_of(progress: JobProgress) -> life_events.EndReached:
    return life_events.EndReached(
        trained_text=progress.trained_text,
        is_stopped=progress.stopped_at is not None,
        quarantined=progress.quarantined,
        is_model_kept=progress.is_model_kept,
    )
