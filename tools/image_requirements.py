"""Writes what each image installs, with hashes, out of requirements/lock.txt: `python tools/image_requirements.py`.

The lock holds all that development needs; an image gets the part that its extra of pyproject.toml leads to, for the
Python and the system of the image.  Who needs whom is read from the packages installed here, as the lock has them.
`--check` writes nothing and ends with 1 when the committed files are not those of the lock.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parent.parent
EXTRAS: Final = {"operator": "autoscaler", "master": "master", "trainer": ""}
PYTHON: Final = "3.12"
PLATFORM: Final = {
    "python_version": PYTHON,
    "python_full_version": f"{PYTHON}.0",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
}


def make_files() -> dict[Path, str]:
    """By the file's path."""
    lock = _read_lock((ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = {}
    for image, extra in EXTRAS.items():
        names = sorted(_closure(_of_project(project, extra)))
        files[ROOT / "requirements" / f"image-{image}.txt"] = "".join(lock[name] for name in names)
    return files


def _read_lock(text: str) -> dict[str, str]:
    """Each requirement that an image may have, with its hashes; its condition has been judged and is gone."""
    found: dict[str, str] = {}
    for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        head, _, hashes = block.partition(" \\\n")
        if head.strip():
            requirement = Requirement(head)
            if _applies(requirement, ""):
                found[canonicalize_name(requirement.name)] = f"{requirement.name}{requirement.specifier} \\\n{hashes}"
    return found


def _of_project(project: dict[str, list[str] | dict[str, list[str]]], extra: str) -> list[Requirement]:
    own = project["dependencies"]
    optional = project["optional-dependencies"]
    assert isinstance(own, list)
    assert isinstance(optional, dict)
    found = [Requirement(text) for text in [*own, *optional.get(extra, [])]]
    inner = [name for requirement in found if requirement.name == "edl" for name in requirement.extras]
    return [r for r in found if r.name != "edl"] + [r for name in inner for r in _of_project(project, name)]


def _closure(wanted: list[Requirement]) -> set[str]:
    """The names of these and of all that they need."""
    seen: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(r.name), extra) for r in wanted if _applies(r, "") for extra in ("", *r.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for text in requires(name) or []:
            needed = Requirement(text)
            if _applies(needed, extra):
                waiting += [(canonicalize_name(needed.name), inner) for inner in ("", *needed.extras)]
    return {name for name, _ in seen}


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**PLATFORM, "extra": extra})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare with the committed files")
    check_only: bool = parser.parse_args().check
    for path, content in make_files().items():
        if check_only and (not path.exists() or path.read_text(encoding="utf-8") != content):
            raise SystemExit(f"{path.name} is not of requirements/lock.txt: run python tools/image_requirements.py")
        if not check_only:
            path.write_text(content, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
