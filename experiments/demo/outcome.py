"""Outcome of a demo: each job's audit, its accuracy beside one process alone, the web's waiting times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.cli.output.object_tables import align_columns
from experiments.demo.demo_samples import FaultMark, WaitTimes

ACCURACY_TOLERANCE = 0.015
UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """One job at its end.

    `trained`, `lost` and `repeated` are counted by the model itself (one counter per sample, raised by every gradient),
    `missing` and `quarantined` stand in the files of its last checkpoint; neither is a count that EDL keeps.
    """

    name: str
    is_complete: bool
    message: str
    split: int
    epochs: int
    trained: int
    lost: int
    repeated: int
    missing: int
    quarantined: int
    servers: tuple[int, int]  # the fewest and the most at once
    reworked: int  # trained, rolled back and trained again
    lineage: int
    accuracy: float | None
    baseline: float | None

    @property
    def verdict(self) -> str:
        """Last column of the table: a job that the run's end stopped is unfinished, and not unsound."""
        if self.is_sound:
            return "ok"
        return self.message or ("NOT SOUND" if self.is_complete else UNFINISHED)

    @property
    def is_sound(self) -> bool:
        """Every sample exactly once per epoch, and as accurate as one process alone (1.5 points)."""
        if not self.is_complete or self.lost or self.repeated or self.missing or self.quarantined:
            return False
        if self.accuracy is None or self.baseline is None:
            return False
        return self.accuracy >= self.baseline - ACCURACY_TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutcome:
    seed: int
    duration_s: float
    load_s: float
    jobs: tuple[JobOutcome, ...]
    web: WaitTimes
    faults: tuple[FaultMark, ...]
    faults_planned: int
    folder: str

    @property
    def is_sound(self) -> bool:
        return all(job.is_sound for job in self.jobs) and len(self.faults) == self.faults_planned

    def as_json(self) -> Mapping[str, Any]:
        return asdict(self) | {"is_sound": self.is_sound}


def count_positions(ledger: npt.NDArray[np.int64], *, epochs: int) -> tuple[int, int, int]:
    """(trained, lost, repeated), from the model's own ledger: one counter per sample, raised by each gradient of it."""
    missing = epochs - ledger
    return int(ledger.sum()), int(np.maximum(missing, 0).sum()), int(np.maximum(-missing, 0).sum())


def summary_rows(jobs: Sequence[JobOutcome]) -> list[tuple[str, ...]]:
    """The audit table, one row a job."""
    return [
        (
            job.name,
            f"{job.split:,} x {job.epochs} = {job.split * job.epochs:,}",
            *_counted(job),
            f"{job.reworked:,}",
            "{} to {}".format(*job.servers) if any(job.servers) else "none",
            _percent(job.accuracy),
            _percent(job.baseline),
            job.verdict,
        )
        for job in jobs
    ]


SUMMARY_HEAD = (
    "job",
    "to train",
    "in the checkpoint",
    "lost",
    "repeated",
    "re-worked",
    "servers",
    "accuracy",
    "alone",
    "",
)


def summary_lines(jobs: Sequence[JobOutcome], *, width: int | None) -> list[str]:
    """The audit as a table, or, where it is wider than `width` columns, as a paragraph for each job."""
    rows = summary_rows(jobs)
    table = align_columns([tuple(head.upper() for head in SUMMARY_HEAD), *rows])
    if width is None or max(map(len, table)) <= width:
        return table
    lines = []
    for name, *cells, verdict in rows:
        lines.append(f"{name}: {verdict}")
        lines += [f"  {head:<18} {cell}" for head, cell in zip(SUMMARY_HEAD[1:-1], cells, strict=True)]
    return lines


def _counted(job: JobOutcome) -> tuple[str, str, str]:
    """In the checkpoint, lost, repeated.  A job writes its model at its end; until then the files count."""
    if job.accuracy is None:
        return f"{job.split * job.epochs - job.missing - job.quarantined:,}", "-", "-"
    return f"{job.trained:,}", f"{job.lost}", f"{job.repeated}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
