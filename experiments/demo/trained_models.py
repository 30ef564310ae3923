"""Models that the demo's jobs have left: how often each digit is in them, and accuracy beside one process alone.

    with training_alone(training, jobs, epochs, models) as alone:
        ...                             # other work meanwhile
        trained = alone.read()

A job with servers leaves NAME/model.npz below `models`, a torch group NAME/model.pt and NAME/ledger.npy.  Not here:
what the checkpoints hold (`evaluation`).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from experiments.demo.baseline import Training, measure_accuracy, start_alone
from experiments.demo.demo_jobs import DemoJob

ALONE_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """What a job has trained.  None: the job left no model, or the process alone did not end in time."""

    ledger: npt.NDArray[np.int64] | None
    accuracy: float | None
    baseline: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAlone:
    """Processes under way: one for all jobs with servers, one for each group."""

    training: Training
    epochs: Mapping[str, int]
    models: Path
    with_servers: subprocess.Popen[str]
    groups: Mapping[str, subprocess.Popen[str]]

    def read(self) -> Mapping[str, TrainedModel]:
        """The model of each job, once the processes have ended."""
        counts = _server_job_epochs(self.epochs, self.groups)
        found = dict(zip(counts, _read_numbers(self.with_servers), strict=False))
        return {
            name: self._read_group(name) if name in self.groups else self._read_server_job(name, found.get(count))
            for name, count in self.epochs.items()
        }

    def _read_server_job(self, name: str, baseline: float | None) -> TrainedModel:
        if not (path := self.models / name / "model.npz").exists():
            return TrainedModel(ledger=None, accuracy=None, baseline=baseline)
        with np.load(path) as archive:
            weights = dict(archive)
        ledger = weights.pop("ledger")
        return TrainedModel(ledger=ledger, accuracy=measure_accuracy(weights, self.training), baseline=baseline)

    def _read_group(self, name: str) -> TrainedModel:
        baseline, accuracy = (*_read_numbers(self.groups[name]), None, None)[:2]
        ledger = self.models / name / "ledger.npy"
        return TrainedModel(ledger=np.load(ledger) if ledger.exists() else None, accuracy=accuracy, baseline=baseline)


@contextlib.contextmanager
def training_alone(
    training: Training, jobs: tuple[DemoJob, ...], epochs: Mapping[str, int], models: Path
) -> Iterator[TrainingAlone]:
    """Starts the processes; they end with the context at the latest."""
    groups = [job.name for job in jobs if job.is_group]
    with contextlib.ExitStack() as stack:

        def until_the_end(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield TrainingAlone(
            training=training,
            epochs=epochs,
            models=models,
            with_servers=until_the_end(start_alone(training, *_server_job_epochs(epochs, groups))),
            groups={name: until_the_end(_start_group_alone(training, epochs[name], models / name)) for name in groups},
        )


def _server_job_epochs(epochs: Mapping[str, int], groups: Any) -> list[int]:
    """Numbers of epochs, ascending, as one process reaches them."""
    return sorted({count for name, count in epochs.items() if name not in groups})


def _start_group_alone(training: Training, epochs: int, model: Path) -> subprocess.Popen[str]:
    words = [str(training.data), str(training.seed), str(epochs)]
    words += [str(path) for path in [model / "model.pt"] if path.exists()]
    command = [sys.executable, "-m", "experiments.demo.torch_baseline", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _read_numbers(process: subprocess.Popen[str]) -> list[float]:
    """Read the numbers that the process prints, one a line, within ALONE_LIMIT_S."""
    try:
        output = process.communicate(timeout=ALONE_LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        return []
    return [float(line) for line in output.splitlines()]
