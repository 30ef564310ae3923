"""Which tests reach which function: measured once by coverage, a context a test, child processes included."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.operators import Mutant

TOOK: Final = "took.json"
DIGEST: Final = "reach.json"
HOOK: Final = Path(__file__).parent / "hook"
FOLDERS: Final = ("tests/unit", "tests/property", "tests/protocol", "tests/perturb", "tests/integration")


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


def measure(folder: Path, root: Path) -> int:
    """Runs every test that needs no Kubernetes control plane, measured.  Returns pytest's exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "EDL_REACH_FOLDER": str(folder),
        "COVERAGE_PROCESS_START": str(HOOK / "reach.ini"),
        "PYTHONPATH": os.pathsep.join((str(HOOK), str(root))),
    }
    command = (
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "reach_plugin", "--timeout", "900",
        "-m", "not cluster", "--cov", f"--cov-config={HOOK / 'reach.ini'}", "--cov-context=test", "--cov-report=",
        *FOLDERS,
    )  # fmt: skip
    code = subprocess.run(command, cwd=root, env=environment, check=False).returncode
    digest(folder, root)
    return code


def digest(folder: Path, root: Path) -> None:
    """Keeps what was measured by function, so that it serves later versions of the sources too."""
    tests_of: dict[str, dict[str, set[str]]] = {}
    for path, line, names in _measured_lines(folder, root):
        function = _functions(root / path).get(line)
        if function is not None:
            tests_of.setdefault(path, {}).setdefault(function, set()).update(names)
    names = sorted({name for functions in tests_of.values() for found in functions.values() for name in found})
    number = {name: place for place, name in enumerate(names)}
    by_function = {
        path: {function: sorted(number[name] for name in found) for function, found in functions.items()}
        for path, functions in tests_of.items()
    }
    (folder / DIGEST).write_text(json.dumps({"tests": names, "reach": by_function}), encoding="utf-8")


def read(folders: list[Path]) -> Reach:
    """What was measured into these folders, together."""
    tests_of: dict[str, dict[str, tuple[str, ...]]] = {}
    took_s: dict[str, float] = {}
    for folder in folders:
        took_s |= json.loads((folder / TOOK).read_text(encoding="utf-8"))
        kept = json.loads((folder / DIGEST).read_text(encoding="utf-8"))
        for path, functions in kept["reach"].items():
            for function, numbers in functions.items():
                names = tuple(kept["tests"][number] for number in numbers)
                into = tests_of.setdefault(path, {})
                into[function] = (*into.get(function, ()), *names)
    return Reach(tests_of=tests_of, took_s=took_s)


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
