"""A master that dies is followed by a process that stood by; one that is merely stopped is not (ADR 0202, M5)."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from autoscaler.clusters.local.pods import pod_runtime, standby_processes
from autoscaler.clusters.local.run.local_run import LocalRun
from autoscaler.clusters.local.run.run_settings import RunSettings
from autoscaler.domain import Resources
from autoscaler.manifests import parse_files
from autoscaler.manifests.conversion import make_virtual_node
from master.api.host.signals import TAKE_OVER
from tests.integration.clusters.local.local_cluster import PROGRAMS

MASTER = "ledger-master-0"
BUDGET_S = 90.0
LONG_LEASE_S = 240  # whoever waits for its end is seen; no pause of a machine ends it
JOB = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {{name: ledger}}
spec:
  trainer:
    minReplicas: 1
    maxReplicas: 1
    template:
      spec:
        terminationGracePeriodSeconds: 2
        containers:
          - name: trainer
            command: ["{python}", "{program}", "--out={out}", "--size=1000000"]
            resources: {{requests: {{cpu: 1, memory: 64Mi}}}}
  master:
    template:
      spec:
        containers:
          - name: master
            env: [{{name: EDL_LEADER_TTL_S, value: "{lease_s}"}}]
            resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}
  checkpoint: {{everySeconds: 1}}
"""


@asynccontextmanager
async def run_of(tmp_path, etcd, *, lease_s=6):
    """A run of one job whose master serves and has one standing by."""
    (tmp_path / "job.yaml").write_text(
        JOB.format(python=sys.executable, program=PROGRAMS / "sharder.py", out=tmp_path / "out", lease_s=lease_s)
    )
    machine = make_virtual_node("one", Resources(cpu_milli=4000, memory_bytes=8 << 30))
    settings = RunSettings(
        name="standby",
        machines=(machine,),
        devices=((),),
        parent=tmp_path,
        working_dir=tmp_path,
        with_etcd=False,
        etcd=",".join(etcd.endpoints),
    )
    async with LocalRun(settings) as run:
        run.submit(parse_files([tmp_path / "job.yaml"]))
        await until(run, lambda: has_standby(run), "one that stands by")
        yield run
        await run.stop()


async def until(run, condition, what):
    deadline_s = time.monotonic() + BUDGET_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        await run.cluster.changed(0.05)


def master(run):
    return run.cluster.table.pods.get(MASTER)


def has_standby(run):
    pod = master(run)
    return pod is not None and run.cluster.runtime.processes.is_running(pod.next_key)


def is_ready(run, starts):
    pod = master(run)
    return pod is not None and pod.starts == starts and pod.ready_at_s is not None


def standby_pid(run):
    return run.cluster.runtime.processes.pid_of(master(run).next_key)


@pytest.fixture
async def store(etcd, open_store):
    return open_store(etcd, job="ledger")


async def next_term(store, before):
    """The leader of another term, once there is one."""
    async with asyncio.timeout(BUDGET_S):
        while (leader := await store.read_leader()) is None or leader.term == before.term:  # noqa: ASYNC110 - in etcd
            await asyncio.sleep(0.02)
    return leader


async def test_a_killed_master_is_followed_by_the_one_that_stood_by_and_that_by_another(tmp_path, etcd, store):
    """Again and again, without a pause, whoever crashed before; nobody waits for the lease."""
    async with run_of(tmp_path, etcd, lease_s=LONG_LEASE_S) as run:
        for starts in (1, 2, 3):
            assert master(run).starts == starts
            stood_by, before = standby_pid(run), await store.read_leader()
            assert run.cluster.kill(MASTER)
            leader = await next_term(store, before)  # long before the lease would end
            assert leader.term > before.term
            assert leader.holder == before.holder
            await until(run, lambda stood_by=stood_by: master(run).pid == stood_by, "its pod has that process")
            await until(run, lambda: has_standby(run), "the next one that stands by")


async def test_only_deaths_in_a_row_with_nothing_that_stands_by_cost_a_pause(tmp_path, etcd, monkeypatch):
    """The first one after a take-over costs none, but a master that answers once and dies is no loop without a pause.

    Seen: after six deaths that were followed the seventh waited for 30 s.
    """
    async with run_of(tmp_path, etcd) as run:
        monkeypatch.setattr(pod_runtime, "STEADY_AFTER_S", 1e9)
        for starts in (1, 2, 3, 4, 5):
            if starts == 3:
                monkeypatch.setattr(standby_processes, "NEXT_AFTER_S", 1e9)
            await until(run, lambda starts=starts: is_ready(run, starts), "a master that serves")
            if starts < 3:
                await until(run, lambda: has_standby(run), "one that stands by")
            assert run.cluster.kill(MASTER)
        await until(run, lambda: is_ready(run, 6), "the last master")
        told = [event.message.splitlines()[-1] for event in run.recorder.events if event.reason == "Restarting"]
        assert told == ["starts again at once"] * 3 + ["starts again in 1 s", "starts again in 2 s"]


async def test_a_master_that_is_stopped_is_not_followed(tmp_path, etcd, store):
    """It is not dead, and may wake up: what stands by is told nothing, so that there are never two (M5)."""
    async with run_of(tmp_path, etcd, lease_s=LONG_LEASE_S) as run:
        before, stood_by = await store.read_leader(), standby_pid(run)
        assert run.cluster.runtime.send_signal(MASTER, signal.SIGSTOP)
        await asyncio.sleep(3.0)
        assert await store.read_leader() == before
        assert standby_pid(run) == stood_by
        assert run.cluster.runtime.send_signal(MASTER, signal.SIGCONT)
        await asyncio.sleep(1.0)
        assert await store.read_leader() == before  # and nobody took its term meanwhile


async def test_one_that_stood_by_and_died_is_followed_by_another(tmp_path, etcd):
    """Nobody asks a dead one to take over: else the master's own death, much later, would wait for an interpreter."""
    async with run_of(tmp_path, etcd) as run:
        died, serves = standby_pid(run), master(run).pid
        os.killpg(died, signal.SIGKILL)
        await until(run, lambda: has_standby(run) and standby_pid(run) != died, "another one that stands by")
        assert (master(run).pid, master(run).starts) == (serves, 1)
        events = [event for event in run.recorder.events if event.reason == "StandbyDied"]
        assert [(event.object, event.message) for event in events] == [
            (f"pod/{MASTER}", "what stood by was killed by SIGKILL")
        ]


async def test_what_stood_by_goes_with_its_master(tmp_path, etcd):
    """A job that is deleted leaves no process behind, and nothing is kept of one that died before."""
    async with run_of(tmp_path, etcd) as run:
        os.killpg(died := standby_pid(run), signal.SIGKILL)
        await until(run, lambda: has_standby(run) and standby_pid(run) != died, "another one that stands by")
        stood_by = standby_pid(run)
        run.cluster.delete_job("ledger")
        await until(run, lambda: master(run) is None, "the master's end")
        kept = vars(run.cluster.runtime.standbys)
        assert {name: kept[name] for name in ("_due", "_starting", "_deaths")} == {
            "_due": {}, "_starting": {}, "_deaths": {}
        }  # fmt: skip
        await until(run, lambda: not Path(f"/proc/{stood_by}").exists(), "the end of what stood by")


@pytest.fixture
def start_standby(etcd, tmp_path):
    """Starts a master as the local cluster does one that stands by."""
    started = []

    def start():
        environment = os.environ | {
            "EDL_JOB": "ledger",
            "EDL_NAME": MASTER,
            "EDL_STANDBY": "1",
            "EDL_ADDRESS_FILE": str(tmp_path / "address"),
            "EDL_CHECKPOINT_URI": str(tmp_path / "checkpoints"),
            "EDL_ETCD_ENDPOINTS": ",".join(etcd.endpoints),
        }
        block = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {TAKE_OVER})  # noqa: E731
        command = [sys.executable, "-m", "master"]
        log = (tmp_path / "log").open("wb")
        with log:
            process = subprocess.Popen(command, env=environment, stderr=log, preexec_fn=block)  # noqa: PLW1509 - one signal
        started.append(process)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


async def test_an_order_that_comes_before_it_has_started_is_kept(start_standby, tmp_path, store):
    """The master before may die while its standby's interpreter starts."""
    process = start_standby()
    process.send_signal(TAKE_OVER)
    async with asyncio.timeout(BUDGET_S):
        while await store.read_leader() is None:  # noqa: ASYNC110 - in etcd
            await asyncio.sleep(0.05)
    assert (tmp_path / "address").exists()
    assert process.poll() is None


async def test_one_that_stands_by_listens_nowhere_and_ends_when_it_is_told(start_standby, tmp_path, store):
    """Until its time has come it is nobody."""
    process = start_standby()
    async with asyncio.timeout(BUDGET_S):
        while b"stands by" not in (tmp_path / "log").read_bytes():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
    assert not (tmp_path / "address").exists()
    assert await store.read_leader() is None
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, BUDGET_S) == 0
