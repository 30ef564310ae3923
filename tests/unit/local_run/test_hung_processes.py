"""Masters and servers that stand still are killed, by what the operator has heard of them; trainers never are."""

import signal
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from autoscaler.jobs.progress import WhyNoAnswer
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S, START_LIMIT_S
from autoscaler.local_run.hung_processes import LOOK_EVERY_S, HungProcesses
from autoscaler.operator.job.job_record import JobRecord

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
        self.objects = SimpleNamespace(pods=lambda _job: self.pods)
        self.errors = SimpleNamespace(isolate=lambda *_: _passing())
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
        for _ in range(round(seconds / LOOK_EVERY_S)):
            self.now_s += LOOK_EVERY_S
            fields = heard()
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


@contextmanager
def _passing():
    yield


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
