"""A campaign: jobs one after another, faults at random points of them, and at the end of each job its ledger's verdict.

A fault counts when it landed and the job recovered: everybody serves again and more is trained than at any moment since
the fault.  All that is random comes from one seed; what the machine makes of it is not repeatable, of course.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from autoscaler.clusters.local.run_files.run_journal import RunEvent
from autoscaler.jobs.lifecycle import JobEnding
from master.api.identities import MemberRole
from master.api.master_status import JobPhase, JobStatus
from tests.chaos.campaign_totals import CampaignTotals
from tests.chaos.chaos_run import MOST_WEB, POLL_S, ChaosJobShape, ChaosRun
from tests.chaos.fault_injector import Fault, FaultInjector, draw_fault
from tests.chaos.head_watch import HeadWatch
from tests.harness.faults import LandedFault
from tests.harness.master_status import describe_status

START_BUDGET_S = 90.0
RECOVERY_BUDGET_S = 90.0
END_BUDGET_S = 240.0
WAVE_EVERY_S = (4.0, 10.0)
OVERLAPPING = 0.2  # of the strikes hit before the job has recovered from the one before


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    landed: LandedFault[Fault]
    job: str
    took_s: float  # from the end of the fault to the first progress with everybody serving


@dataclass(slots=True, kw_only=True)
class Report(CampaignTotals):
    """What a campaign found."""

    recoveries: list[Recovery] = field(default_factory=list)
    shrinks: int = 0  # trainers that gave way to the web

    @property
    def mix(self) -> Counter[str]:
        return Counter(recovery.landed.fault.value for recovery in self.recoveries)

    @property
    def times_s(self) -> list[float]:
        return [recovery.took_s for recovery in self.recoveries]

    def by_fault(self) -> dict[str, tuple[int, float, float]]:
        """Number, median and longest recovery (s) of each kind."""
        out = {}
        for fault in sorted(self.mix):
            times = [r.took_s for r in self.recoveries if r.landed.fault.value == fault]
            out[fault] = (len(times), statistics.median(times), max(times))
        return out


class Campaign:
    """Injects faults until there are enough faults or the time is over."""

    def __init__(self, chaos_run: ChaosRun, shape: ChaosJobShape, *, faults: int, until_s: float, seed: int) -> None:
        self._chaos_run = chaos_run
        self._shape = shape
        self._wanted = faults
        self._until_s = until_s
        self._rng = random.Random(seed)
        self._injector = FaultInjector(chaos_run, shape, self._rng)
        self.report = Report()

    def _vary(self) -> None:
        """The next job differs from the one before."""
        self._shape = replace(
            self._shape,
            trainers=self._rng.choice((1, 2)),
            servers=self._rng.choice((1, 2, 3)),
            batch_size=self._rng.choice((5, 8, 12)),
            checkpoint_every_s=self._rng.choice((0.3, 1.0, 3.0)),
            reconnect_s=self._rng.choice((1.0, 3.0)),
        )
        self._injector = FaultInjector(self._chaos_run, self._shape, self._rng)

    @property
    def is_over(self) -> bool:
        return len(self.report.recoveries) >= self._wanted or time.monotonic() > self._until_s

    async def run(self) -> Report:
        """Raises TimeoutError when a job does not start, recover or end."""
        self._chaos_run.local_run.recorder.on_event.append(self._watch)
        await self._chaos_run.submit_web()
        wave = asyncio.create_task(self._wave())
        try:
            while not self.is_over:
                self.report.jobs += 1
                self._vary()
                await self._run_job(f"ledger-{self.report.jobs}")
            return self.report
        finally:
            wave.cancel()
            await asyncio.gather(wave, return_exceptions=True)

    async def _wave(self) -> None:
        """The web rises and falls, and trainers give way to it."""
        rng = random.Random(self._rng.random())
        while True:
            await asyncio.sleep(rng.uniform(*WAVE_EVERY_S))
            await self._chaos_run.scale_web(rng.randint(0, MOST_WEB))

    async def _run_job(self, job: str) -> None:
        shape = self._shape
        await self._chaos_run.submit(job, shape)
        self._chaos_run.say(
            f"     {job}: at least {shape.trainers} trainers, {shape.servers} servers, batches of {shape.batch_size}, "
            f"a checkpoint every {shape.checkpoint_every_s:g} s"
        )
        watch = HeadWatch(self._chaos_run.checkpoint_uri(job))
        async with watch.following():
            await self._chaos_run.wait_for(job, lambda s: s.positions.done > 0, f"{job} starts", START_BUDGET_S)
            while not self.is_over and not self._chaos_run.has_ended(job):
                await asyncio.sleep(self._rng.uniform(0.0, 1.0))
                await self._inject(job)
            await self._chaos_run.wait_end(job, END_BUDGET_S)
        self._judge(job, watch)

    # ---- faults -------------------------------------------------------------------------------------------------

    async def _inject(self, job: str) -> None:
        """One fault, or a few on top of each other, and the recovery from them."""
        count = 1 + (self._rng.random() < OVERLAPPING) + (self._rng.random() < OVERLAPPING / 2)
        strikes = []
        for _ in range(count):
            strikes.append(asyncio.create_task(self._injector.inject(draw_fault(self._rng), job)))
            await asyncio.sleep(self._rng.uniform(0.0, 0.5) if count > 1 else 0.0)
        landed = [one for one in await asyncio.gather(*strikes) if one is not None]
        if landed and await self._recovers(job):
            for one in landed:
                took_s = time.monotonic() - one.over_at_s
                self.report.recoveries.append(Recovery(landed=one, job=job, took_s=took_s))
                number = len(self.report.recoveries)
                self._chaos_run.say(f"{number:4} {job}: {one.fault.value} ({one.target}), recovered in {took_s:.1f} s")

    async def _recovers(self, job: str) -> bool:
        """False: the job has ended before one could tell."""
        lowest, until_s, status = None, time.monotonic() + RECOVERY_BUDGET_S, None
        while time.monotonic() < until_s:
            if self._chaos_run.has_ended(job):
                return self._chaos_run.job(job).condition == JobEnding.COMPLETED
            status = await self._chaos_run.status(job) or status
            if status is not None:
                done = status.positions.done + status.positions.committed
                lowest = done if lowest is None else min(lowest, done)
                if status.phase in {JobPhase.SAVING, JobPhase.COMPLETE}:
                    return True
                if done > lowest and self._is_whole(job, status):
                    return True
            await asyncio.sleep(POLL_S)
        raise TimeoutError(f"{job} did not recover within {RECOVERY_BUDGET_S:g} s: {describe_status(status)}")

    def _is_whole(self, job: str, status: JobStatus) -> bool:
        serving = Counter(member.role for member in status.members if member.is_connected and member.is_serving)
        return serving[MemberRole.SERVER] == self._shape.servers and serving[MemberRole.TRAINER] >= self._shape.trainers

    def _watch(self, event: RunEvent) -> None:
        """Nobody but us ends processes: a fault of one never ends another (M9), and who drains leaves in time (M7)."""
        if (event.kind, event.reason) == ("Killed", "GraceOver"):
            _, pid, *_ = event.message.split()  # pid 77 did not leave ...
            if not self._injector.was_held(int(pid)):
                self.report.problems.append(f"{event.object} {event.message} at {event.t_s:.1f} s")
        if event.kind == "Exited" and "exited with" in event.message and "exited with 0" not in event.message:
            self.report.problems.append(f"{event.object} ended by itself at {event.t_s:.1f} s: {event.message}")
        if event.kind == "Drained" and "trainer" in event.object and not self._chaos_run.was_drained(event.object):
            self.report.shrinks += 1

    # ---- verdict ------------------------------------------------------------------------------------------------

    def _judge(self, job: str, watch: HeadWatch) -> None:
        report = self.report
        ended = self._chaos_run.job(job)
        if ended.condition != JobEnding.COMPLETED:
            report.problems.append(f"{job}: {ended.condition}: {ended.message}")
        told = report.judge(job, watch, self._chaos_run.diaries(job))
        self._chaos_run.say(f"     {job}: {ended.condition}, {told}")
