"""A job's handle tells the end also where the command `edl launch` or its private folder is not as it should be."""

import sys
import tempfile

import pytest

import trainer_sdk as edl
from tests.harness.edl_command import DEADLINE_S
from trainer_sdk.launching import edl_command
from trainer_sdk.launching.function_reference import FunctionReference
from trainer_sdk.launching.launch_process import LaunchProcess

COMMAND = """
import json, pathlib, shutil, sys, time
private = pathlib.Path(sys.argv[-1])

def say(line):
    print(json.dumps(line), flush=True)

def end(result):
    (private / "result-0.json").write_text(result)
    say({"jobs": {"train": "Completed"}})

say({"run": "somewhere"})
"""
WHOLE = '{"ran_to_end": true, "value": 7}'


def train():
    """Never called: no trainer is started."""


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """A function that launches with a command of this source: what `edl launch` does only when something breaks."""

    def launch_with(source):
        (tmp_path / "command.py").write_text(COMMAND + source)
        monkeypatch.setattr(edl_command, "command_words", lambda: (sys.executable, str(tmp_path / "command.py")))
        return edl.launch(train)

    return launch_with


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("for _ in range(9000): print('no JSON, and more than a pipe holds')", "'no JSON, and more"),
        ("print(7)", "a line that cannot be read: '7'"),
        ("say({'jobs': 'all'})", "a line that cannot be read"),
        ("sys.stdout.buffer.write(bytes([255, 10]))", "a line that cannot be read"),
        ("shutil.rmtree(private); say({'jobs': {'train': 'Completed'}})", "its end could not be read: FileNotFound"),
        ("end('{\"ran')", "its end could not be read: JSONDecodeError"),
        ("sys.exit('edl: the disk is full')", "the disk is full"),
        (
            "say({'jobs': {'train': 'Completed'}, 'messages': {'train': 'but after the end ValueError: no'}})",
            "in no trainer the function returned before it had to leave: but after the end ValueError: no",
        ),
    ],
)
def test_an_end_that_cannot_be_read_is_told(launch, source, told):
    """`result` raises with the reason, in place of waiting for ever, and the private folder is gone."""
    job = launch(source)
    with pytest.raises(edl.JobFailedError) as refused:
        job.result(DEADLINE_S)
    assert told in str(refused.value)
    assert not job._launch._private.exists()


def test_a_stray_line_does_not_cost_the_result(launch):
    """Lines after it are read, the end among them."""
    assert launch(f"print('a stray line'); end({WHOLE!r})").result(DEADLINE_S) == 7


def test_a_command_that_does_not_answer_is_a_timeout(launch, monkeypatch):
    """The job goes on: the caller may ask again, or stop it."""
    monkeypatch.setattr(edl_command, "_ANSWER_S", 0.5)
    job = launch(f"if sys.argv[1] != 'launch': time.sleep(1e6)\nsys.stdin.read(1)\nend({WHOLE!r})")
    for ask in (job.status, job.logs, lambda: job.resize(2)):
        with pytest.raises(TimeoutError, match=r"edl \w+ tj/train has not answered within 0.5 s"):
            ask()
    job._launch._process.stdin.close()
    assert job.result(DEADLINE_S) == 7


@pytest.mark.parametrize("broken", ["call", "command"])
def test_a_launch_that_cannot_begin_leaves_no_folder(tmp_path, monkeypatch, broken):
    """The private folder has arguments and source, and nobody would remove it later."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if broken == "command":
        monkeypatch.setattr(edl_command, "command_words", lambda: (str(tmp_path / "nowhere"),))
    reference = FunctionReference(qualname="train", source="\udc80" if broken == "call" else "")
    with pytest.raises((OSError, UnicodeEncodeError)):
        LaunchProcess("train", reference, [], {}, [], variables={})
    assert not list(tmp_path.iterdir())
