"""Masters and servers that stand still are killed, by what the operator has heard of them; trainers never are."""

import asyncio
import signal
from types import SimpleNamespace

import pytest

from autoscaler.fault_isolation import FIRST_PAUSE_S, GuardedTask, JobErrors
from autoscaler.jobs.progress import JobProgress, WhyNoAnswer
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S, START_LIMIT_S
from autoscaler.local_run.hung_processes import CHECK_EVERY_S, HungProcesses
from autoscaler.local_run.run_term import LOCAL_INTERVALS
from autoscaler.operator.controllers.progress_poller import ProgressPoller
from autoscaler.operator.controllers.server_drain import ServerDrains
from autoscaler.operator.job.job_record import JobRecord
from master.api.master_status import JobPhase
from tests.harness import virtual_time
from tests.harness.virtual_time import now
from tests.unit.operator.bench import JOB as POLLED_JOB
from tests.unit.operator.bench import START_S, OperatorBench

JOB = SimpleNamespace(key="default/digits", uid="j")


def pod(role):
    return {
        "metadata": {
            "name": f"digits-{role}-0",
            "namespace": "default",
            "uid": role,
            "labels": {"edl.dev/role": role},
        }
    }


class Machine:
    """The store, the kubelet and the journal as far as hang detection uses them, and a clock."""

    def __init__(self):
        self.pids = dict.fromkeys(("master", "server", "trainer"), 7)
        self.now_s, self.pods, self.killed, self.told = 100.0, [pod("master"), pod("server"), pod("trainer")], [], []
        self.records = {"default/digits": JobRecord(job=JOB, life=None)}
        self.objects = SimpleNamespace(pods=lambda job: self.pods if job is JOB else [])
        self.errors = JobErrors(lambda: self.now_s)
        self.watch = HungProcesses(self, self, self, clock=lambda: self.now_s)

    def pid_of(self, uid):
        return self.pids[uid]

    def send_signal(self, namespace, name, number):
        self.killed.append((f"{namespace}/{name}", number))

    def record_event(self, _kind, target, reason, message):
        self.told.append((target, reason, message))

    def hear(self, seconds, *, connected=("digits-server-0",)):
        """The master answers all the time."""
        self._let_pass(seconds, lambda: {"progress": SimpleNamespace(connected=connected), "missing_answer": None})

    def silence(self, seconds, answer=WhyNoAnswer.SILENT):
        """It does not."""
        self._let_pass(seconds, lambda: {"missing_answer": answer})

    def _let_pass(self, seconds, heard):
        for _ in range(round(seconds / CHECK_EVERY_S)):
            self.now_s += CHECK_EVERY_S
            fields = heard() | {"polled_at_s": self.now_s}
            if fields["missing_answer"] is None:
                fields["progress_at_s"] = self.now_s
            elif fields["missing_answer"] is not WhyNoAnswer.SILENT:
                fields["refused_at_s"] = self.now_s
            record = self.records["default/digits"]
            kept = {
                name: getattr(record, name) for name in ("progress", "progress_at_s", "refused_at_s", "missing_answer")
            }
            self.records["default/digits"] = JobRecord(job=JOB, life=None, **(kept | fields))
            self.watch.check()


@pytest.fixture
def machine():
    return Machine()


def test_a_master_that_falls_silent_is_killed_and_the_reason_is_told(machine):
    """After the limit, not before; its servers are not judged by its silence."""
    machine.hear(2.0)
    machine.silence(SILENCE_LIMIT_S - 1.0)
    assert machine.killed == []
    machine.silence(2.0)
    assert machine.killed == [("default/digits-master-0", signal.SIGKILL)]
    assert machine.told == [("pod/digits-master-0", "Unresponsive", "no answer for 30 s: pid 7 is killed")]


def test_a_master_that_was_never_heard_of_gets_longer(machine):
    """It may still be starting; what the process before it said does not count."""
    machine.hear(2.0)
    machine.pids["master"] = 8
    machine.silence(SILENCE_LIMIT_S + 5.0)
    assert machine.killed == []
    machine.silence(START_LIMIT_S - SILENCE_LIMIT_S)
    assert machine.killed == [("default/digits-master-0", signal.SIGKILL)]


def test_a_master_that_answers_without_leading_lives(machine):
    """As while etcd is away."""
    machine.hear(2.0)
    machine.silence(2 * START_LIMIT_S, answer=WhyNoAnswer.NOT_LEADING)
    assert machine.killed == []


def test_a_server_that_its_master_misses_is_killed_and_a_trainer_is_not(machine):
    """The trainer's script may compute for an hour."""
    machine.hear(2.0)
    machine.hear(SILENCE_LIMIT_S + 1.0, connected=())
    assert machine.killed == [("default/digits-server-0", signal.SIGKILL)]
    assert machine.told[0][2].startswith("not connected to its master for 30 s")


def test_a_pod_without_a_process_is_not_judged(machine):
    """It waits for its next start."""
    machine.hear(2.0)
    machine.pids["master"] = None
    machine.silence(2 * START_LIMIT_S)
    assert machine.killed == []


def test_a_fault_of_the_check_pauses_neither_other_jobs_nor_the_polls(machine):
    """Each task has a pause of its own: a poll that always raises is not retried because a check has succeeded."""
    machine.errors.record_failure(JOB.key, GuardedTask.POLL, ValueError("a hostile answer"))
    machine.hear(FIRST_PAUSE_S / 2)
    assert machine.errors.is_paused(JOB.key, GuardedTask.POLL)
    machine.pods[0]["metadata"]["labels"] = None
    del machine.pods[0]["metadata"]["uid"]
    machine.records["default/other"] = JobRecord(job=SimpleNamespace(key="default/other", uid="o"), life=None)
    machine.hear(4 * FIRST_PAUSE_S)
    assert machine.errors.fails(JOB.key, GuardedTask.HANG)
    assert not machine.errors.fails("default/other", GuardedTask.HANG)


TRAINING = JobProgress(phase=JobPhase.TRAINING, total=100, done=10, committed=5, epochs=1)


class Stopped(OperatorBench):
    """A master that answers, is stopped for a while after 10 s, and is polled as in a run; in virtual time."""

    def __init__(self, stopped_s):
        self.stopped_s, self.killed_at_s = stopped_s, []
        super().__init__()
        self.store.objects.pods = lambda _job: [pod("master")]
        drains = ServerDrains(self.store, self)
        self.poller = ProgressPoller(
            self.store,
            self,
            drains,
            poll_every_s=LOCAL_INTERVALS.poll_every_s,
            tick_s=LOCAL_INTERVALS.poll_tick_s,
            longest_pause_s=LOCAL_INTERVALS.longest_poll_pause_s,
        )
        self.watch = HungProcesses(self.store, self, self, clock=self.clock)

    @property
    def now_s(self):
        return START_S + now()

    @now_s.setter
    def now_s(self, value):
        """It goes by itself."""

    async def poll(self, job, masters, **_):
        if not 10.0 < now() < 10.0 + self.stopped_s:
            return "digits-master-0", TRAINING
        await asyncio.sleep(1.0)
        return WhyNoAnswer.SILENT

    def pid_of(self, _uid):
        return 7

    def send_signal(self, _namespace, _name, _number):
        self.killed_at_s.append(now())

    def record_event(self, *_):
        pass


async def a_minute(stopped_s):
    bench = Stopped(stopped_s)
    await bench.refresh()
    bench.store.facts(bench.store.objects.jobs[POLLED_JOB])  # its record begins
    tasks = [asyncio.create_task(bench.poller.run()), asyncio.create_task(bench.watch.run())]
    await asyncio.sleep(60.0)
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return bench.killed_at_s


@pytest.mark.parametrize("stopped_s", [18.0, 22.0, 28.0])
def test_a_master_that_wakes_within_the_limit_is_polled_in_time_and_lives(stopped_s):
    """Silence lasts as long as the polls say: the pauses between them are short beside the limit."""
    assert virtual_time.run(a_minute(stopped_s)) == []


def test_a_master_that_stays_stopped_is_killed_soon_after_the_limit():
    killed_at_s = virtual_time.run(a_minute(100.0))
    assert killed_at_s
    assert 10.0 + SILENCE_LIMIT_S <= killed_at_s[0] < 10.0 + SILENCE_LIMIT_S + 4.0
