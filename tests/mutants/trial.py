"""One mutant against the tests that reach it, in a copy of the tree of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.mutants.operators import Mutant
from tests.mutants.warm import COLD, WarmTests

BATCHES: Final = (12, 60, 300, 5_000)  # tests of one process: a fault is mostly seen by the first few
START_S: Final = 20.0  # of a process of pytest on a busy machine, collection included
SLOWER: Final = 5.0  # a test may take so many times what it took when it was measured
USAGE: Final = 4
INTERRUPTED: Final = frozenset({2, 3, 4})  # pytest's own exit codes: nothing was said about the mutant


class Verdict(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    UNREACHED = "unreached"  # no test runs its function: a survivor
    OUT_OF_TIME = "out of time"  # its tests were not all run: a survivor


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one mutant, at which commit, and which test noticed it."""

    mutant: Mutant
    verdict: Verdict
    by: str = ""
    tests: int = 0
    took_s: float = 0.0
    commit: str = ""

    @property
    def is_killed(self) -> bool:
        return self.verdict is Verdict.KILLED


class Workshop:
    """A copy of the tracked files in which mutants are tried one after another; `files` of tests are imported once."""

    def __init__(self, root: Path, folder: Path, files: Sequence[str] = ()) -> None:
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        self._planted = folder, b""  # the mutated file, and what it was
        self._sound: dict[str, bool] = {}  # by test: whether it passes here without a fault
        listed = subprocess.run(
            ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
            cwd=root, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)
        self._warm = WarmTests(folder, files, self._environment) if files else None

    def close(self) -> None:
        """Ends the process that has imported the tests."""
        if self._warm is not None:
            self._warm.close()

    def try_out(self, mutant: Mutant, tests: Sequence[str], took_s: dict[str, float], budget_s: float) -> Outcome:
        """Plants the fault, runs the tests until one notices it, and takes the fault out again."""
        if not tests:
            return Outcome(mutant=mutant, verdict=Verdict.UNREACHED)
        file = self._folder / mutant.path
        source = file.read_bytes()
        file.write_bytes(mutant.apply(source))
        self._planted = file, source
        began_s = time.monotonic()
        try:
            verdict, by, count = self._run_all(tests, took_s, began_s + budget_s)
            if verdict is Verdict.KILLED and not self._is_sound(by, file, source):
                verdict, by, count = self._run_all([name for name in tests if name != by], took_s, began_s + budget_s)
        finally:
            file.write_bytes(source)
        took = round(time.monotonic() - began_s, 1)
        return Outcome(mutant=mutant, verdict=verdict, by=by, tests=count, took_s=took)

    def _is_sound(self, test: str, file: Path, source: bytes) -> bool:
        """True if the test passes without the fault: one that fails anyway has noticed nothing."""
        if test not in self._sound and "::" in test:
            mutated = file.read_bytes()
            file.write_bytes(source)
            self._sound[test] = self._run([test], START_S * 10, is_cut=True) == ""
            file.write_bytes(mutated)
        return self._sound.get(test, True)

    def _run_all(self, tests: Sequence[str], took_s: dict[str, float], until_s: float) -> tuple[Verdict, str, int]:
        first = 0
        for size in BATCHES:
            batch = tests[first : first + size]
            if not batch:
                break
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return Verdict.OUT_OF_TIME, "", first
            wanted_s = START_S + SLOWER * sum(took_s[name] for name in batch)
            killer = self._run(batch, min(wanted_s, left_s + START_S), is_cut=wanted_s > left_s + START_S)
            if killer is None:
                return Verdict.OUT_OF_TIME, "", first
            if killer:
                return Verdict.KILLED, killer, first + len(batch)
            first += len(batch)
        return Verdict.SURVIVED, "", first

    def _run(self, batch: Sequence[str], limit_s: float, *, is_cut: bool) -> str | None:
        """The test that failed, "" if none did; None: the mutant's time was up, which says nothing about it."""
        names = self._folder / "chosen.txt"
        names.write_text("\n".join(batch) + "\n", encoding="utf-8")
        code, said = self._warm.run(names, *self._planted, limit_s) if self._warm is not None else (COLD, "")
        if code == COLD:
            code, said = self._run_cold(names, limit_s)
        if code is None:
            return None if is_cut else "a test that did not end"
        if code == 0:
            return ""
        if code == USAGE and "not found: " in said:  # a test that was measured and is not there any more
            there = [name for name in batch if f"{name}\n" not in said and f"{name} " not in said]
            return self._run(there, limit_s, is_cut=is_cut) if there and len(there) < len(batch) else ""
        if code in INTERRUPTED and "error" not in said.lower():
            raise RuntimeError(f"pytest said nothing about the mutant (code {code}):\n{said[-2_000:]}")
        noticed = (line.split()[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR ")))
        return next(noticed, "collection")

    def _run_cold(self, names: Path, limit_s: float) -> tuple[int | None, str]:
        """In a process of its own, which imports the sources as they are: its exit code (None: no end in time)."""
        process = subprocess.Popen(
            (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", f"@{names}"),
            cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self._environment, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            _end(process)
        return process.returncode, said


def _end(process: subprocess.Popen[str]) -> None:
    """Ends what a hanging test left, its children of the same session too."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
