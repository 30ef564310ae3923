"""`edl run` with everything real: etcd, master, parameter servers, trainers, and an audit of what they leave."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from autoscaler.clusters.local.run_files.run_folder import RunFolder
from tests.harness.edl_command import EDL, PROGRAMS, edl, pid_of, progress_in

DEADLINE_S = 120.0
JOB = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: rows}
spec:
  trainer:
    minReplicas: 1
    maxReplicas: 3
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
        - name: trainer
          command: [python, PROGRAM]
          resources: {requests: {cpu: 1, memory: 64Mi}}
  parameterServer:
    minReplicas: 2
    template: {spec: {containers: [{name: server, resources: {requests: {cpu: 500m, memory: 64Mi}}}]}}
  checkpoint: {everySeconds: 1}
"""


@pytest.mark.usefixtures("etcd_binary")
def test_a_job_loses_a_trainer_and_its_master_and_ends_whole(tmp_path):
    """Every sample once per epoch in the last checkpoint (M1), after kills and a suspension, asked from outside.

    The user's folder holds files with the names of EDL's own modules, and of one that these import: they are not ours.
    """
    for name in ("autoscaler", "master", "trainer_sdk", "selectors"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is the wrong one')\n")
    (tmp_path / "job.yaml").write_text(JOB.replace("PROGRAM", str(PROGRAMS / "rows.py")))
    argv = [EDL, "run", "job.yaml", "--nodes", "2", "--no-view"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            run = Path(process.stdout.readline().removeprefix("run folder: ").strip())
            wait_for_progress(run)
            job = json.loads(edl("get", "tj/rows", "-o", "json", run=run))
            assert job["status"]["trainers"]["ready"] >= 1
            for pod in ("rows-trainer-0", "rows-master-local-0"):
                pid = pid_of(json.loads(edl("get", f"pod/{pod}", "-o", "json", run=run)))
                os.kill(pid, signal.SIGKILL)
            (tmp_path / "haste").touch()
            edl("wait", "--for=condition=Completed", "tj/rows", "--timeout", "100s", run=run, deadline_s=DEADLINE_S)
            output, _ = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, output
        finally:
            process.kill()
    assert "tj/rows: Completed" in output
    audit = json.loads(edl("data", "audit", str(run / "checkpoints" / "rows"), "--json", run=run))
    assert audit["is_sound"]
    assert (audit["missing"], audit["quarantined"]) == (0, 0)
    logs = "".join(log.read_text() for log in (run / "logs").glob("rows-trainer-*.log"))
    assert "ledger whole" in logs
    assert audit["trained"] == audit["dataset"]["size"] * audit["dataset"]["epochs"]


@pytest.mark.usefixtures("etcd_binary")
@pytest.mark.parametrize("killed", ["keeper", "server"])
def test_a_job_outlives_its_etcd_and_the_process_that_keeps_it(tmp_path, killed):
    """It comes back on its data, elsewhere with a new keeper; the masters follow, and the story is told."""
    (tmp_path / "job.yaml").write_text(JOB.replace("PROGRAM", str(PROGRAMS / "rows.py")))
    argv = [EDL, "run", "job.yaml", "--nodes", "2", "--no-view"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            run = Path(process.stdout.readline().removeprefix("run folder: ").strip())
            wait_for_progress(run)
            os.kill(pid_of_keeper(run) if killed == "keeper" else pid_of_server(run), signal.SIGKILL)
            (tmp_path / "haste").touch()
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0, output
    assert "tj/rows: Completed" in output
    told = [line for line in output.splitlines() if "etcd/etcd" in line]
    assert [line.split()[2] for line in told] == ["Restarting", "Ready"]
    assert ("its server was killed by SIGKILL" in told[0]) is (killed == "server")
    assert json.loads(edl("data", "audit", str(run / "checkpoints" / "rows"), "--json", run=run))["missing"] == 0


def pid_of_keeper(run):
    return find_process(f"--serve\0{run / 'etcd'}")


def pid_of_server(run):
    return find_process(f"--data-dir={run / 'etcd' / 'm0'}")


def find_process(words):
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # any process may end between two looks
            if words.encode() in line.read_bytes():
                found.append(int(line.parent.name))
    (pid,) = found
    return pid


def wait_for_progress(run):
    deadline = time.monotonic() + DEADLINE_S
    while not (RunFolder(root=run).is_live() and has_trained(run)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def has_trained(run):
    progress = progress_in(run, "rows")
    return progress is not None and progress.done > 0
