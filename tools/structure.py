"""Print how the product is built, from its imports: `python -m tools.structure [--json] [ROOT]`.

For each package: the files that lie in it, their lines, and how its children (files, and packages as wholes) import
each other.  `floors` is the longest chain of imports between children, `arrows` their number, `circles` lists children
that import each other.  Imports for types alone do not count.  The totals look at single modules.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grimp

from tools.check_names import PRODUCT, ROOT, class_owners, modules

Arrows = Mapping[str, frozenset[str]]  # whoever imports -> what it imports

# Names that each package may have a file of: what is in it is said by the folder.
ORDINARY_FILES: Final = frozenset({"__init__.py", "__main__.py", "errors.py", "main.py", "metrics.py"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One package, or the whole product."""

    package: str
    files: int
    lines: int
    floors: int
    arrows: int
    circles: tuple[tuple[str, ...], ...]


def read_imports(root: Path) -> Arrows:
    """Every module of the product and the modules of the product that it imports at run time."""
    sys.path.insert(0, str(root))
    graph = grimp.build_graph(*PRODUCT, exclude_type_checking_imports=True, cache_dir=None)
    return {module: frozenset(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def describe(root: Path) -> list[Room]:
    """The rooms by name, and the whole as the last one, named `all`."""
    imports = read_imports(root)
    lines = {_dotted(path, root): path.read_text(encoding="utf-8").count("\n") for path in modules(root)}
    packages = sorted({_dotted(path, root) for path in modules(root) if path.name == "__init__.py"})
    rooms = [_room(package, between_children(imports, package), lines) for package in packages]
    return [*rooms, _measure("all", imports, files=len(lines), lines=sum(lines.values()))]


def between_children(imports: Arrows, package: str) -> Arrows:
    """Arrows between the direct children of a package; what lies deeper counts as the child that holds it."""
    found: dict[str, set[str]] = {}
    for importer, imported in imports.items():
        if (child := _child(importer, package)) is not None:
            others = {_child(module, package) for module in imported}
            found.setdefault(child, set()).update(other for other in others if other is not None and other != child)
    return {child: frozenset(others) for child, others in found.items()}


def find_circles(arrows: Arrows) -> list[tuple[str, ...]]:
    """Groups of two and more that reach each other, each in alphabetical order (Tarjan 1972)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    circles: list[tuple[str, ...]] = []

    def visit(one: str) -> None:
        index[one] = lowest[one] = len(index)
        waiting.append(one)
        for other in sorted(arrows.get(one, ())):
            if other not in index:
                visit(other)
                lowest[one] = min(lowest[one], lowest[other])
            elif other in waiting:
                lowest[one] = min(lowest[one], index[other])
        if lowest[one] == index[one]:
            group = tuple(sorted(waiting[waiting.index(one) :]))
            del waiting[-len(group) :]
            if len(group) > 1:
                circles.append(group)

    for one in sorted(arrows):
        if one not in index:
            visit(one)
    return sorted(circles)


def count_floors(arrows: Arrows) -> int:
    """The number of modules in the longest chain of imports; a circle is one floor."""
    circle_of = {one: circle for circle in find_circles(arrows) for one in circle}
    heights: dict[tuple[str, ...], int] = {}

    def height(one: str) -> int:
        group = circle_of.get(one, (one,))
        if group not in heights:
            below = {other for member in group for other in arrows.get(member, ()) if other not in group}
            heights[group] = 1 + max((height(other) for other in below), default=0)
        return heights[group]

    return max((height(one) for one in arrows), default=0)


def repeated_classes(root: Path) -> int:
    return sum(len(paths) > 1 for paths in class_owners(root).values())


def repeated_files(root: Path) -> int:
    names = [path.name for path in modules(root) if path.name not in ORDINARY_FILES]
    return sum(names.count(name) > 1 for name in set(names))


def _room(package: str, arrows: Arrows, lines: Mapping[str, int]) -> Room:
    here = [module for module in lines if module == package or module.rpartition(".")[0] == package]
    own = [module for module in here if module == package or not any(m.startswith(f"{module}.") for m in lines)]
    return _measure(package, arrows, files=len(own), lines=sum(lines[module] for module in own))


def _measure(name: str, arrows: Arrows, *, files: int, lines: int) -> Room:
    return Room(
        package=name,
        files=files,
        lines=lines,
        floors=count_floors(arrows),
        arrows=sum(len(others) for others in arrows.values()),
        circles=tuple(find_circles(arrows)),
    )


def _child(module: str, package: str) -> str | None:
    """The direct child of `package` that holds `module`; the package's own code is `__init__`."""
    if module == package:
        return "__init__"
    return module[len(package) + 1 :].partition(".")[0] if module.startswith(f"{package}.") else None


def _dotted(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _table(rooms: list[Room]) -> Iterator[str]:
    yield f"{'package':44}{'files':>6}{'lines':>8}{'floors':>8}{'arrows':>8}  circles"
    for room in rooms:
        circles = "; ".join(" ".join(circle) for circle in room.circles)
        yield f"{room.package:44}{room.files:6}{room.lines:8}{room.floors:8}{room.arrows:8}  {circles}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="a checkout; this one unless told otherwise")
    parser.add_argument("--json", action="store_true", help="the same as one JSON document")
    arguments = parser.parse_args()
    root: Path = arguments.root.resolve()
    rooms = describe(root)
    repeated = {"classes": repeated_classes(root), "files": repeated_files(root)}
    if arguments.json:
        print(json.dumps({"packages": [dataclasses.asdict(room) for room in rooms], "repeated_names": repeated}))
        return
    print(*_table(rooms), sep="\n")
    print(f"\nnames used more than once: {repeated['classes']} of classes, {repeated['files']} of files")


if __name__ == "__main__":
    main()
