"""`make demo`: a web service rises and falls, two training jobs give way and take the room back, three faults strike.

    python -m experiments.demo [--seed N] [--no-faults] [--duration S] [--json]

The run itself is a local cluster like that of `edl run`: another terminal may say `edl get tj` meanwhile.  The play is
in `script`, its performance in `play`, what it came to in `outcome`, the picture in `figure`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import string
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from autoscaler.cli.exits import Exit
from autoscaler.cli.foreground import Show, run_in_foreground
from autoscaler.clusters.local.run import LocalRun, RunSettings
from autoscaler.clusters.local.snapshot import RunSnapshot
from autoscaler.domain import Resources
from autoscaler.errors import AutoscalerError
from autoscaler.manifests import Manifests, parse_files
from autoscaler.manifests.building import make_machine
from experiments.demo.baseline import SCRIPT, Training, measure_accuracy, measure_epochs_per_s, start_alone
from experiments.demo.data import export_digits
from experiments.demo.figure import draw_run
from experiments.demo.outcome import SUMMARY_HEAD, JobOutcome, Outcome, count_positions, summary_rows
from experiments.demo.play import WORKLOAD, Play
from experiments.demo.record import measure_waits, parse_samples, read_lines
from experiments.demo.script import Tide, plan_faults
from master.api.audit import read_checkpoint
from master.api.errors import ContractError

HERE: Final = Path(__file__).parent
JOBS: Final = {"digits-a": 200, "digits-b": 100}  # and their weights
NODES, NODE_CPU_MILLI, NODE_MEMORY_BYTES = 4, 4_000, 8 * 2**30
WEB_LOW, WEB_HIGH = 2, 9
LIMIT_FACTOR: Final = 2.5  # times the tide: then the demo is stopped, and says so
SHARE_OF_ALONE: Final = 0.22
"""Epochs a second of each of the two jobs, beside what one process alone does on a free core: measured on 2 cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    seed: int
    tide_s: float
    has_faults: bool
    epochs: int | None
    is_json: bool
    runs: Path


def parse_options() -> Options:
    parser = argparse.ArgumentParser(
        prog="make demo", description=str(__doc__).split(":", 1)[1].split("\n\n")[0].strip()
    )
    parser.add_argument("--seed", type=int, default=1, help="of the play: whom the faults strike, and just when")
    parser.add_argument(
        "--duration", type=float, default=50.0, metavar="S", help="of the web's tide (default %(default)s)"
    )
    parser.add_argument("--no-faults", action="store_true", help="the tide alone")
    parser.add_argument(
        "--epochs", type=int, help="of each job (default: measured to outlast the tide on this machine)"
    )
    parser.add_argument("--json", action="store_true", help="events and the outcome as JSON lines, no live view")
    parser.add_argument("--run-dir", type=Path, default=Path("runs"), help="for run folders (default %(default)s)")
    given = parser.parse_args()
    if given.duration < 10:
        parser.error("--duration: a tide of less than 10 s leaves no time to start a trainer")
    if given.epochs is not None and given.epochs < 1:
        parser.error("--epochs: at least 1")
    return Options(
        seed=given.seed,
        tide_s=given.duration,
        has_faults=not given.no_faults,
        epochs=given.epochs,
        is_json=given.json,
        runs=given.run_dir,
    )


def main() -> int:
    options = parse_options()
    options.runs.mkdir(parents=True, exist_ok=True)
    training = _choose_training(options)
    with tempfile.TemporaryDirectory(prefix="edl-demo-") as name:
        try:
            return asyncio.run(_Demo(options, training, Path(name)).run())
        except AutoscalerError as error:
            print(f"the demo did not start: {error}", file=sys.stderr)
            return Exit.FAILED


def _choose_training(options: Options) -> Training:
    digits = export_digits(options.runs)
    training = Training(data=digits.path.absolute(), epochs=options.epochs or 1)
    if options.epochs is None:
        epochs = round(measure_epochs_per_s(training) * SHARE_OF_ALONE * options.tide_s)
        training = Training(data=training.data, epochs=max(2, epochs))
    if not options.is_json:
        print(
            f"{digits.train_count:,} digits x {training.epochs} epochs for each of two jobs, "
            f"{digits.test_count} digits to test on; seed {options.seed}"
        )
    return training


class _Demo:
    """One demo, from the files to the figure."""

    def __init__(self, options: Options, training: Training, scratch: Path) -> None:
        self._options = options
        self._training = training
        self._scratch = scratch
        self._tide = Tide(low=WEB_LOW, high=WEB_HIGH, duration_s=options.tide_s)
        self._faults = plan_faults((*JOBS,), duration_s=options.tide_s, seed=options.seed) if options.has_faults else ()
        self._play: Play | None = None
        self._run: LocalRun | None = None
        self._last: RunSnapshot | None = None

    async def run(self) -> int:
        begun = time.monotonic()
        code = await run_in_foreground(
            self._settings(),
            self._manifests(),
            show=self._show(),
            duration_s=self._options.tide_s * LIMIT_FACTOR,
            stays=False,
            beside=self._perform,
        )
        if code not in (Exit.OK, Exit.FAILED) or self._run is None:
            return code
        outcome = await asyncio.to_thread(self._judge, self._run, time.monotonic() - begun)
        return Exit.OK if outcome.is_sound else Exit.FAILED

    async def _perform(self, run: LocalRun) -> None:
        self._run = run
        (run.folder.root / "manifests.yaml").write_text(self._filled_in(), encoding="utf-8")
        self._play = Play(run, self._tide, self._faults, seed=self._options.seed)
        await self._play.perform()

    def _show(self) -> Show:
        if self._options.is_json:
            return Show.JSON
        return Show.VIEW if sys.stdout.isatty() else Show.LINES

    def _settings(self) -> RunSettings:
        capacity = Resources(cpu_milli=NODE_CPU_MILLI, memory_bytes=NODE_MEMORY_BYTES)
        return RunSettings(
            name="demo",
            machines=tuple(make_machine(f"node-{number}", capacity) for number in range(1, NODES + 1)),
            devices=((),) * NODES,
            parent=self._options.runs,
            described={"command": sys.argv[1:], "seed": self._options.seed},
        )

    def _filled_in(self) -> str:
        training = self._training
        known = {
            "python": sys.executable,
            "script": SCRIPT,
            "web_script": SCRIPT.parent / "web_server.py",
            "out": self._scratch,
            "web_low": WEB_LOW,
            **asdict(training),
        }
        documents = [_fill("job.yaml", known | {"name": name, "weight": weight}) for name, weight in JOBS.items()]
        return "---\n".join([*documents, _fill("web.yaml", known)])

    def _manifests(self) -> Manifests:
        path = self._scratch / "manifests.yaml"
        path.write_text(self._filled_in(), encoding="utf-8")
        return parse_files([path])

    # ---- afterwards ---------------------------------------------------------------------------------------------

    def _judge(self, run: LocalRun, seconds: float) -> Outcome:
        """Audit, compare, draw, and tell."""
        assert self._play is not None
        alone = start_alone(self._training)
        try:
            root = run.folder.root
            samples = parse_samples(read_lines(run.folder.samples), workload=WORKLOAD)
            title = "Two jobs beside a web service's tide, virtual CPUs"
            draw_run(samples, self._play.marks, root / "demo.png", title=title)
            baseline = float(alone.communicate(timeout=600)[0].splitlines()[-1])
        finally:
            alone.kill()
        outcome = Outcome(
            seed=self._options.seed,
            duration_s=round(seconds, 1),
            tide_s=self._options.tide_s,
            jobs=tuple(self._judge_job(run, name, baseline) for name in JOBS),
            web=measure_waits(self._play.waits),
            faults=tuple(self._play.marks),
            faults_planned=len(self._faults),
            folder=str(root),
        )
        (root / "demo.json").write_text(json.dumps(outcome.as_json(), indent=1) + "\n", encoding="utf-8")
        self._tell(outcome)
        return outcome

    def _judge_job(self, run: LocalRun, name: str, baseline: float) -> JobOutcome:
        record = run.cluster.jobs.records[name]
        progress = record.progress
        accuracy, trained, lost, repeated = None, 0, 0, 0
        model = self._scratch / name / "model.npz"
        if model.exists():
            shutil.copy(model, run.folder.root / f"{name}.npz")
            with np.load(model) as archive:
                weights = dict(archive)
            trained, lost, repeated = count_positions(weights.pop("ledger"), epochs=self._training.epochs)
            accuracy = measure_accuracy(weights, self._training)
        message, missing, quarantined = record.life.message, 0, 0
        try:
            audit = read_checkpoint(record.place.checkpoint_uri)
            missing = sum(len(epoch.missing) for epoch in audit.epochs)
            quarantined = sum(len(epoch.quarantined) for epoch in audit.epochs)
            message = message or "; ".join(audit.problems)
        except ContractError as error:
            message = str(error)
        with np.load(self._training.data) as arrays:
            split = len(arrays["y_train"])
        return JobOutcome(
            name=name,
            is_complete=run.outcomes()[name] == "Completed",
            message=message,
            split=split,
            epochs=self._training.epochs,
            trained=trained,
            lost=lost,
            repeated=repeated,
            missing=missing,
            quarantined=quarantined,
            reworked=progress.reworked if progress is not None else 0,
            lineage=progress.lineage if progress is not None else 0,
            accuracy=accuracy,
            baseline=baseline,
        )

    def _tell(self, outcome: Outcome) -> None:
        if self._options.is_json:
            print(json.dumps({"outcome": outcome.as_json()}), flush=True)
            return
        table = Table(*SUMMARY_HEAD, title="samples x epochs, counted by the models themselves", title_justify="left")
        for row in summary_rows(outcome.jobs):
            table.add_row(*row)
        console = Console()
        console.print(table)
        web = outcome.web
        if web.median_s is not None:
            waited = f"median {web.median_s:.2f} s, longest {web.worst_s:.2f} s"
            print(f"web pods, pending to answering: {waited} ({web.count} pods)")
        for mark in outcome.faults:
            print(f"{mark.at_s:6.1f} s  {mark.label} {mark.job}")
        print(f"figure: {outcome.folder}/demo.png\nrun folder: {outcome.folder}   ({outcome.duration_s:.0f} s)")


def _fill(file: str, known: Mapping[str, object]) -> str:
    return string.Template((HERE / file).read_text(encoding="utf-8")).substitute(known)


if __name__ == "__main__":
    sys.exit(main())
