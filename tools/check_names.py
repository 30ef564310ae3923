"""Check that a class name of the product means one thing: `python tools/check_names.py`.

A class or a type alias of a module's top level has a name that no other module of the product defines, unless
`SHARED` gives the reason.  The check ends with 1 for a name without a reason, and for a reason without two owners.
`tools/structure.py` prints the same count, and that of file names used twice.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = ("autoscaler", "master", "trainer_sdk", "experiments")

_ONE_TREE_EACH: Final = "the root of each package's own error tree; no package imports the tree of another"

SHARED: Final[Mapping[str, str]] = {
    "FencedError": _ONE_TREE_EACH,
    "InvariantViolationError": _ONE_TREE_EACH,
    "PermanentError": _ONE_TREE_EACH,
    "TemporaryError": _ONE_TREE_EACH,
}


def modules(root: Path = ROOT) -> Iterator[Path]:
    """Every module of the product that people wrote, by path."""
    for package in PRODUCT:
        yield from (path for path in sorted((root / package).rglob("*.py")) if "_pb2" not in path.name)


def defined_classes(source: str) -> Iterator[str]:
    """Names of classes and type aliases at the top level of a module."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) if name[0].isupper() and not name.isupper():
                yield name


def class_owners(root: Path = ROOT) -> dict[str, list[str]]:
    """The modules that define each name, as paths below `root`."""
    owners: dict[str, list[str]] = {}
    for path in modules(root):
        for name in defined_classes(path.read_text(encoding="utf-8")):
            owners.setdefault(name, []).append(path.relative_to(root).as_posix())
    return owners


def find_problems(owners: Mapping[str, list[str]]) -> Iterator[str]:
    """One sentence for each name that has two meanings without a reason, and for each reason that nobody needs."""
    for name, paths in sorted(owners.items()):
        if len(paths) > 1 and name not in SHARED:
            yield f"class {name} is defined {len(paths)} times ({', '.join(paths)}): give each its own name"
    for name in sorted(SHARED):
        if len(owners.get(name, ())) < 2:
            yield f"class {name} is defined once: take it from the list in tools/check_names.py"


def main() -> int:
    problems = list(find_problems(class_owners()))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
