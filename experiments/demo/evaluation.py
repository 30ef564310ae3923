"""Evaluation of a demo: audit of each job, accuracy compared with one process alone, figure and printed outcome."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from typing import Final

import numpy as np

from autoscaler.local_run.local_run import LocalRun
from experiments.demo.baseline import Training
from experiments.demo.demo_jobs import DemoJob
from experiments.demo.demo_samples import Sample, count_servers, measure_waits, parse_samples, read_lines
from experiments.demo.figure import draw_run
from experiments.demo.load_driver import WORKLOAD, LoadDriver
from experiments.demo.outcome import UNFINISHED, DemoOutcome, JobOutcome, count_positions, summary_lines
from experiments.demo.trained_models import TrainedModel, training_alone
from master.api.checkpoints.audit import read_checkpoint
from master.api.errors import ContractError

OUT_OF_TIME: Final = (
    "the time was over before all jobs had ended: this machine was busy; fewer epochs end in time, as in "
    "make demo ARGS='--epochs N'"
)
COUNT_WORDS: Final = {2: "Two", 3: "Three"}
TITLE: Final = "{} jobs beside web load that rises and falls (virtual CPUs)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedDemo:
    """A demo that has ended.  `models` has a folder NAME of each job that completed (`trained_models`)."""

    run: LocalRun
    driver: LoadDriver
    training: Training
    jobs: tuple[DemoJob, ...]
    epochs: Mapping[str, int]
    models: Path
    seed: int
    load_s: float
    faults_planned: int
    seconds: float


def evaluate(finished: FinishedDemo) -> DemoOutcome:
    """The outcome; afterwards the run folder has the figure, its JSON and the final models."""
    root = finished.run.folder.root
    title = TITLE.format(COUNT_WORDS.get(len(finished.jobs), len(finished.jobs)))
    with training_alone(finished.training, finished.jobs, finished.epochs, finished.models) as alone:
        samples = parse_samples(read_lines(finished.run.folder.samples), workload=WORKLOAD)
        draw_run(samples, finished.driver.marks, root / "demo.png", title=title)
        trained = alone.read()
    outcome = DemoOutcome(
        seed=finished.seed,
        duration_s=round(finished.seconds, 1),
        load_s=finished.load_s,
        jobs=tuple(_evaluate_job(finished, samples, job.name, trained[job.name]) for job in finished.jobs),
        web=measure_waits(finished.driver.waits),
        faults=tuple(finished.driver.marks),
        faults_planned=finished.faults_planned,
        folder=str(root),
    )
    (root / "demo.json").write_text(json.dumps(outcome.as_json(), indent=1) + "\n", encoding="utf-8")
    return outcome


def print_outcome(outcome: DemoOutcome, *, is_json: bool) -> None:
    """Print the outcome for people, or as one line of JSON."""
    if is_json:
        print(json.dumps({"outcome": outcome.as_json()}), flush=True)
        return
    print("samples x epochs, counted by the models themselves:")
    print("\n".join(summary_lines(outcome.jobs, width=get_terminal_size().columns if sys.stdout.isatty() else None)))
    if any(job.verdict == UNFINISHED for job in outcome.jobs):
        print(OUT_OF_TIME)
    web = outcome.web
    if web.median_s is not None:
        waited = f"median {web.median_s:.2f} s, longest {web.worst_s:.2f} s"
        print(f"web pods, pending to answering: {waited} ({web.count} pods)")
    for fault in outcome.faults:
        print(f"{fault.at_s:6.1f} s  {fault.label} {fault.job}")
    if missing := outcome.faults_planned - len(outcome.faults):
        print(
            f"{missing} of {outcome.faults_planned} faults were not injected: the jobs were over, or no pod was ready"
        )
    print(f"figure: {outcome.folder}/demo.png\nrun folder: {outcome.folder}   ({outcome.duration_s:.0f} s)")


def _evaluate_job(finished: FinishedDemo, samples: Sequence[Sample], name: str, model: TrainedModel) -> JobOutcome:
    run, epochs = finished.run, finished.epochs[name]
    record = run.jobs()[name]
    if (finished.models / name).is_dir():
        shutil.copytree(finished.models / name, run.folder.root / "models" / name)
    trained, lost, repeated = (0, 0, 0) if model.ledger is None else count_positions(model.ledger, epochs=epochs)
    with np.load(finished.training.data) as arrays:
        split = len(arrays["y_train"])
    message, missing, quarantined = record.life.message, split * epochs, 0
    try:
        audit = read_checkpoint(record.job.spec.checkpoint.uri)
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
        accuracy=model.accuracy,
        baseline=model.baseline,
    )
