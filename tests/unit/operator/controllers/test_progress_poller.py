"""Masters are asked side by side: who is silent, or hangs, keeps no other job waiting for long."""

import asyncio
import time
from itertools import pairwise

import pytest

from autoscaler.domain import JobName
from autoscaler.jobs.master_connections import MasterConnections
from autoscaler.jobs.progress import JobProgress, WhyNoAnswer
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S
from autoscaler.operator.controllers.pod_failures import CONCURRENT_HANDLINGS
from autoscaler.operator.controllers.progress_poller import (
    CONCURRENT_ANSWERING,
    CONCURRENT_SILENT,
    POLL_EVERY_S,
    POLL_LIMIT_S,
    pause_after,
)
from master.api.errors import ContractError
from master.api.master_status import JobPhase
from tests.harness import virtual_time
from tests.harness.virtual_time import now
from tests.unit.clusters.kubernetes.fake_controllers import add_job
from tests.unit.clusters.kubernetes.raw_objects import raw_job
from tests.unit.operator.bench import JOB, START_S, OperatorBench

TRAINING = JobProgress(phase=JobPhase.TRAINING, total=100, done=10, committed=5, epochs=1)
SILENT = 200
THREE_MASTERS_S = 3.0  # each of them has a second
HANGS = "team-a/hangs"
BEFORE_S = THREE_MASTERS_S * (SILENT / CONCURRENT_SILENT + 1)  # until everybody has been asked for the first time


class Asked(OperatorBench):
    """In virtual time.  `digits` is answered at once, one hangs, the rest are silent."""

    def __init__(self):
        self.asked = {}
        self.under_way = self.most = 0
        super().__init__()
        for name in ("hangs", *(f"silent-{number}" for number in range(SILENT))):
            add_job(self.server, raw_job(name))

    @property
    def now_s(self):
        return START_S + now()

    @now_s.setter
    def now_s(self, value):
        """It goes by itself."""

    async def poll(self, job, masters, **_):
        self.asked.setdefault(job.key, []).append(now())
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if job.key == JOB:
                return "digits-master-0", TRAINING
            await asyncio.sleep(1e9 if job.key == HANGS else THREE_MASTERS_S)
            return WhyNoAnswer.SILENT
        finally:
            self.under_way -= 1


class FallSilent(Asked):
    """All but `digits` answer for a minute and never again, as where a part of the network is lost."""

    async def poll(self, job, masters, **_):
        self.asked.setdefault(job.key, []).append(now())
        if job.key == JOB or now() < 60.0:
            return "master-0", TRAINING
        await asyncio.sleep(THREE_MASTERS_S)
        return WhyNoAnswer.SILENT


async def two_minutes(stage=Asked):
    bench = stage()
    await bench.refresh()
    for job in bench.store.objects.jobs.values():
        bench.store.facts(job)  # its record begins
    asking = asyncio.create_task(bench.poller.run())
    await asyncio.sleep(120.0)
    assert not asking.done()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return bench


def test_a_master_that_answers_is_asked_often_whoever_is_silent():
    bench = virtual_time.run(two_minutes())
    times = bench.asked[JOB]
    assert max(after - before for before, after in pairwise(times)) < 2 * POLL_EVERY_S
    assert len(times) > (120.0 - BEFORE_S) / (2 * POLL_EVERY_S)
    assert CONCURRENT_SILENT <= bench.most <= CONCURRENT_SILENT + CONCURRENT_ANSWERING
    assert all(len(bench.asked[JobName(f"team-a/silent-{number}")]) >= 5 for number in range(SILENT))


def test_masters_that_fall_silent_together_leave_time_for_the_others():
    """They have answered before, so at first they stand in the same line: nobody in it is thought silent for that."""
    times = virtual_time.run(two_minutes(FallSilent)).asked[JOB]
    assert max(after - before for before, after in pairwise(times)) < SILENCE_LIMIT_S / 2


def test_a_question_that_hangs_has_a_deadline_and_is_asked_again():
    bench = virtual_time.run(two_minutes())
    times = bench.asked[HANGS]
    assert len(times) >= 5
    assert times[1] - times[0] < POLL_LIMIT_S + BEFORE_S + 2 * POLL_EVERY_S + 1.0


class Dear(Asked):
    """All answer at once, and what `hangs` says takes seconds of a core to read."""

    def __init__(self):
        super().__init__()
        self.reads_s = {HANGS: 4.0}

    async def poll(self, job, masters, **_):
        self.asked.setdefault(job.key, []).append(now())
        return "master-0", TRAINING


def test_a_master_whose_answers_are_dear_to_read_is_asked_seldom_and_the_others_as_ever():
    """Four megabytes every two seconds took more than a core of the one operator (A11)."""
    bench = virtual_time.run(two_minutes(Dear))
    assert len(bench.asked[HANGS]) == 1
    assert len(bench.asked[JOB]) > 120.0 / (2 * POLL_EVERY_S)


class Ending(Asked):
    """The trainers of `digits` end whenever they are there, and what its master says takes seconds of a core."""

    def __init__(self):
        super().__init__()
        self.reads_s = {JOB: 4.0}

    async def poll(self, job, masters, **_):
        self.asked.setdefault(job.key, []).append(now())
        return ("master-0", TRAINING) if masters else WhyNoAnswer.SILENT


async def end_again_and_again():
    bench = Ending()
    await bench.start()
    await bench.poller.poll(bench.store.objects.jobs[JOB])
    bench.asked.clear()
    for number in range(2):
        bench.rest.end("team-a", f"digits-trainer-{number}", code=1)
    await bench.refresh()
    await bench.jobs.reconcile(JOB)
    judging = tuple(bench.failures.tasks)
    await asyncio.sleep(60.0)
    assert JOB not in bench.asked, "its master rests"
    assert bench.failures._turn._value == CONCURRENT_HANDLINGS, "and others are judged meanwhile"
    await asyncio.gather(*judging)
    assert JOB not in {job.key for job in bench.poller.pollable()}, "it rests after this question as after any other"
    await asyncio.sleep(pause_after(4.0, pods=2))
    assert JOB in {job.key for job in bench.poller.pollable()}
    return bench


def test_pods_that_end_all_the_time_cost_no_more_than_their_masters_answers_may():
    """Each was one more question, past the rest that follows a dear answer, and took a core of the operator (A11)."""
    bench = virtual_time.run(end_again_and_again())
    assert len(bench.asked[JOB]) == 1, "one answer serves both"
    assert bench.life.failures == 2


def test_a_garbage_collection_is_no_reason_to_leave_a_master_alone(monkeypatch):
    """What it takes to read an answer is in proportion to its length, whatever falls into that time."""
    seconds = iter((0.0, 1.0))
    monkeypatch.setattr(time, "thread_time", lambda: next(seconds))
    masters = MasterConnections()
    with pytest.raises(ContractError):
        masters._decode_now("digits", b" " * 1_000)
    assert pause_after(masters.decode_s("digits"), pods=2) < POLL_EVERY_S


def test_what_a_job_may_cost_grows_with_its_pods():
    """An answer tells of every pod: that of 10,000 takes a second, that of two has no reason to."""
    assert pause_after(1.0, pods=10_000) < POLL_EVERY_S
    assert pause_after(0.001, pods=2) < POLL_EVERY_S
    assert pause_after(1.0, pods=2) > 180.0
