"""`make demo`: web load rises and falls, training jobs shrink and grow with it, faults are injected.

    python -m experiments.demo [--seed N] [--no-faults] [--duration TIME] [--json]

The run itself is a local cluster like that of `edl run`: another terminal can run `edl get tj` meanwhile.
`demo_jobs` has the jobs, `load_and_faults` the timeline; `load_driver` applies it, `evaluation` audits the outcome,
`figure` draws it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from autoscaler.cli.exit_codes import Exit
from autoscaler.cli.local.foreground import RunOutput, run_in_foreground
from autoscaler.cli.local.foreground_command import choose_page
from autoscaler.cli.terminal import replace_unencodable_characters
from autoscaler.domain import Resources
from autoscaler.errors import AutoscalerError
from autoscaler.local_run.local_run import LocalRun
from autoscaler.local_run.run_settings import LOCAL_POLICY, RunSettings
from autoscaler.manifests import Manifests, parse_files
from autoscaler.manifests.conversion import make_virtual_node
from autoscaler.quantities import parse_duration_s
from experiments.demo.baseline import Training, measure_epochs_per_s
from experiments.demo.demo_jobs import (
    WEB_LOW,
    WITHOUT_TORCH,
    DemoJob,
    choose_epochs,
    choose_jobs,
    count_nodes,
    estimate_epochs,
    highest_web,
    write_manifests,
)
from experiments.demo.digits import export_digits
from experiments.demo.evaluation import FinishedDemo, evaluate, print_outcome
from experiments.demo.load_and_faults import PlannedFault, WebLoad, plan_faults
from experiments.demo.load_driver import LoadDriver

NODE_CPU_MILLI, NODE_MEMORY_BYTES = 4_000, 8 * 2**30
POLICY: Final = replace(LOCAL_POLICY, down_window_s=4.0, victim_age_s=4.0)
"""A day's load within a minute: the windows of voluntary shrinks are as much shorter, so that servers leave too."""

PAGE_HINT: Final = (
    "to watch a run in a browser: the line 'page: http://127.0.0.1:...' at its start (edl run --page, see docs/page.md)"
)
REPORT_HINT: Final = "how EDL compares with the system of 2017, as a page: {address}"
REPORT: Final = Path(__file__).resolve().parents[2] / "docs" / "reports" / "experiments.html"

LIMIT_FACTOR: Final = 2.5  # times the load's duration: then the demo is stopped, and says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    seed: int
    load_s: float
    has_faults: bool
    epochs: int | None
    is_json: bool
    runs: Path
    has_page: bool | None
    page_port: int | None


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Options of the command line, or of `arguments`."""
    parser = argparse.ArgumentParser(
        prog="make demo", description=str(__doc__).split(":", 1)[1].split("\n\n")[0].strip()
    )
    parser.add_argument("--seed", type=int, default=1, help="of the faults: their targets, and their instants")
    parser.add_argument(
        "--duration",
        type=_duration,
        default=50.0,
        metavar="TIME",
        help="of the rise and fall of the web load, such as 40s (default 50s)",
    )
    parser.add_argument("--no-faults", action="store_true", help="web load alone")
    parser.add_argument(
        "--epochs",
        type=int,
        help="of the lighter job with servers (default: enough to outlast the web load on this machine)",
    )
    parser.add_argument("--json", action="store_true", help="events and the outcome as JSON lines, no live view")
    parser.add_argument("--run-dir", type=Path, default=Path("runs"), help="for run folders (default %(default)s)")
    parser.add_argument(
        "--page",
        action=argparse.BooleanOptionalAction,
        help="serve the page on this machine alone (default: where a terminal is attached)",
    )
    parser.add_argument("--page-port", type=int, help="of the page (default: a free one)")
    given = parser.parse_args(arguments)
    if given.duration < 10:
        parser.error("--duration: a load of less than 10 s leaves no time to start a trainer")
    if given.epochs is not None and given.epochs < 1:
        parser.error("--epochs: at least 1")
    return Options(
        seed=given.seed,
        load_s=given.duration,
        has_faults=not given.no_faults,
        epochs=given.epochs,
        is_json=given.json,
        runs=given.run_dir,
        has_page=given.page,
        page_port=given.page_port,
    )


def _duration(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> int:
    replace_unencodable_characters()
    options = parse_options()
    options.runs.mkdir(parents=True, exist_ok=True)
    digits = export_digits(options.runs)
    training = Training(data=digits.path.absolute())
    demo_jobs = choose_jobs(has_torch=find_spec("torch") is not None)
    lighter_epochs = options.epochs or _estimate_epochs(options, training, demo_jobs)
    epochs = choose_epochs(demo_jobs, lighter_epochs, load_s=options.load_s)
    if not options.is_json:
        jobs = ", ".join(f"{name} {count} epochs" for name, count in epochs.items())
        print(f"{digits.train_count:,} digits to train, {digits.test_count} to test; {jobs}; seed {options.seed}")
        if not any(job.is_group for job in demo_jobs):
            print(WITHOUT_TORCH)
        print(f"from another terminal meanwhile: edl why tj/{next(iter(epochs))}, edl plan, edl what-if --web 9")
    with tempfile.TemporaryDirectory(prefix="edl-demo-") as name:
        try:
            return asyncio.run(_Demo(options, training, demo_jobs, epochs, Path(name)).run())
        except AutoscalerError as error:
            print(f"the demo did not start: {error}", file=sys.stderr)
            return Exit.FAILED


def _estimate_epochs(options: Options, training: Training, jobs: tuple[DemoJob, ...]) -> float:
    return estimate_epochs(jobs, alone_epochs_per_s=measure_epochs_per_s(training), load_s=options.load_s)


class _Demo:
    """One demo, from the files to the figure."""

    def __init__(
        self, options: Options, training: Training, jobs: tuple[DemoJob, ...], epochs: Mapping[str, int], scratch: Path
    ) -> None:
        self._options = options
        self._training = training
        self._jobs = jobs
        self._epochs = epochs
        self._scratch = scratch
        self._web_load = WebLoad(low=WEB_LOW, high=highest_web(jobs), duration_s=options.load_s)
        self._faults = self._plan_faults() if options.has_faults else ()
        self._driver: LoadDriver | None = None
        self._run: LocalRun | None = None

    async def run(self) -> int:
        begun = time.monotonic()
        code = await run_in_foreground(
            self._settings(),
            self._manifests(),
            output=self._show(),
            duration_s=self._options.load_s * LIMIT_FACTOR,
            stays=False,
            background=self._drive,
            page_port=choose_page(is_wanted=self._options.has_page, port=self._options.page_port, output=self._show()),
        )
        if code not in (Exit.OK, Exit.FAILED) or self._run is None:
            return code
        assert self._driver is not None
        finished = FinishedDemo(
            run=self._run,
            driver=self._driver,
            training=self._training,
            jobs=self._jobs,
            epochs=self._epochs,
            models=self._scratch,
            seed=self._options.seed,
            load_s=self._options.load_s,
            faults_planned=len(self._faults),
            seconds=time.monotonic() - begun,
        )
        outcome = await asyncio.to_thread(evaluate, finished)
        print_outcome(outcome, is_json=self._options.is_json)
        if not self._options.is_json:
            print(PAGE_HINT)
            print(REPORT_HINT.format(address=REPORT.as_uri()))
        return Exit.OK if outcome.is_sound else Exit.FAILED

    async def _drive(self, run: LocalRun) -> None:
        self._run = run
        (run.folder.root / "manifests.yaml").write_text(self._filled_in(), encoding="utf-8")
        self._driver = LoadDriver(run, self._web_load, self._faults, seed=self._options.seed)
        await self._driver.drive()

    def _plan_faults(self) -> tuple[PlannedFault, ...]:
        with_servers = tuple(job.name for job in self._jobs if not job.is_group)
        groups = tuple(job.name for job in self._jobs if job.is_group)
        return plan_faults(with_servers, groups, duration_s=self._options.load_s, seed=self._options.seed)

    def _show(self) -> RunOutput:
        if self._options.is_json:
            return RunOutput.JSON
        return RunOutput.VIEW if sys.stdout.isatty() else RunOutput.LINES

    def _settings(self) -> RunSettings:
        capacity = Resources(cpu_milli=NODE_CPU_MILLI, memory_bytes=NODE_MEMORY_BYTES)
        nodes = count_nodes(self._jobs)
        return RunSettings(
            name="demo",
            machines=tuple(make_virtual_node(f"node-{number}", capacity) for number in range(1, nodes + 1)),
            devices=((),) * nodes,
            parent=self._options.runs,
            policy=POLICY,
            described={"command": sys.argv[1:], "seed": self._options.seed},
        )

    def _filled_in(self) -> str:
        return write_manifests(self._jobs, self._epochs, self._training, self._scratch)

    def _manifests(self) -> Manifests:
        path = self._scratch / "manifests.yaml"
        path.write_text(self._filled_in(), encoding="utf-8")
        return parse_files([path])


if __name__ == "__main__":
    sys.exit(main())
