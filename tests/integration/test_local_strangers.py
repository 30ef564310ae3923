"""Another user of the same machine learns nothing of a run and changes nothing in it (ADR 0170)."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from autoscaler.clusters.local.folder import RunFolder
from tests.integration.cli_stage import DEADLINE_S, EDL, PROGRAMS, edl, wait_until
from tests.integration.strangers_stage import attack, family_of, listening_ports, needs_root, open_folder
from tests.integration.test_cli_whole import JOB

pytestmark = needs_root

ENDLESS = "env: [{name: ROWS_EPOCHS, value: '100000'}]"


@pytest.fixture
def attacked(etcd_binary):
    """A run with etcd, master, servers and trainers, in a folder that everybody may look into."""
    with open_folder() as folder:
        job = JOB.replace(
            "command: [python, PROGRAM]", f"command: [python, {PROGRAMS / 'rows.py'}]\n          {ENDLESS}"
        )
        (folder / "job.yaml").write_text("---".join((job, job.replace("name: rows", "name: other"))))
        argv = [EDL, "run", "job.yaml", "--nodes", "4", "--no-view"]
        with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                run = RunFolder(root=Path(process.stdout.readline().removeprefix("run folder: ").strip()))
                wait_until(run.is_live, "the control socket")
                wait_until(lambda: has_trained(run), "progress")
                yield process, run
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=DEADLINE_S)


def has_trained(run):
    statuses = [job["status"] for job in get(run, "tj")["items"]]
    return all((status["progress"] or {}).get("done", 0) > 0 for status in statuses)


def test_another_user_reaches_no_part_of_a_run(attacked):
    """No port is open, no socket is connected to, no secret is read, no folder listed, no place taken."""
    process, run = attacked
    sockets = list(run.sockets.iterdir())
    assert len(sockets) >= 10, "control, etcd's three, masters, servers"
    assert listening_ports(family_of(process.pid)) == set()
    secrets = [run.tokens / "rows", run.manifest, run.events, run.log_of("rows-trainer-0")]
    assert all(path.exists() for path in secrets)
    folders = [run.root, run.sockets, run.tokens, run.checkpoints, run.etcd]
    assert attack(sockets=sockets, files=secrets, folders=folders, squat=[run.sockets / "m"]) == {}


def test_each_job_of_a_run_has_a_secret_of_its_own(attacked):
    """What the processes of one job know opens no other job's door."""
    _, run = attacked
    held = {name: (run.tokens / name).read_text() for name in ("rows", "other")}
    assert len(set(held.values())) == 2
    for name, token in held.items():
        files = [token_file_of(run, pod["metadata"]["name"]) for pod in pods_of(run, name)]
        assert {Path(file).read_text() for file in files} == {token}


def pods_of(run, job):
    return [pod for pod in get(run, "pods")["items"] if pod["metadata"]["name"].startswith(f"{job}-")]


def token_file_of(run, pod):
    pid = get(run, f"pod/{pod}")["status"]["pid"]
    told = dict(part.split("=", 1) for part in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in part)
    return told["EDL_TOKEN_FILE"]


def get(run, what):
    return json.loads(edl("get", what, "-o", "json", run=run.root))
