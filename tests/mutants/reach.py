"""Which tests reach which function: measured by coverage once for each file of tests, child processes included.

What was measured of a file stays in the folder as long as the file does not change: a measuring run that was cut off
goes on where it stood.
"""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.imports import nearest
from tests.mutants.operators import Mutant

HOOK: Final = Path(__file__).parent / "hook"
AT_ONCE: Final = 8  # files of tests in one process: what a run that is cut off loses


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Tests by function and by file, and what each took when it was measured."""

    tests_of: Mapping[str, Mapping[str, tuple[str, ...]]]  # path -> function -> tests
    took_s: Mapping[str, float]

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Those that reach its function, else those that reach its file; the quickest first."""
        functions = self.tests_of.get(mutant.path, {})
        found = functions.get(mutant.function)
        if found is None:  # it is run when its module is imported, or it is new
            found = tuple({name for names in functions.values() for name in names})
        return sorted((name for name in found if name in self.took_s), key=lambda name: (self.took_s[name], name))


def with_imports(reach: Reach, files: Sequence[str], paths: Sequence[str], root: Path) -> Reach:
    """Bodies of modules and classes are run by imports, of which nothing is measured: they have the nearest files."""
    tests_of = {path: dict(functions) for path, functions in reach.tests_of.items()}
    for path in paths:
        near = set(nearest(files, path, root))
        names = tuple(name for name in reach.took_s if name.partition("::")[0] in near)
        tests_of.setdefault(path, {})[""] = names
    return Reach(tests_of=tests_of, took_s=reach.took_s)


def measure(folder: Path, files: Sequence[str], root: Path, until_s: float = math.inf) -> list[str]:
    """Runs those of the files that were not measured since they changed; the tests on a control plane are left out.

    Returns the measured ones: no more are begun once the monotonic clock says `until_s`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in files if not _is_measured(folder, name, root)]
    for first in range(0, len(missing), AT_ONCE):
        if time.monotonic() > until_s:
            break
        print(f"measuring what {len(missing) - first} files of tests reach", flush=True)
        _measure(folder, missing[first : first + AT_ONCE], root)
    return [name for name in files if _is_measured(folder, name, root)]


def read(folder: Path, files: Sequence[str]) -> Reach:
    """What was measured of these files, together."""
    tests_of: dict[str, dict[str, tuple[str, ...]]] = {}
    took_s: dict[str, float] = {}
    for name in files:
        kept = json.loads(_kept(folder, name).read_text(encoding="utf-8"))
        took_s |= kept["took_s"]
        for path, functions in kept["reach"].items():
            into = tests_of.setdefault(path, {})
            for function, names in functions.items():
                into[function] = (*into.get(function, ()), *names)
    return Reach(tests_of=tests_of, took_s=took_s)


def _kept(folder: Path, name: str) -> Path:
    return folder / f"{name.replace('/', '.')}.json"


def _is_measured(folder: Path, name: str, root: Path) -> bool:
    kept = _kept(folder, name)
    return kept.exists() and kept.stat().st_mtime >= (root / name).stat().st_mtime


def _measure(folder: Path, files: Sequence[str], root: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="edl-reach-") as raw:
        environment = {
            **os.environ,
            "REACH_FOLDER": raw,
            "COVERAGE_PROCESS_START": str(HOOK / "reach.ini"),
            "PYTHONPATH": os.pathsep.join((str(HOOK), str(root))),
        }
        command = (
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "reach_plugin", "--timeout", "900",
            "-m", "not cluster", "--cov", f"--cov-config={HOOK / 'reach.ini'}", "--cov-context=test", "--cov-report=",
            *files,
        )  # fmt: skip
        subprocess.run(command, cwd=root, env=environment, check=False)
        took_s = json.loads((Path(raw) / "took.json").read_text(encoding="utf-8"))
        lines = list(_measured_lines(Path(raw), root))
    for name in files:
        own = {test: seconds for test, seconds in took_s.items() if test.partition("::")[0] == name}
        kept = {"took_s": own, "reach": _by_function(lines, own, root)}
        _kept(folder, name).write_text(json.dumps(kept), encoding="utf-8")


def _by_function(
    lines: Sequence[tuple[str, int, set[str]]], tests: Mapping[str, float], root: Path
) -> dict[str, dict[str, list[str]]]:
    """By function, not by line, so that it serves later versions of the sources too."""
    found: dict[str, dict[str, set[str]]] = {}
    for path, line, names in lines:
        function = _functions(root / path).get(line)
        if function is not None and (own := names & tests.keys()):
            found.setdefault(path, {}).setdefault(function, set()).update(own)
    return {
        path: {function: sorted(names) for function, names in functions.items()} for path, functions in found.items()
    }


def _measured_lines(folder: Path, root: Path) -> Iterator[tuple[str, int, set[str]]]:
    from coverage import CoverageData  # noqa: PLC0415 - measured runs alone need it

    data = CoverageData(str(folder / "reach"))
    data.read()
    for file in data.measured_files():
        if Path(file).is_relative_to(root):
            for line, contexts in data.contexts_by_lineno(file).items():
                if names := {context.partition("|")[0] for context in contexts if context}:
                    yield Path(file).relative_to(root).as_posix(), line, names


_known: dict[Path, dict[int, str]] = {}


def _functions(file: Path) -> dict[int, str]:
    """The innermost function of each line of a body; the line of `def` itself is run by the import."""
    if file not in _known:
        _known[file] = {}
        _fill(ast.parse(file.read_bytes()), (), _known[file])
    return _known[file]


def _fill(node: ast.AST, names: tuple[str, ...], lines: dict[int, str]) -> None:
    for child in ast.iter_child_nodes(node):
        inner = names
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*names, child.name)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            assert child.end_lineno is not None
            lines |= dict.fromkeys(range(child.body[0].lineno, child.end_lineno + 1), ".".join(inner))
        _fill(child, inner, lines)
