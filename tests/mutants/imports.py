"""Which files of tests import a module, themselves or through the tests' own modules (pure but for reading sources)."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from heapq import heappop, heappush
from pathlib import Path


def files_of_tests(places: Sequence[str], root: Path) -> list[str]:
    """The files of tests below folders, and the files named themselves; paths below the root, sorted."""
    found: set[Path] = set()
    for place in places:
        found |= {root / place} if place.endswith(".py") else set((root / place).rglob("test_*.py"))
    return sorted(file.relative_to(root).as_posix() for file in found)


def importers(files: Iterable[str], paths: Collection[str], root: Path) -> list[str]:
    """Those of the files that import one of these modules, by themselves or through a module of the tests."""
    return [name for name in files if any(_steps(name, root).get(path) == 1 for path in paths)]


def nearest(files: Iterable[str], path: str, root: Path) -> list[str]:
    """Those of the files that come to a module over the fewest modules of the product; who names it most is first."""
    steps = {name: _steps(name, root)[path] for name in files if path in _steps(name, root)}
    stem = Path(path).stem
    named = {name: (root / name).read_text(encoding="utf-8").count(stem) for name in steps}
    found = (name for name, count in steps.items() if count == min(steps.values()))
    return sorted(found, key=lambda name: (-named[name], name))


@cache
def _steps(name: str, root: Path) -> dict[str, int]:
    """By file that a file of tests imports: over how many imports; those by modules of the tests count nothing."""
    found: dict[str, int] = {}
    waiting = [(0, name)]
    while waiting:
        count, file = heappop(waiting)
        if file not in found:
            found[file] = count
            for imported in _imported(file, root):
                heappush(waiting, (count + (not imported.startswith("tests/")), imported))
    return found


@cache
def _imported(file: str, root: Path) -> tuple[str, ...]:
    names: set[str] = set()
    for node in ast.walk(ast.parse((root / file).read_bytes())):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module), names=aliases):
                names |= {module, *(f"{module}.{alias.name}" for alias in aliases)}
    places = (f"{name.replace('.', '/')}{end}" for name in sorted(names) for end in (".py", "/__init__.py"))
    return tuple(place for place in places if (root / place).is_file())
