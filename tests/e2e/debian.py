"""Debian's packages, with all that they depend on, as a tree: by the machine's own apt, into folders of our own.

apt resolves and verifies as always, from the sources that this machine has; it is told that nothing is installed, so
that what comes is complete.  Nothing is installed, and no script of a package runs.
"""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.e2e.trees import Tree, merged_links, read_tar
from tests.harness.commands import run
from tests.harness.errors import ImageBuildError

LISTS_LIFETIME_S: Final = 24 * 3600.0
FETCH_BUDGET_S: Final = 600.0
CONFIGURATION: Final = """\
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
"""

Say = Callable[[str], None]


class Debian:
    """Packages in the folder `cache`, fetched as they are asked for."""

    def __init__(self, cache: Path, environ: Mapping[str, str], say: Say) -> None:
        self._archives = cache / "cache/archives"
        self._status = cache / "state/status"
        self._say = say
        self._none = cache / "none"  # apt does not name what it has already
        for folder in (cache / "state/lists/partial", self._archives / "partial", self._none / "partial"):
            folder.mkdir(parents=True, exist_ok=True)
        configuration = cache / "apt.conf"
        configuration.write_text(CONFIGURATION.format(folder=cache))
        self._environ = {**environ, "APT_CONFIG": str(configuration), "DEBIAN_FRONTEND": "noninteractive"}

    def resolve(self, names: Iterable[str]) -> tuple[str, ...]:
        """The file names of the packages and of what they need; a name changes with the version."""
        self._refresh()
        wanted = tuple(names)
        kept = self._status.with_name(f"resolved-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:16]}")
        if not kept.exists() or kept.stat().st_mtime < self._status.stat().st_mtime:
            lines = self._apt(
                "install", "--print-uris", f"--option=Dir::Cache::archives={self._none}", *wanted
            ).splitlines()
            kept.write_text("\n".join(sorted(line.split()[1] for line in lines)))
        return tuple(kept.read_text().splitlines())

    def fetch(self, names: Iterable[str]) -> Tree:
        """Their files.  Raises ImageBuildError when apt cannot get them."""
        wanted = self.resolve(names)
        self._say(f"fetching {len(wanted)} packages of Debian")
        self._apt("install", "--yes", "--download-only", *names)
        tree = merged_links()
        for name in wanted:
            tree |= {path: entry for path, entry in _read(self._archives / name).items() if path not in tree}
        return tree

    def _refresh(self) -> None:
        """Package lists, read once a day: the empty file `status` has the time."""
        if self._status.exists() and time.time() - self._status.stat().st_mtime < LISTS_LIFETIME_S:
            return
        self._say("fetching Debian's lists of packages")
        self._status.unlink(missing_ok=True)
        empty = self._status.with_name("empty")
        empty.touch()
        self._apt("update", f"--option=Dir::State::status={empty}")
        self._status.touch()

    def _apt(self, *arguments: str) -> str:
        command = ["apt-get", "--quiet=2", *arguments]
        return run(command, environ=self._environ, budget_s=FETCH_BUDGET_S)


def _read(package: Path) -> Tree:
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        tree = read_tar(process.stdout)
        process.stdout.read()  # a tar archive ends before its padding does
    if process.returncode != 0:
        raise ImageBuildError(f"{package} cannot be read. Remove it and try again.")
    return tree
