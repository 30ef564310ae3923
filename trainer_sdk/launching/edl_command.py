"""The command `edl` of this interpreter: how it is started, and its answers about a run.

What has the cluster side is this command alone, so the SDK imports nothing of it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainer_sdk.errors import JobFailedError, UsageError

_HOME: Final = Path(__file__).resolve().parents[2]  # the command is this EDL's, not another one's on the path
_ANSWER_S: Final = 60.0
_FAILED: Final = frozenset({1, 3})  # exit codes of `edl`: it failed, or found no such run or job


def command_words() -> tuple[str, ...]:
    """The words that start it.  Raises UsageError if the cluster side is not installed."""
    if importlib.util.find_spec("autoscaler") is None or importlib.util.find_spec("click") is None:
        raise UsageError("launch needs the command edl on this machine: install edl[autoscaler]")
    return (sys.executable, "-P", "-m", "autoscaler.cli")


def command_environment() -> Mapping[str, str]:
    """The environment that it is started in: the caller's, without variables of a job."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return inherited | {"PYTHONPATH": os.pathsep.join(filter(None, (str(_HOME), inherited.get("PYTHONPATH"))))}


def ask_run(folder: str, command: str, target: str, *words: str) -> str:
    """Output of a command about the run in this folder.

    Raises UsageError with what it refuses, JobFailedError if it fails, TimeoutError if it does not end.
    """
    try:
        done = subprocess.run(
            [*command_words(), command, "--run", folder, target, *words],
            env=command_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        problem = f"edl {command} {target} has not answered within {_ANSWER_S:g} s"
        raise TimeoutError(f"{problem}: the machine may be overloaded; ask again, or stop the job") from None
    if done.returncode in _FAILED:
        raise JobFailedError(problem_of(done.stderr))
    if done.returncode:
        raise UsageError(problem_of(done.stderr))
    return done.stdout


def problem_of(errors: str) -> str:
    """What the command's standard error says is wrong, without its name, and without how to call it from a shell."""
    return errors.strip().rpartition("\nError: ")[2].removeprefix("edl: ")
