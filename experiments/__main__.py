"""The experiments: `python -m experiments list | run [NAME ...] | report | page`.

`run` simulates passes and stores each; after an interruption it resumes, as long as the code is unchanged.  `report`
draws the figures and writes `docs/reports/experiments.md` from stored passes.  `page`, which `report` does too, makes
`docs/reports/experiments.html` of the reports that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.errors import ExperimentError, ProcessLostError, RefusedInputError
from experiments.running.code_version import read_version
from experiments.running.pool import FinishedPass, run_tasks
from experiments.running.result_store import RESULTS, ResultStore
from experiments.running.tasks import Selection, Task, list_tasks
from experiments.scenarios.loading import find_scenario, list_scenarios
from experiments.scenarios.node_mixes import read_mixes
from experiments.scenarios.schema import Scenario

FAILED, REFUSED, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 done, 1 a pass failed, 2 something was refused, 130 interrupted."""
    given = make_parser().parse_args(arguments)
    try:
        match given.command:
            case "list":
                return print_list(is_json=given.json)
            case "run":
                return run(given)
            case "page":
                return write_page()
            case _:
                from experiments.reporting.write_report import write_report  # noqa: PLC0415 - matplotlib takes half a second

                write_report(ResultStore(given.version or read_version(), given.results), given.seed)
                return write_page()
    except ExperimentError as error:
        print(f"experiments: {error}", file=sys.stderr)
        return FAILED if isinstance(error, ProcessLostError) else REFUSED
    except KeyboardInterrupt:
        print("experiments: interrupted; the same command resumes", file=sys.stderr)
        return INTERRUPTED


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=(__doc__ or "").split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="the experiments, their arms and passes")
    listing.add_argument("--json", action="store_true")
    running = commands.add_parser("run", help="simulate passes and store their results")
    running.add_argument("names", nargs="*", metavar="NAME", help="an experiment or a scenario file; none: all")
    running.add_argument("--passes", type=positive, help="most passes of each arm (default: the scenario's)")
    running.add_argument("--seed", type=not_negative, default=1, help="random seed (default %(default)s)")
    running.add_argument("--arm", help="run this arm only, e.g. ours-planner or ours-planner+drain-10s")
    running.add_argument("--mix", help="run on this node mix only")
    running.add_argument("--workers", type=positive, default=os.cpu_count() or 1, help="processes (default: cores)")
    running.add_argument("--json", action="store_true", help="one JSON line a pass, no progress bar")
    reporting = commands.add_parser("report", help="figures, tables and summary.json from stored passes")
    reporting.add_argument("--version", help="version of the results (default: the present code)")
    reporting.add_argument("--seed", type=not_negative, help="seed of the passes (default: the only one)")
    commands.add_parser("page", help="docs/reports/experiments.html of the reports that are there")
    for command in (running, reporting):
        command.add_argument("--results", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    return parser


def positive(text: str) -> int:
    """Return an integer above 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def not_negative(text: str) -> int:
    """Return an integer, 0 or more: random generators accept nothing else."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("at least 0")
    return value


def print_list(*, is_json: bool) -> int:
    """Print the experiments with their arms and passes."""
    for scenario in list_scenarios():
        arms = [*scenario.arms, *(f"{variant.arm}+{variant.name}" for variant in scenario.variants)]
        if is_json:
            print(json.dumps({"name": scenario.name, "title": scenario.title, "arms": arms, "passes": scenario.passes}))
        else:
            print(f"{scenario.name:24} {scenario.title}\n{'':24} {scenario.passes} passes of {', '.join(arms)}")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Run the passes that have no result yet.  SIGTERM stops as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scenarios = [find_scenario(name) for name in arguments.names] or list(list_scenarios())
    selection = Selection(seed=arguments.seed, passes=arguments.passes, arm=arguments.arm, mix=arguments.mix)
    tasks = select(scenarios, selection)
    store = ResultStore(read_version(), arguments.results)
    missing = [task for task in tasks if not store.has(task)]
    console = Console(stderr=True)
    if not arguments.json:
        console.print(f"version {store.version}: {len(tasks)} passes, {len(tasks) - len(missing)} of them kept already")
    failed = 0
    with make_progress(console, is_hidden=arguments.json) as progress:
        bar = progress.add_task("passes", total=len(missing))
        for done in run_tasks(missing, store, arguments.workers):
            failed += bool(done.error)
            progress.update(bar, advance=1, description=name_of(done.task))
            print_pass(done, progress.console, is_json=arguments.json)
    return FAILED if failed else 0


def write_page() -> int:
    """Write the HTML page of the reports."""
    from experiments.reporting.html_report import write_html  # noqa: PLC0415 - `run` needs no Markdown

    print(f"page: {write_html()}")
    return 0


def select(scenarios: Sequence[Scenario], selection: Selection) -> list[Task]:
    """Return the passes of all scenarios.  Raises RefusedInputError if the selection leaves none."""
    mixes = read_mixes()
    tasks = [task for scenario in scenarios for task in list_tasks(scenario, mixes, selection)]
    if not tasks:
        wanted = " and ".join(
            f"{kind} {name}" for kind, name in (("arm", selection.arm), ("mix", selection.mix)) if name
        )
        raise RefusedInputError("the selection", "", f"no pass has {wanted}", "see `python -m experiments list`")
    return tasks


def make_progress(console: Console, *, is_hidden: bool) -> Progress:
    """Return a progress bar, hidden without a terminal."""
    columns = (
        TextColumn("{task.description:48.48}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=is_hidden or not console.is_terminal)


def name_of(task: Task) -> str:
    """Return the name of a pass for people."""
    return f"{task.setting.scenario.name} {task.mix} {task.arm} {task.number}"


def print_pass(done: FinishedPass, console: Console, *, is_json: bool) -> None:
    """Print a pass as JSON, or a failure for people."""
    if is_json:
        task = done.task
        line = {"experiment": task.setting.scenario.name, "mix": task.mix, "arm": task.arm, "pass": task.number}
        print(json.dumps({**line, "seed": task.setting.seed, "wall_s": round(done.wall_s, 2), "error": done.error}))
    elif done.error:
        console.print(f"{name_of(done.task)} failed: {done.error}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
