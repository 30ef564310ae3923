"""After the play: audit each job, hold its accuracy against one process alone, draw the figure, tell the outcome."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from autoscaler.clusters.local.run import LocalRun
from experiments.demo.baseline import Training, measure_accuracy, start_alone
from experiments.demo.figure import draw_run
from experiments.demo.load_driver import WORKLOAD, LoadDriver
from experiments.demo.outcome import SUMMARY_HEAD, UNFINISHED, DemoOutcome, JobOutcome, count_positions, summary_rows
from experiments.demo.run_samples import Sample, count_servers, measure_waits, parse_samples, read_lines
from master.api.checkpoints.audit import read_checkpoint
from master.api.errors import ContractError

TABLE_WIDTH: Final = 120
ALONE_LIMIT_S: Final = 120.0
TITLE: Final = "Two jobs beside a web service's tide (virtual CPUs)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedDemo:
    """A demo that has ended.  `models` holds NAME/model.npz of each job that came to its end."""

    run: LocalRun
    play: LoadDriver
    training: Training
    epochs: Mapping[str, int]
    models: Path
    seed: int
    tide_s: float
    faults_planned: int
    seconds: float


def evaluate(performance: FinishedDemo) -> DemoOutcome:
    """The verdict; figure, JSON and the final models are in the run folder afterwards."""
    root = performance.run.folder.root
    counts = sorted(performance.epochs.values())
    alone = start_alone(performance.training, *counts)
    try:
        samples = parse_samples(read_lines(performance.run.folder.samples), workload=WORKLOAD)
        draw_run(samples, performance.play.marks, root / "demo.png", title=TITLE)
        baseline = _hear(alone, counts)
    finally:
        alone.kill()
    outcome = DemoOutcome(
        seed=performance.seed,
        duration_s=round(performance.seconds, 1),
        load_cycle_s=performance.tide_s,
        jobs=tuple(
            _judge_job(performance, samples, name, baseline.get(count)) for name, count in performance.epochs.items()
        ),
        web=measure_waits(performance.play.waits),
        faults=tuple(performance.play.marks),
        faults_planned=performance.faults_planned,
        folder=str(root),
    )
    (root / "demo.json").write_text(json.dumps(outcome.as_json(), indent=1) + "\n", encoding="utf-8")
    return outcome


def _hear(alone: subprocess.Popen[str], counts: Sequence[int]) -> Mapping[int, float]:
    """Accuracy by number of epochs; what the process did not come to say is missing, and its job not sound."""
    try:
        said = alone.communicate(timeout=ALONE_LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        said = ""
    return {count: float(line) for count, line in zip(counts, said.splitlines(), strict=False)}


def print_outcome(outcome: DemoOutcome, *, is_json: bool) -> None:
    """Print the outcome for people, or as one line of JSON."""
    if is_json:
        print(json.dumps({"outcome": outcome.as_json()}), flush=True)
        return
    table = Table(*SUMMARY_HEAD, title="samples x epochs, counted by the models themselves", title_justify="left")
    for row in summary_rows(outcome.jobs):
        table.add_row(*row)
    Console(width=max(Console().width, TABLE_WIDTH)).print(table)
    if any(job.verdict == UNFINISHED for job in outcome.jobs):
        print("the time was over before all jobs had ended: this machine was busy; fewer --epochs end in time")
    web = outcome.web
    if web.median_s is not None:
        waited = f"median {web.median_s:.2f} s, longest {web.worst_s:.2f} s"
        print(f"web pods, pending to answering: {waited} ({web.count} pods)")
    for mark in outcome.faults:
        print(f"{mark.at_s:6.1f} s  {mark.label} {mark.job}")
    if missing := outcome.faults_planned - len(outcome.faults):
        print(f"{missing} of {outcome.faults_planned} faults did not strike: the jobs were over, or nobody was ready")
    print(f"figure: {outcome.folder}/demo.png\nrun folder: {outcome.folder}   ({outcome.duration_s:.0f} s)")


def _judge_job(performance: FinishedDemo, samples: Sequence[Sample], name: str, baseline: float | None) -> JobOutcome:
    run, epochs = performance.run, performance.epochs[name]
    record = run.cluster.jobs.records[name]
    accuracy, trained, lost, repeated = None, 0, 0, 0
    model = performance.models / name / "model.npz"
    if model.exists():
        shutil.copy(model, run.folder.root / f"{name}.npz")
        with np.load(model) as archive:
            weights = dict(archive)
        trained, lost, repeated = count_positions(weights.pop("ledger"), epochs=epochs)
        accuracy = measure_accuracy(weights, performance.training)
    with np.load(performance.training.data) as arrays:
        split = len(arrays["y_train"])
    message, missing, quarantined = record.life.message, split * epochs, 0
    try:
        audit = read_checkpoint(record.place.checkpoint_uri)
        missing = sum(len(epoch.missing) for epoch in audit.epochs)
        quarantined = sum(len(epoch.quarantined) for epoch in audit.epochs)
        message = "; ".join(audit.problems) or message
    except ContractError as error:
        message = str(error)
    return JobOutcome(
        name=name,
        is_complete=run.outcomes()[name] == "Completed",
        message=message,
        split=split,
        epochs=epochs,
        trained=trained,
        lost=lost,
        repeated=repeated,
        missing=missing,
        quarantined=quarantined,
        servers=count_servers(samples, name),
        reworked=record.progress.reworked_in_all if record.progress is not None else 0,
        lineage=record.progress.lineage if record.progress is not None else 0,
        accuracy=accuracy,
        baseline=baseline,
    )
