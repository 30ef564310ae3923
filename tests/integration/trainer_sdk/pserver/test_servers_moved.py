"""A parameter server moves to the node that the web has left, with everything real (ADR 0118)."""

import asyncio
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS
from autoscaler.domain import PodPhase, Policy, Resources, Role
from autoscaler.jobs.server_count import SPARE_ORDINALS
from autoscaler.local_run.local_run import LocalRun
from autoscaler.local_run.run_settings import RunSettings
from autoscaler.manifests import parse_files
from autoscaler.manifests.conversion import make_virtual_node
from autoscaler.planner.phases.p6_begin_moves import MOVES_PER_JOB

ROOT = Path(__file__).resolve().parents[4]
DEADLINE_S = 200.0
EPOCHS = 40
POLICY = Policy(burst_window_s=0.0, quiet_window_s=0.5, down_window_s=2.0, up_window_s=0.5, victim_age_s=2.0)
NODES = {"high": (10_500, 8 << 30), "low": (9_000, 16 << 30)}
FILE = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: counted}
spec:
  trainer:
    minReplicas: 1
    maxReplicas: 6
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
        - name: trainer
          command: [PYTHON, PROGRAM, --size, "400", --epochs, "EPOCHS",
            --pause-s, "0.2", --pause-until, hurry, --out, counts.npz]
          resources: {requests: {cpu: 5, memory: 64Mi}}
  parameterServer:
    minReplicas: 1
    trainersPerServer: 100
    template:
      spec:
        terminationGracePeriodSeconds: 30
        containers: [{name: server, resources: {requests: {cpu: 4, memory: 64Mi}}}]
  checkpoint: {everySeconds: 1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  template:
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        command: [PYTHON, -c, "import time; time.sleep(1000)"]
        resources: {requests: {cpu: 9, memory: 10Gi}}
"""


def test_there_are_numbers_enough_for_those_that_move():
    assert SPARE_ORDINALS == MOVES_PER_JOB


def standing(run, role):
    pods = [pod for pod in run.snapshot().pods if pod.role is role and pod.phase is not PodPhase.TERMINATING]
    return sorted((pod.name, pod.node) for pod in pods if pod.node is not None)


def progress(run):
    record = run.jobs().get("counted")
    return None if record is None else record.progress


async def until(run, condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        pods = [(pod.name, pod.node, pod.phase) for pod in run.snapshot().pods]
        assert time.monotonic() < deadline, f"{what} did not happen: {pods}; {progress(run)}"
        await asyncio.sleep(0.05)


@pytest.mark.usefixtures("etcd_binary")
async def test_a_server_goes_where_the_web_was_and_a_trainer_more_fits(tmp_path):
    """Beside server and trainer 1.4 cores of the one node serve nobody; without the server two trainers fill it."""
    program = ROOT / "tests" / "programs" / "ledger.py"
    text = FILE.replace("PYTHON", sys.executable).replace("PROGRAM", str(program)).replace("EPOCHS", str(EPOCHS))
    (tmp_path / "job.yaml").write_text(text)
    machines = tuple(
        make_virtual_node(name, Resources(cpu_milli=cpu, memory_bytes=memory)) for name, (cpu, memory) in NODES.items()
    )
    settings = RunSettings(
        name="moved", machines=machines, devices=((), ()), parent=tmp_path, working_dir=tmp_path, policy=POLICY
    )
    async with LocalRun(settings) as run:
        await run.submit(parse_files([tmp_path / "job.yaml"]))
        await until(run, lambda: (told := progress(run)) is not None and told.committed, "the start")
        assert standing(run, Role.SERVER) == [("counted-server-0", "high")]
        await run.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, namespace="default")
        await until(run, lambda: standing(run, Role.SERVER) == [("counted-server-1", "low")], "the move")
        await until(run, lambda: len(standing(run, Role.TRAINER)) == 3, "the trainer that has room now")
        await until(
            run, lambda: "counted-server-0" not in {pod.name for pod in run.snapshot().pods}, "the old server's end"
        )
        moved = progress(run)
        assert moved.lineage == 1, "a move rolls nobody back"
        assert moved.done < moved.total, "the job was over before its server had moved"
        (tmp_path / "hurry").touch()
        await until(run, run.are_jobs_over, "the end")
        events = [(event.object, event.reason, event.message) for event in run.recorder.events]
        await run.stop()
    assert not [event for event in events if event[1] in {"ServerLost", "TrainerFailed", "Restarting"}]
    assert ("pod/counted-server-0", "Gone", "exited with 0") in events
    assert any(reason == "Moved" for _, reason, _ in events), events
    with np.load(tmp_path / "counts.npz") as saved:
        assert set(saved["counts"].tolist()) == {EPOCHS}
