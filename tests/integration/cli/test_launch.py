"""`edl launch`: real scripts as jobs of this machine, from another process."""

import json
import os
import signal
import subprocess
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoscaler.clusters.local.run_files.run_folder import RunFolder
from tests.harness.edl_command import DEADLINE_S, EDL, edl, ready_trainers, wait_until

TRAIN = """
import argparse, json, os, time
import numpy as np
import trainer_sdk as edl

parser = argparse.ArgumentParser()
parser.add_argument("--records", type=int, default=200)
parser.add_argument("--hold", default="")   # trains on while this file exists
parser.add_argument("--fails", action="store_true")
options = parser.parse_args()
total = 0
with edl.open() as session:
    for batch in session.dataset("numbers", size=options.records, epochs=1, batch_size=10, seed=1):
        if options.fails:
            raise ValueError("the loss is not a number")
        while options.hold and os.path.exists(options.hold) and not session.is_draining:
            time.sleep(0.02)
        total += int(np.sum(batch.indices))
        batch.done()
print("total", total, os.environ["LEVEL"], flush=True)
"""
COUNT = """
import os, sys, time
import numpy as np
import trainer_sdk as edl
from trainer_sdk.errors import StepAborted
from trainer_sdk.group.port import CapturedState

class Counts:
    layout = "counts"
    values = np.zeros(200, dtype=np.int64)
    def capture(self):
        return CapturedState(arrays={"counts": self.values.copy()})
    def restore(self, captured):
        self.values = captured.arrays["counts"].copy()
    def digests(self):
        return {"counts": int(self.values @ np.arange(200))}

replica, sizes = Counts(), set()
with edl.open() as session:
    session.replicate(replica)
    steps = session.group_steps("numbers", size=200, epochs=int(os.environ.get("EPOCHS", "100")))
    while (share := steps.next_step()) is not None:
        sizes.add(share.size)
        if os.path.exists(sys.argv[1]):  # until its test has seen enough
            time.sleep(0.2)
        trained = np.zeros(200, dtype=np.int64)
        trained[steps.records(share.positions)] += 1
        try:
            steps.all_reduce(trained)
        except StepAborted:
            continue
        if steps.end_step():
            replica.values += trained
print("counts", *set(replica.values.tolist()), "sizes", *sorted(sizes), flush=True)
"""
FAST = ("--no-etcd", "--no-view", "--cpu", "250m", "--memory", "64Mi", "--env", "LEVEL=7")
SHARDING = (*FAST, "--no-group")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def hold(folder):
    """Scripts that are given this file train on until it is gone."""
    (file := folder / "hold").touch()
    return file


@pytest.fixture
def count(folder):
    """A script with a replica, which counts how often each record was trained."""
    (folder / "count.py").write_text(COUNT)


@contextmanager
def launched(folder, *words, options=SHARDING, environment=None):
    """`edl launch` in another process, and the folder of its run; it is killed at the end of the context."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    variables = os.environ | (environment or {})
    with subprocess.Popen([EDL, "launch", *options, *words], cwd=folder, env=variables, **pipes) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("run folder: "), line + process.stdout.read()
            run = RunFolder(root=Path(line.removeprefix("run folder: ").strip()))
            wait_until(run.is_live, "the control socket")
            yield process, run.root
        finally:
            process.kill()


def end(process, code=0):
    """What the launch has printed; it must end with this exit code."""
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code, out
    return out


def run_to_end(folder, *words, command="launch", options=FAST, environment=None, code=0):
    """What the command has printed; it must end with this exit code."""
    argv, variables = [EDL, command, *options, *words], os.environ | (environment or {})
    done = subprocess.run(
        argv, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def logs_of(run, job):
    """Lines of each trainer that the run had."""
    return [log.read_text().splitlines() for log in (run / "logs").glob(f"{job}-trainer-*.log")]


def test_a_script_is_launched_resized_and_ends(folder, hold):
    """The numbers of all trainers together are those of the whole data set, each once."""
    with launched(folder, "--trainers", "1:3", "train.py", "--hold", str(hold)) as (process, run):
        wait_until(lambda: ready_trainers(run, "train") == 3, "growth into the machine")
        edl("scale", "tj/train", "--trainers", "2", run=run)
        wait_until(lambda: ready_trainers(run, "train") == 2, "the size that was asked for")
        hold.unlink()
        out = end(process)
    assert "tj/train: Completed" in out
    totals = [words for lines in logs_of(run, "train") for words in map(str.split, lines) if words[:1] == ["total"]]
    assert sum(int(words[1]) for words in totals) == sum(range(200))
    assert {words[2] for words in totals} == {"7"}


def test_what_a_dry_run_prints_is_run_by_edl_run(folder):
    options = ("--dry-run", "--no-group", "--cpu", "250m", "--env", "LEVEL=7")
    (folder / "job.yaml").write_text(run_to_end(folder, "train.py", options=options))
    assert "tj/train is valid" in edl("validate", str(folder / "job.yaml"))
    out = run_to_end(folder, "job.yaml", command="run", options=("--no-etcd", "--no-view"))
    assert "tj/train: Completed" in out


def compared(run):
    return json.loads(edl("data", "audit", "tj/count", "--replicas", "--json", run=run))


@pytest.mark.usefixtures("count")
def test_a_group_grows_and_every_trainer_holds_the_model(folder, hold):
    """All trainers of the end have the same replica, in which each epoch trained each record once; the batch is the
    launch's.  Meanwhile they compare their replicas on request.
    """
    words = ("--sizes", "1,3", "--global-batch", "50", "count.py", str(hold))
    with launched(folder, *words, options=FAST) as (process, run):
        wait_until(lambda: ready_trainers(run, "count") == 3, "growth into the machine")
        wait_until(lambda: compared(run)["trainers"] == 3, "a comparison by all")
        fresh = compared(run)
        hold.unlink()
        end(process)
    assert fresh["is_fresh"]
    assert fresh["digest"]
    assert fresh["problem"] == ""
    ended = [lines[-1] for lines in logs_of(run, "count")]
    assert len(ended) == 3
    assert all(line.startswith("counts 100 sizes") and line.endswith("3") for line in ended), ended


@pytest.mark.usefixtures("count")
def test_a_job_that_begins_where_another_ended_grows_and_trains_what_is_left(folder):
    """With more epochs the folder's last checkpoint is no end of this job."""
    words = ("--sizes", "1,3", "--global-batch", "50", "--checkpoint", "kept", "--env", "EPOCHS", "count.py")
    run_to_end(folder, *words, "hold", environment={"EPOCHS": "2"})
    (hold := folder / "hold").touch()
    with launched(folder, *words, str(hold), options=FAST, environment={"EPOCHS": "100"}) as (process, run):
        wait_until(lambda: ready_trainers(run, "count") == 3, "growth into the machine")
        hold.unlink()
        end(process)
    ended = [lines[-1] for lines in logs_of(run, "count")]
    assert ended
    assert all(line.startswith("counts 100 sizes") for line in ended), ended


def test_a_script_that_shares_out_data_is_told_how_it_is_launched(folder):
    """Its job is a group by default, in which nobody hands out shards."""
    out = run_to_end(folder, "--max-restarts", "0", "train.py", code=1)
    assert "UsageError: group: this script asks for shards" in out
    assert "edl launch --no-group" in out


@pytest.mark.parametrize(("kind", "page"), [((), "docs/pytorch.md"), (("--no-group",), "docs/guide.md")])
def test_script_that_does_not_use_edl_is_run_once_and_told_what_it_lacks(folder, kind, page):
    """It ends well each time, so a repeated start would only train everything again."""
    (folder / "plain.py").write_text('open("starts", "a").write("started\\n"); print("loss 0.1", flush=True)\n')
    out = run_to_end(folder, "--trainers", "1", *kind, "plain.py", code=1)
    assert "exited with code 0, and opened no session with its job: the script does not use EDL" in out
    assert page in out
    assert "loss 0.1" in out, "the last lines of its log"
    assert (folder / "starts").read_text().splitlines() == ["started"]


def test_values_of_variables_are_in_no_file_of_the_run(folder):
    """Trainers have them; what describes the run has the names alone, whichever way they were given."""
    value = uuid.uuid4().hex
    run_to_end(folder, "--no-group", "--env", f"API_TOKEN={value}", f"--env=OTHER={value}", "train.py")
    (run,) = (folder / "runs").iterdir()
    described = json.loads((run / "run.json").read_text())
    assert described["command"][-4:] == ["--env", "API_TOKEN", "--env=OTHER", "train.py"]
    assert "API_TOKEN" in described["files"]["edl launch"]
    assert not [file for file in run.rglob("*") if file.is_file() and value.encode() in file.read_bytes()]


def test_the_traceback_of_a_script_that_fails_is_shown(folder):
    out = run_to_end(folder, "--max-restarts", "0", "train.py", "--fails", options=SHARDING, code=1)
    assert "ValueError: the loss is not a number" in out
    assert "tj/train: Failed" in out


def test_a_script_that_fails_after_the_end_is_told_by_the_exit_code(folder):
    """Training is complete, and what the script was to do with it is missing."""
    (folder / "late.py").write_text(f"{TRAIN}\nraise ValueError('the model was not sent')\n")
    out = run_to_end(folder, "--trainers", "1", "late.py", options=SHARDING, code=1)
    assert "tj/late: Completed: every sample was trained and committed" in out
    assert "after the end trainer late-trainer-0 exited with code 1" in out
    assert "ValueError: the model was not sent" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_job_in_order(folder, hold, number):
    with launched(folder, "--trainers", "2", "train.py", "--hold", str(hold)) as (process, run):
        wait_until(lambda: ready_trainers(run, "train") == 2, "both trainers")
        process.send_signal(number)
        end(process, code=130)
    assert json.loads((run / "run.json").read_text())["jobs"] == {"train": "Running"}


def test_the_end_of_its_owner_ends_the_job(folder):
    """A program that started the launch and is killed leaves nothing running: its end of the pipe closes."""
    argv = [EDL, "launch", *SHARDING, "--json", "--ends-with-stdin", "train.py", "--hold", str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, cwd=folder, **pipes) as process:
        try:
            lines = map(json.loads, process.stdout)
            run = Path(next(lines)["run"])
            wait_until(lambda: next(lines).get("event", {}).get("kind") == "Ready", "a ready pod")
            process.stdin.close()
            *_, last = lines
            assert process.wait(DEADLINE_S) == 130
        finally:
            process.kill()
    assert last["run"] == str(run)
    assert set(last["jobs"]) == {"train"}
