"""Results on disk: one file a pass, in a folder of the version that made it.

A file appears whole or not at all, so an interrupted run leaves nothing half-written and goes on where it stopped.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiments.arms.playing import PassResult
from experiments.errors import MixedCommitsError
from experiments.running.tasks import Task

RESULTS: Final = Path(__file__).parent.parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPass:
    """One pass as it was kept."""

    version: str
    experiment: str
    mix: str
    arm: str
    number: int
    seed: int
    metrics: dict[str, float]
    curves: dict[str, Any]
    wall_s: float


class Store:
    """The passes of one version under a folder."""

    def __init__(self, version: str, folder: Path = RESULTS) -> None:
        self.version = version
        self.folder = folder
        self._passes = folder / "passes" / version

    def file_of(self, task: Task) -> Path:
        """Return where a pass is kept: its name tells experiment, mix, arm and seed."""
        setting = task.setting
        return self._passes / setting.scenario.name / f"{task.mix}.{task.arm}.seed-{setting.seed}.json"

    def has(self, task: Task) -> bool:
        """Whether the pass was run by this version."""
        return self.file_of(task).exists()

    def keep(self, task: Task, result: PassResult) -> None:
        """Keep a pass; it is there whole once this returns."""
        document = {
            "version": self.version,
            "experiment": task.setting.scenario.name,
            "mix": task.mix,
            "arm": task.arm,
            "number": task.number,
            "seed": task.setting.seed,
            "metrics": {name: round(value, 4) for name, value in result.metrics.items()},
            "curves": result.curves,
            "wall_s": round(result.wall_s, 3),
        }
        file = self.file_of(task)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".part-{os.getpid()}")
        part.write_text(json.dumps(document), encoding="utf-8")
        part.replace(file)

    def read_all(self) -> list[StoredPass]:
        """Return every pass of this version, in the order of names.

        Raises:
            MixedCommitsError: a file in this version's folder was made by another one.
        """
        found = []
        for file in sorted(self._passes.glob("*/*.json")):
            document = json.loads(file.read_text(encoding="utf-8"))
            if document.get("version") != self.version:
                problem = f"{file} was made by {document.get('version')}, not by {self.version}"
                raise MixedCommitsError(f"{problem}; results of two versions are not mixed: remove the file")
            found.append(StoredPass(**document))
        return found

    def other_versions(self) -> list[str]:
        """Return versions of which results lie beside."""
        passes = self.folder / "passes"
        return sorted(p.name for p in passes.iterdir() if p.name != self.version) if passes.exists() else []
