"""Another user of the same machine learns nothing of a run and changes nothing in it (ADR 0170)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.clusters.local.run_files.run_folder import RunFolder
from master.api.checkpoints.folder_lock import RUN_LOCK, WRITERS_LOCK, claim_folder
from master.api.checkpoints.storage import open_storage
from master.api.errors import StorageError
from tests.harness.attacker import attack, family_of, listening_ports, needs_root, open_folder
from tests.harness.edl_command import (
    DEADLINE_S,
    EDL,
    FILES,
    PROGRAMS,
    EdlRun,
    environment_of,
    pid_of,
    progress_in,
    read_run,
    wait_until,
)
from tests.integration.cli.test_whole import JOB

pytestmark = needs_root

ROOT = PROGRAMS.parents[1]
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
    found = [progress_in(run.root, job) for job in ("rows", "other")]
    return all(progress is not None and progress.done > 0 for progress in found)


def test_another_user_reaches_no_part_of_a_run(attacked):
    """No port is open, no socket is connected to, no secret is read, no folder listed, no place taken."""
    process, run = attacked
    sockets = list(run.sockets.iterdir())
    assert len(sockets) >= 10, "control, etcd's three, masters, servers"
    assert listening_ports(family_of(process.pid)) == set()
    secrets = [*run.tokens.glob("*/*"), run.manifest, run.events, run.log_of("rows-trainer-0")]
    assert {"token", "tls.key"} <= {path.name for path in secrets}
    assert all(path.exists() for path in secrets)
    folders = [run.root, run.sockets, run.tokens, *run.tokens.iterdir(), run.checkpoints, run.etcd]
    assert attack(sockets=sockets, files=secrets, folders=folders, squat=[run.sockets / "m"]) == {}


def test_each_job_of_a_run_has_a_secret_of_its_own(attacked):
    """What the processes of one job know opens no other job's door."""
    _, run = attacked
    held = {}
    for name in ("rows", "other"):
        files = [token_file_of(run, pod["metadata"]["name"]) for pod in pods_of(run, name)]
        (held[name],) = {Path(file).read_text() for file in files}
        assert {Path(file).parent.parent for file in files} == {run.tokens}
    assert held["rows"] != held["other"]


def test_another_user_holds_up_no_run_by_a_lock():
    """Who could read the lock of a checkpoint folder could hold it, and every run said that the folder is in use."""
    with open_folder() as folder:
        storage = open_storage(str(folder / "checkpoints"))
        locks = [folder / "checkpoints" / name for name in (RUN_LOCK, WRITERS_LOCK)]
        (folder / "checkpoints").mkdir()
        for path in locks:
            path.touch(mode=0o644)  # as an earlier version left it
        claim_folder(storage, "a run").release()
        assert attack(locks=locks, files=locks) == {}
        claim_folder(storage, "the next run").release()
        (folder / "checkpoints").chmod(0o777)
        with pytest.raises(StorageError, match="every user may write to"):
            claim_folder(storage, "a run")


def test_another_user_writes_nowhere_that_a_run_has_made_under_a_umask_of_0():
    """The folder of the runs was everybody's: a stranger put a folder of his own in the place of a run's."""
    with open_folder() as folder:
        uri = folder / "deep/er/cp"
        run = EdlRun(folder, files=FILES.replace("  trainer:", f"  checkpoint: {{uri: {uri}}}\n  trainer:", 1), umask=0)
        try:
            wait_until((uri / RUN_LOCK).exists, "the claim of the folder")
            assert everything_that_is_open_in(folder) == {}
        finally:
            run.end()


def test_another_user_writes_to_no_checkpoint_that_is_made_under_a_umask_of_0():
    """Nor into its folder, nor into those above it."""
    with open_folder() as folder:
        before = os.umask(0)
        try:
            storage = open_storage(str(folder / "cp" / "of" / "job"))
            claim_folder(storage, "a script").release()
            storage.write_file("model/part", [b"1"])
            storage.move("model/part", "retired/part")
            open_storage(str(folder / "other/cp")).write_file("HEAD", [b"1"])
        finally:
            os.umask(before)
        assert everything_that_is_open_in(folder) == {}


def everything_that_is_open_in(folder):
    """What a stranger could write to, or make something in."""
    found = [path for path in folder.rglob("*") if not path.is_symlink()]
    files = [path for path in found if path.is_file()]
    assert files
    return attack(makes=[folder, *(path for path in found if path.is_dir())], writes=files)


def test_another_user_reaches_no_part_of_a_script_that_runs_alone():
    """`python script.py`: its master and server had no secret at all, on two ports."""
    with open_folder() as folder:
        environment = {**os.environ, "ROWS_EPOCHS": "100000", "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, str(PROGRAMS / "rows.py")]
        with subprocess.Popen(argv, cwd=folder, env=environment, stderr=subprocess.DEVNULL) as script:
            try:
                wait_until(lambda: len(list(folder.glob("edl-*/s/*"))) == 2, "its master and server")
                (private,) = folder.glob("edl-*")
                sockets = list(private.glob("s/*"))
                assert listening_ports(family_of(script.pid)) == set()
                found = attack(sockets=sockets, files=[private / "token"], folders=[private, private / "s"])
                assert (private / "token").exists()
                assert found == {}
            finally:
                script.terminate()
                script.wait(DEADLINE_S)


def pods_of(run, job):
    return [pod for pod in get(run, "pods")["items"] if pod["metadata"]["name"].startswith(f"{job}-")]


def token_file_of(run, pod):
    return environment_of(pid_of(get(run, f"pod/{pod}")))["EDL_TOKEN_FILE"]


def get(run, what):
    return read_run(run.root, what)
