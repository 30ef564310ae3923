"""`edl scale --servers` on a run with everything real: the model moves while trainers train, and nothing is lost."""

import json
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from autoscaler.clusters.local.run_files.run_folder import RunFolder
from tests.harness.edl_command import EDL, PROGRAMS, edl, progress_in

DEADLINE_S = 200.0
EPOCHS = 45
JOB = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: counted}
spec:
  trainer:
    minReplicas: 2
    maxReplicas: 2
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
        - name: trainer
          command: [python, PROGRAM, --size, "400", --epochs, "EPOCHS",
            --pause-s, "0.2", --pause-until, hurry, --out, counts.npz]
          resources: {requests: {cpu: 1, memory: 64Mi}}
  parameterServer:
    minReplicas: 1
    maxReplicas: 3
    replicas: 2
    template:
      spec:
        terminationGracePeriodSeconds: 20
        containers: [{name: server, resources: {requests: {cpu: 250m, memory: 64Mi}}}]
  checkpoint: {everySeconds: 1}
"""


def wait_for(run, condition, what):
    deadline, last = time.monotonic() + DEADLINE_S, {}
    while time.monotonic() < deadline:
        if RunFolder(root=run).control_socket().exists():
            last, progress = json.loads(edl("get", "tj/counted", "-o", "json", run=run)), progress_in(run, "counted")
            if progress is not None and condition(last["status"], progress):
                return last["status"], progress
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen; the last status: {last}")


def holds(count):
    """So many servers hold the model, each a share of it, and nothing is on its way."""

    def do_hold(status, progress):
        owners = [ordinal for ordinal, held in progress.buckets if held]
        told = (status["servers"]["ready"], progress.servers, progress.servers_wanted, len(owners))
        return told == (count,) * 4 and progress.moving == 0

    return do_hold


def is_running(status):
    return {one["type"]: one["status"] for one in status["conditions"]}["Ready"] == "True"


def kinds(run, kind):
    return [
        line
        for line in json.loads("[" + ",".join(edl("events", "--json", run=run).splitlines()) + "]")
        if line["kind"] == kind
    ]


@pytest.mark.usefixtures("etcd_binary")
def test_servers_are_scaled_by_hand_while_training_goes_on(tmp_path):
    """2 -> 3 -> 2 servers: every counter is exact, no trainer and no server failed, nobody was rolled back (M1)."""
    text = JOB.replace("PROGRAM", str(PROGRAMS / "ledger.py")).replace("EPOCHS", str(EPOCHS))
    (tmp_path / "job.yaml").write_text(text)
    argv = [EDL, "run", "job.yaml", "--nodes", "2", "--no-view"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            run = Path(process.stdout.readline().removeprefix("run folder: ").strip())
            wait_for(run, lambda status, progress: holds(2)(status, progress) and progress.committed, "the start")
            refused = edl("scale", "tj/counted", "--servers", "4", run=run, code=4)
            assert "spec.parameterServer.replicas: tj/counted may have 1 to 3 servers" in refused
            assert "scaled to 3 servers (2 now)\n" in edl("scale", "tj/counted", "--servers", "3", run=run)
            status, grown = wait_for(run, holds(3), "the growth")
            assert is_running(status)
            assert "scaled to 2 servers (3 now)\n" in edl("scale", "tj/counted", "--servers", "2", run=run)
            status, shrunk = wait_for(
                run, lambda *told: holds(2)(*told) and told[1].done > grown.done, "the shrink, with work"
            )
            assert is_running(status), "the job was over before the servers had moved"
            assert 0 < shrunk.waiting_share < 1, "trainers tell how long they wait for servers"
            assert shrunk.lineage == grown.lineage, "moves roll nobody back"
            told = "\n".join(line["message"] for line in kinds(run, "Decided"))
            assert "parameterServer.replicas is 3" in told
            assert "removed 1 server: parameterServer.replicas is 2" in told
            told = [line["message"] for line in kinds(run, "Resized")]
            assert told == ["pinned to 3 servers", "pinned to 2 servers"], "neither resize replaced another"
            (tmp_path / "hurry").touch()
            output, _ = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, output
        finally:
            process.kill()
    assert "TrainerFailed" not in output
    with np.load(tmp_path / "counts.npz") as saved:
        assert set(saved["counts"].tolist()) == {EPOCHS}
    audit = json.loads(edl("data", "audit", str(run / "checkpoints" / "counted"), "--json", run=run))
    assert audit["is_sound"], audit
