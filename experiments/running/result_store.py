"""Results on disk: one file a pass, in a folder of the version that made it.

Files are written atomically, so an interrupted run leaves none half-written and resumes where it stopped.  The
version covers our own scenarios; a file of the user's may change beside it, so each pass carries its scenario's
digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from experiments.errors import MixedCommitsError, RefusedInputError
from experiments.running.simulation import PassResult
from experiments.running.tasks import Task, seed_of_run
from experiments.scenarios.schema import Scenario

RESULTS: Final = Path(__file__).parent.parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPass:
    """One pass as it was kept."""

    version: str
    scenario: str
    experiment: str
    mix: str
    arm: str
    number: int
    seed: int
    metrics: dict[str, float]
    curves: dict[str, Any]
    wall_s: float


class ResultStore:
    """The passes of one version under a folder."""

    def __init__(self, version: str, folder: Path = RESULTS) -> None:
        self.version = version
        self.folder = folder
        self._passes = folder / "passes" / version

    def file_of(self, task: Task) -> Path:
        """Return the file of a pass, whose name has experiment, mix, arm and seed."""
        setting = task.setting
        return self._passes / setting.scenario.name / f"{task.mix}.{task.arm}.seed-{setting.seed}.json"

    def has(self, task: Task) -> bool:
        """True if this version has a result of the pass from the same scenario; an unreadable file counts as none."""
        try:
            kept = read_pass(self.file_of(task))
        except RefusedInputError:
            return False
        return (kept.version, kept.scenario) == (self.version, digest(task.setting.scenario))

    def store(self, task: Task, result: PassResult) -> None:
        """Store a pass atomically.

        Raises:
            RefusedInputError: the folder cannot be written, for its rights or a full disk; nothing is left behind.
        """
        document = {
            "version": self.version,
            "scenario": digest(task.setting.scenario),
            "experiment": task.setting.scenario.name,
            "mix": task.mix,
            "arm": task.arm,
            "number": task.number,
            "seed": task.setting.seed,
            "metrics": {name: round(value, 4) for name, value in result.metrics.items()},
            "curves": result.curves,
            "wall_s": round(result.wall_s, 3),
        }
        try:
            write_atomically(self.file_of(task), json.dumps(document))
        except OSError as error:
            hint = "free space there, or fix its permissions; then run the same command again"
            raise RefusedInputError(self.folder, "", f"cannot be written: {error.strerror}", hint) from error

    def read_all(self, seed: int | None = None) -> list[StoredPass]:
        """Return the passes of this version that `run --seed` made with this seed, in the order of names.

        Without a seed: of the only one there is.

        Raises:
            MixedCommitsError: a file in this version's folder was made by another one, or two scenarios of one name
                made passes.
            RefusedInputError: a file cannot be read, or passes of several seeds exist and none is named: passes
                of different seeds are not mixed.
        """
        found = []
        scenarios: dict[str, str] = {}
        for file in sorted(self._passes.glob("*/*.json")):
            kept = read_pass(file)
            if kept.version != self.version:
                problem = f"{file} was made by {kept.version}, not by {self.version}"
                raise MixedCommitsError(f"{problem}; results of two versions are not mixed: remove the file")
            if scenarios.setdefault(kept.experiment, kept.scenario) != kept.scenario:
                problem = f"{file.parent} holds passes of two scenarios that are both named {kept.experiment}"
                raise MixedCommitsError(f"{problem}; they are not mixed: remove the folder and run again")
            found.append(kept)
        seeds = sorted({seed_of_run(one.seed, one.number) for one in found})
        if seed is None and len(seeds) > 1:
            problem = f"holds passes of the seeds {', '.join(map(str, seeds))}"
            raise RefusedInputError(self._passes, "", problem, f"name one of them: report --seed {seeds[0]}")
        return [one for one in found if seed in {None, seed_of_run(one.seed, one.number)}]

    def other_versions(self) -> list[str]:
        """Return the other versions with results in the folder."""
        passes = self.folder / "passes"
        return sorted(p.name for p in passes.iterdir() if p.name != self.version) if passes.exists() else []


def write_atomically(file: Path, text: str) -> None:
    """Write a file atomically.  Raises OSError; then no part of it is left."""
    part = file.with_suffix(f".part-{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except OSError:
        with suppress(OSError):  # the folder itself may be missing
            part.unlink(missing_ok=True)
        raise


def read_pass(file: Path) -> StoredPass:
    """Return the pass in a file.  Raises RefusedInputError: it is missing or invalid."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RefusedInputError(file, "", f"cannot be read: {error}", "remove it and run again") from error
    known = {field.name for field in fields(StoredPass)}
    if not isinstance(document, Mapping) or document.keys() != known:
        strange = sorted(known ^ document.keys()) if isinstance(document, Mapping) else []
        path = strange[0] if strange else ""
        raise RefusedInputError(file, path, "has other fields than a stored pass", "remove the file and run again")
    return StoredPass(**document)


def digest(scenario: Scenario) -> str:
    """Return ten digits that change with any field of the scenario."""
    return hashlib.sha256(scenario.model_dump_json().encode()).hexdigest()[:10]
