"""`python -m tests.cluster.experiment`: passes of an experiment on the real scheduler, in real time.

Each arm takes some twelve minutes and is kept as soon as it is over; one that this version of the code has played is
not played again.  `python -m experiments report` draws them beside the simulator's.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, get_args

from experiments.__main__ import not_negative, positive
from experiments.errors import ExperimentError, RefusedInputError
from experiments.real.measurement import simulate_counterpart
from experiments.real.recording import REAL, Recording, file_of, has, write_recording
from experiments.running.code_version import read_version
from experiments.running.result_store import digest
from experiments.running.tasks import OWN_NODES, Selection, Task, list_tasks
from experiments.scenarios.loading import find_scenario
from experiments.scenarios.node_mixes import read_mixes
from experiments.scenarios.schema import ArmName, Scenario
from tests.cluster.experiment.compressing import compress
from tests.cluster.experiment.playing import play
from tests.cluster.toolbox import Tools, find_tools
from tests.harness.errors import HarnessError

ARMS: Final[tuple[ArmName, ...]] = ("edl2017", "ours-scheduler", "ours-planner")
FAILED, REFUSED, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """0 done, 1 a pass failed, 2 something was refused, 130 interrupted; what was kept before stays."""
    asked = make_parser().parse_args(arguments)
    try:
        scenario = find_scenario(asked.scenario)
        if asked.compress > 1:
            scenario = compress(scenario, asked.compress)
        tools = find_tools(os.environ)
        for arm in asked.arm or ARMS:
            task = find_task(scenario, arm, asked.mix, asked.seed)
            version = read_version()
            if not asked.again and has(task, version, asked.results):
                say(f"{arm}: kept already, played by {version}; --again plays it again")
                continue
            recording = record(task, version, tools)
            file = file_of(task, asked.results)
            write_recording(recording, file)
            say(f"{arm}: kept in {file.name}; the machine was {recording.machine.busy_percent:g} % busy")
    except ExperimentError as error:
        say(str(error))
        return REFUSED
    except HarnessError as error:
        say(str(error))
        return FAILED
    except KeyboardInterrupt:
        say("interrupted; the same command resumes")
        return INTERRUPTED
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.experiment", description=str(__doc__).split("\n")[0])
    parser.add_argument("--scenario", default="edl2017-case2", help="a name, or a file (default %(default)s)")
    parser.add_argument("--arm", choices=get_args(ArmName), nargs="+", help=f"default: {', '.join(ARMS)}")
    parser.add_argument("--mix", default="mix-1", help="of nodes, where the scenario names none (default %(default)s)")
    parser.add_argument("--seed", type=not_negative, default=1, help="as of `python -m experiments run`")
    parser.add_argument("--compress", type=positive, default=1, metavar="K", help="K times as fast, to try it out")
    parser.add_argument("--again", action="store_true", help="also what is kept already")
    parser.add_argument("--results", type=Path, default=REAL, help=argparse.SUPPRESS)
    return parser


def find_task(scenario: Scenario, arm: ArmName, mix: str, seed: int) -> Task:
    """The first pass of an arm.  Raises RefusedInputError: the scenario has no such arm or mix."""
    if arm == "static":
        raise RefusedInputError(
            scenario.name, "arms", "the static arm is not played for real", "one of ours, or edl2017"
        )
    selection = Selection(seed=seed, passes=1, arm=arm, mix=OWN_NODES if scenario.nodes else mix)
    tasks = list_tasks(scenario, read_mixes(), selection)
    if not tasks:
        raise RefusedInputError(scenario.name, "", f"has no arm {arm} on {mix}", "see `python -m experiments list`")
    return tasks[0]


def record(task: Task, version: str, tools: Tools) -> Recording:
    """Play the pass for real, then on the simulated cluster."""
    setting = task.setting
    lasts_s = setting.scenario.warm_up_s + setting.scenario.until_s
    say(f"{task.arm}: {setting.scenario.name} on {task.mix}, {lasts_s:.0f} s and some 20 s to set up")
    with tempfile.TemporaryDirectory(prefix="edl-experiment-") as folder:
        played = play(setting, Path(folder), tools, say)
    return Recording(
        version=version,
        scenario=digest(setting.scenario),
        experiment=setting.scenario.name,
        mix=task.mix,
        arm=task.arm,
        seed=setting.seed,
        begun=played.begun,
        machine=played.machine,
        evictions=played.evictions,
        remarks=played.remarks,
        pods=played.pods,
        simulated=simulate_counterpart(setting),
    )


def say(text: str) -> None:
    """A line of progress."""
    print(f"{datetime.now().astimezone():%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
