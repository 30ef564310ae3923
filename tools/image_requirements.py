"""Writes what each image installs, with hashes, out of requirements/lock.txt: `python tools/image_requirements.py`.

The lock holds all that development needs; an image gets the part that its extra of pyproject.toml leads to, for the
Python and the system of the image.  Who needs whom is read from the packages installed here, as the lock has them.
`--check` writes nothing and ends with 1 when the committed files are not those of the lock.  `--python` and `--into`
write them for a base image with another Python, elsewhere: real-node tests build the images on Debian's.
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


def make_files(python: str = PYTHON, folder: Path = ROOT / "requirements") -> dict[Path, str]:
    """By the file's path."""
    platform = _platform(python)
    lock = _read_lock((ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8"), platform)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = {}
    for image, extra in EXTRAS.items():
        names = sorted(_closure(_of_project(project, extra), platform))
        files[folder / f"image-{image}.txt"] = "".join(lock[name] for name in names)
    return files


def _platform(python: str) -> dict[str, str]:
    """What the conditions of requirements are judged by."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
    }


def _read_lock(text: str, platform: dict[str, str]) -> dict[str, str]:
    """Each requirement that an image may have, with its hashes; its condition has been judged and is gone."""
    found: dict[str, str] = {}
    for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        head, _, hashes = block.partition(" \\\n")
        if head.strip():
            requirement = Requirement(head)
            if _applies(requirement, "", platform):
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


def _closure(wanted: list[Requirement], platform: dict[str, str]) -> set[str]:
    """The names of these and of all that they need."""
    seen: set[tuple[str, str]] = set()
    own = [requirement for requirement in wanted if _applies(requirement, "", platform)]
    waiting = [
        (canonicalize_name(requirement.name), extra) for requirement in own for extra in ("", *requirement.extras)
    ]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for text in requires(name) or []:
            needed = Requirement(text)
            if _applies(needed, extra, platform):
                waiting += [(canonicalize_name(needed.name), inner) for inner in ("", *needed.extras)]
    return {name for name, _ in seen}


def _applies(requirement: Requirement, extra: str, platform: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**platform, "extra": extra})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare with the committed files")
    parser.add_argument("--python", default=PYTHON, help="of the base image")
    parser.add_argument("--into", type=Path, default=ROOT / "requirements", help="where to write them")
    options = parser.parse_args()
    check_only: bool = options.check
    for path, content in make_files(options.python, options.into).items():
        if check_only and (not path.exists() or path.read_text(encoding="utf-8") != content):
            raise SystemExit(f"{path.name} is not of requirements/lock.txt: run python tools/image_requirements.py")
        if not check_only:
            path.write_text(content, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
