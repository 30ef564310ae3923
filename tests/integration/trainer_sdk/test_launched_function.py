"""`edl.launch`: functions as real jobs, resized, stopped, failed, and their results."""

import importlib
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import trainer_sdk as edl
from tests.harness.edl_command import DEADLINE_S, wait_until

MODULE = """
import glob, os, signal, time
import numpy as np
import trainer_sdk as edl

def train(records, hold=""):
    total = 0
    with edl.open() as session:
        for batch in session.dataset("numbers", size=records, epochs=1, batch_size=10, seed=1):
            while hold and os.path.exists(hold) and not session.is_draining:
                time.sleep(0.02)
            total += int(np.sum(batch.indices))
            batch.done()
    print("trained", flush=True)
    return {"total": total}

def find_in_command_lines(name):
    train(10)
    lines = {}
    for place in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(place) as file:
                lines[place] = file.read()
        except OSError:
            pass  # it has just ended
    value = os.environ[name]
    return {"length": len(value), "named": any(f"--env\\0{name}\\0" in line for line in lines.values()),
            "shown": [line for line in lines.values() if value in line]}

def fail():
    with edl.open() as session:
        for batch in session.dataset("numbers", size=10, epochs=1, batch_size=10, seed=1):
            raise ValueError("the loss is not a number")

def end_slowly(is_open):
    with edl.open() as session:
        for batch in session.dataset("numbers", size=10, epochs=1, batch_size=10, seed=1):
            batch.done()
        if is_open:
            os.kill(os.getpid(), signal.SIGTERM)
    if not is_open:
        os.kill(os.getpid(), signal.SIGTERM)
    return "evaluated"

def compute():
    return 7

def give_a_tuple():
    train(10)
    return 1, 2
"""
SCRIPT = """
import trainer_sdk as edl
FUNCTION
if __name__ == "__main__":
    options = {"cpu": "250m", "memory": "64Mi", "group": False, "etcd": False, "run_dir": "runs"}
    with edl.launch(train, kwargs={"records": 50}, **options) as job:
        print(job.result(timeout=120)["total"])
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's, which trainers find where this process does."""
    (tmp_path / "launched_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module("launched_module")
    sys.modules.pop("launched_module")


def launch(function, *args, **options):
    return edl.launch(function, args, cpu="250m", memory="64Mi", etcd=False, group=False, **options)


@pytest.mark.parametrize("is_open", [True, False])
def test_result_of_a_trainer_that_has_to_leave_after_the_end_is_the_jobs(module, tmp_path, is_open):
    """Trainers that are still busy a minute after the end are terminated: that is not leaving before the end."""
    call = {"module": module.__name__, "qualname": "end_slowly", "path": [str(tmp_path)]}
    (tmp_path / "call.json").write_text(json.dumps(call | {"args": [is_open], "kwargs": {}}))
    alone = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    command = [sys.executable, "-m", "trainer_sdk.launching.launched_function", str(tmp_path)]
    subprocess.run(command, env=alone, cwd=tmp_path, timeout=DEADLINE_S, check=True)
    assert json.loads((tmp_path / "result-0.json").read_text()) == {"ran_to_end": True, "value": "evaluated"}


def test_a_function_runs_is_resized_and_returns(module, tmp_path):
    hold = tmp_path / "hold"
    hold.touch()
    with launch(module.train, 200, str(hold), trainers=(1, 3)) as job:
        wait_until(lambda: job.status().trainers == 3, "growth into the machine")
        with pytest.raises(edl.UsageError, match="may have 1 to 3 trainers"):
            job.resize(7)
        job.resize(2)
        wait_until(lambda: job.status().trainers == 2, "the size that was asked for")
        assert job.status().state == "Running"
        with pytest.raises(TimeoutError):
            job.wait(0.01)
        hold.unlink()
        assert job.wait(DEADLINE_S) == "Completed"
        results = job.results()
        assert job.result() == results[min(results)]
        assert set(results) <= {0, 1, 2}
        assert 0 < sum(one["total"] for one in results.values()) <= sum(range(200)), (
            "the one that left is not among them"
        )
        assert "trained" in job.logs(min(results))
        ended = job.status()
        assert ended.state == "Completed"
        assert ended.committed == ended.samples > 0


def test_a_job_is_stopped(module, tmp_path):
    """Its processes are gone when stop returns, and there is no result."""
    hold = tmp_path / "hold"
    hold.touch()
    job = launch(module.train, 50, str(hold))
    wait_until(lambda: job.status().state == "Running", "its trainer")
    assert job.stop() == "Stopped"
    with pytest.raises(edl.JobFailedError, match=r"Stopped: it was stopped before its end$"):
        job.result()
    assert job.stop() == "Stopped"


def test_an_exception_is_in_the_error_of_the_result(module):
    with (
        launch(module.fail, max_restarts=0) as job,
        pytest.raises(edl.JobFailedError, match="ValueError: the loss is not a number"),
    ):
        job.result(DEADLINE_S)
    assert job.status().state == "Failed"


def test_a_function_without_a_session_is_told_to_open_one(module):
    """It had no part in the job, which therefore fails; the error says what to write."""
    with launch(module.compute, max_restarts=0) as job, pytest.raises(edl.JobFailedError) as failed:
        job.result(DEADLINE_S)
    assert "compute returned and has opened no session" in str(failed.value)
    assert "with edl.open() as session:" in str(failed.value)
    with launch(module.train, 10) as job:
        assert job.result(DEADLINE_S) == {"total": 45}
        assert "session:" not in job.logs()


def test_a_result_that_json_would_change_is_named(module):
    with launch(module.give_a_tuple) as job, pytest.raises(edl.UsageError, match="result: a tuple"):
        job.result(DEADLINE_S)


def test_values_of_variables_stand_in_no_command_line(module):
    """Trainers have them; /proc shows command lines to every user, and these have the names alone."""
    value = uuid.uuid4().hex
    with launch(module.find_in_command_lines, "API_TOKEN", env={"API_TOKEN": value}) as job:
        assert job.result(DEADLINE_S) == {"length": len(value), "named": True, "shown": []}


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"A": "b\0"}, {"EDL_NAME": "x"}])
def test_variables_that_cannot_be_are_refused(module, env):
    with pytest.raises(edl.UsageError, match=r"EDL_NAME|a name has no space"):
        launch(module.train, 10, env=env)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"servers": 2, "group": True}, "--servers and --group exclude each other"),
        ({"group": False, "global_batch": 9}, "--global-batch and --no-group exclude each other"),
        ({"sizes": [1, 4, 2, 8]}, "--sizes: "),
    ],
)
def test_parameters_of_the_group_are_options_of_the_command(module, options, told):
    """They say and refuse what `--group`, `--global-batch` and `--sizes` do."""
    with pytest.raises(edl.UsageError, match=told):
        edl.launch(module.train, (10,), **options)


def test_what_the_command_refuses_is_raised(module):
    """Without the usage of a command line that the caller has not written."""
    with pytest.raises(edl.UsageError, match="--cpu: 'much'"):
        edl.launch(module.train, (10,), cpu="much")
    with pytest.raises(edl.UsageError, match=r"^launch: Invalid value for '--trainers': '2:1'"):
        edl.launch(module.train, (10,), trainers=(2, 1))


def test_a_function_of_a_started_script_is_launched(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.replace("FUNCTION", MODULE))
    argv = [sys.executable, "script.py"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)
    assert done.stdout.splitlines() == [str(sum(range(50)))], done.stderr


def test_a_cell_of_a_notebook_is_launched(tmp_path):
    """`python -` has neither file nor spec, as a notebook's kernel; the source of a cell is in linecache."""
    cell = SCRIPT.replace("FUNCTION", MODULE)
    host = f"import linecache\ncell = {cell!r}\n"
    host += "linecache.cache['<cell>'] = (len(cell), None, cell.splitlines(keepends=True), '<cell>')\n"
    host += "exec(compile(cell, '<cell>', 'exec'))\n"
    done = subprocess.run(
        [sys.executable, "-"],
        input=host,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert done.stdout.splitlines() == [str(sum(range(50)))], done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_job_ends_with_the_interpreter_that_launched_it(tmp_path, number):
    """A kernel that is killed, or a Ctrl-C that nobody catches, leaves no process of the job, and no private folder."""
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "hold").touch()
    source = SCRIPT.replace("FUNCTION", MODULE).replace('"records": 50', '"records": 50, "hold": "hold"')
    source = source.replace("as job:\n", "as job:\n        print(job.run_folder, flush=True)\n")
    (tmp_path / "script.py").write_text(source)
    argv = [sys.executable, "script.py"]
    with subprocess.Popen(
        argv,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path / "private")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        run = owner.stdout.readline().strip()
        try:
            wait_until(lambda: list(Path(run, "logs").glob("*trainer*")), "a trainer")
            assert len(list(tmp_path.glob("private/edl-launch-*"))) == 1
            owner.send_signal(number)
            owner.wait(DEADLINE_S)
            wait_until(lambda: "ended" in Path(run, "run.json").read_text(), "the end of the run")
            wait_until(lambda: not list(tmp_path.glob("private/edl-launch-*")), "the private folder to go")
        finally:
            owner.kill()
