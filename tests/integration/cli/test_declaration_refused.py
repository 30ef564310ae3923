"""A script whose declaration cannot be: its job fails at once, with the field and what to do, whatever backoffLimit."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.harness.edl_command import EDL, PROGRAMS

DEADLINE_S = 120.0
JOB = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: bare}
spec:
  trainer:
    minReplicas: 2
    maxReplicas: 2
    template:
      spec:
        containers:
        - name: trainer
          command: [python, PROGRAM, --out, rows.txt]
          resources: {requests: {cpu: 1, memory: 64Mi}}
  parameterServer:
    minReplicas: 1
    template:
      spec:
        containers: [{name: server, resources: {requests: {cpu: 250m, memory: 64Mi}}}]
  runPolicy: {backoffLimit: 6}
"""


@pytest.mark.usefixtures("etcd_binary")
def test_a_script_without_tables_beside_servers_fails_its_job_at_once(tmp_path):
    """No second process of it is started: it would declare the same."""
    (tmp_path / "job.yaml").write_text(JOB.replace("PROGRAM", str(PROGRAMS / "sharder.py")))
    argv = [EDL, "run", "job.yaml", "--nodes", "2", "--no-view"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    run = Path(done.stdout.splitlines()[0].removeprefix("run folder: "))
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (failed,) = [event["message"] for event in events if (event["object"], event["reason"]) == ("tj/bare", "Failed")]
    assert "the declaration of " in failed
    assert " is refused: tables: no tables are declared, but spec.parameterServer gives" in failed
    assert "declare them with session.tables(...)" in failed
    began = [event for event in events if event["kind"] == "Started" and "trainer" in event["object"]]
    assert len(began) == 2
