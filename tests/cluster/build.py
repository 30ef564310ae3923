"""`python -m tests.cluster.build`: afterwards every program of the test cluster is there; `make cluster-tools` runs it.

Builds each family out of its pinned Go module into a folder named by the pins, so a second run has nothing to do.  Go
is the one from PATH, else the pinned wheel's, as for etcd.  Modules and objects lie in the cache beside the programs,
not in the user's own Go caches: `--trim` removes them, and what older pins built.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.build import find_go, go_environment
from autoscaler.etcd_server.cache import exclusive
from autoscaler.etcd_server.errors import EtcdServerError
from autoscaler.etcd_server.finder import find_etcd
from tests.cluster.families import ALERT_FAMILIES, FAMILIES, NODE_FAMILIES, Family
from tests.cluster.toolbox import Tools, built_folder, cluster_cache, find_elsewhere, find_tools, with_assets
from tests.harness.errors import HarnessError, ToolsBuildError

GO_CACHES: Final = "go"
FETCH_BUDGET_S: Final = 900.0
BUILD_BUDGET_S: Final = 3600.0
LOCK_BUDGET_S: Final = FETCH_BUDGET_S + BUILD_BUDGET_S  # another one's build
TELL_EVERY_S: Final = 15.0
ERROR_LINES: Final = 12
NEEDED_GIB: Final = 7.0

Say = Callable[[str], None]


def ensure_tools(environ: Mapping[str, str], say: Say, families: Sequence[Family] = FAMILIES) -> Tools:
    """Finds or builds etcd and these.  Raises ToolsBuildError, or the EtcdServerError of what keeps etcd or Go away."""
    find_etcd(allow_demo_version=False, environ=with_assets(environ), report=say)
    for family in families:
        target = built_folder(family, environ)
        if _wanted(family, target, environ):
            with exclusive(cluster_cache(environ), say, budget_s=LOCK_BUDGET_S):
                if wanted := _wanted(family, target, environ):  # another process may have built it meanwhile
                    _build_family(family, wanted, target, environ, say)
    return find_tools(environ, families)


def trim(environ: Mapping[str, str], say: Say) -> None:
    """Removes what no run needs: downloaded modules, objects, and the programs of older pins."""
    folder = cluster_cache(environ)
    keep = {built_folder(family, environ) for family in (*FAMILIES, *ALERT_FAMILIES, *NODE_FAMILIES)}
    with exclusive(folder, say, budget_s=LOCK_BUDGET_S):
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and entry not in keep:
                say(f"removing {entry}")
                shutil.rmtree(entry)


def _wanted(family: Family, target: Path, environ: Mapping[str, str]) -> list[str]:
    """Programs of the family that are neither built nor found elsewhere."""
    elsewhere = find_elsewhere(family, environ)
    return [
        name for name in (*family.programs, *family.files) if name not in elsewhere and not (target / name).is_file()
    ]


def _build_family(family: Family, wanted: list[str], target: Path, environ: Mapping[str, str], say: Say) -> None:
    cache = target.parent
    _warn_of_full_disk(cache, say)
    go = find_go(cache, environ, say)
    settings = _go_settings(go, cache, environ)
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        steps = _Steps(family, settings, Path(scratch) / "log", say)
        for name in sorted(family.files):
            shutil.copy(steps.source(go) / family.files[name], made / name)
        programs = [name for name in wanted if name in family.programs]
        if programs:
            steps.compile(go, programs, made)
        target.mkdir(exist_ok=True)
        for file in made.iterdir():
            file.replace(target / file.name)
    say(f"{family.name}: {', '.join(wanted)} after {_clock(time.monotonic() - started_s)}")


class _Steps:
    """Runs Go for one family, with its output in a log, and prints its progress."""

    def __init__(self, family: Family, settings: Mapping[str, str], log: Path, say: Say) -> None:
        self._family = family
        self._settings = settings
        self._log = log
        self._say = say

    def source(self, go: Path) -> Path:
        """The folder of the module that pins the family; downloaded if need be."""
        output = self._run([str(go), "mod", "download", "-json", self._family.pinned_by], "fetching", FETCH_BUDGET_S)
        return Path(json.loads(output)["Dir"])

    def compile(self, go: Path, programs: list[str], made: Path) -> None:
        """Fetches first, so that a network failure is distinguished from a build failure."""
        packages = [self._family.programs[program] for program in programs]
        names = ", ".join(programs)
        self._say(f"{self._family.name}: fetching modules for {names}")
        tags = [f"-tags={','.join(self._family.tags)}"] if self._family.tags else []
        needed = self._run([str(go), "list", *tags, "-deps", *packages], "fetching modules", FETCH_BUDGET_S)
        self._say(f"{self._family.name}: building {names} with {go}")
        flags = [*tags, "-v", "-trimpath", f"-ldflags={self._family.linker_flags()}"]
        most = len(needed.splitlines())
        self._run([str(go), "build", *flags, "-o", f"{made}/", *packages], "building", BUILD_BUDGET_S, most=most)

    def _run(self, command: list[str], what: str, budget_s: float, *, most: int | None = None) -> str:
        """Standard output.  The other output's lines are counted as progress: one a module, or one a package."""
        started_s = time.monotonic()
        answer = self._log.with_suffix(".out")
        with self._log.open("w") as log, answer.open("w") as out:
            process = subprocess.Popen(command, cwd=self._family.folder, env=self._settings, stdout=out, stderr=log)
            try:
                while (code := self._wait(process)) is None:
                    passed_s = time.monotonic() - started_s
                    if passed_s > budget_s:
                        raise ToolsBuildError(f"{what} did not end within {_clock(budget_s)}", self._last_lines())
                    count = len(self._log.read_text().splitlines())
                    of = f" of at most {most}" if most else ""
                    self._say(f"{self._family.name}: {what}: {count}{of}, {_clock(passed_s)}")
            finally:
                process.kill()
                process.wait()
        if code != 0:
            raise ToolsBuildError(f"{self._family.name}: {what} failed with code {code}:", self._last_lines())
        return answer.read_text()

    def _wait(self, process: subprocess.Popen[bytes]) -> int | None:
        try:
            return process.wait(timeout=TELL_EVERY_S)
        except subprocess.TimeoutExpired:
            return None

    def _last_lines(self) -> str:
        lines = [line for line in self._log.read_text().splitlines() if not line.startswith("go: downloading")]
        return "\n".join(lines[-ERROR_LINES:])


def _go_settings(go: Path, cache: Path, environ: Mapping[str, str]) -> dict[str, str]:
    settings = go_environment(environ, go)
    caches = {"GOMODCACHE": cache / GO_CACHES / "modules", "GOCACHE": cache / GO_CACHES / "objects"}
    return {**settings, **{name: str(path) for name, path in caches.items()}, "GOFLAGS": _writable(settings["GOFLAGS"])}


def _writable(flags: str) -> str:
    return f"{flags} -modcacherw"  # so that `--trim` can remove the modules


def _warn_of_full_disk(folder: Path, say: Say) -> None:
    free_gib = shutil.disk_usage(folder).free / 2**30
    if free_gib < NEEDED_GIB:
        say(f"WARNING: {free_gib:.1f} GiB are free in {folder}, a first build takes about {NEEDED_GIB:.0f}")


def _clock(time_s: float) -> str:
    return f"{int(time_s) // 60}:{int(time_s) % 60:02d}"


def say_on_stderr(line: str) -> None:
    print(f"cluster tools: {line}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.build", description=__doc__)
    parser.add_argument("--trim", action="store_true", help="remove Go's caches and the programs of older pins instead")
    parser.add_argument("--nodes", action="store_true", help="also what real nodes need (make e2e)")
    arguments = parser.parse_args()
    try:
        if arguments.trim:
            trim(os.environ, say_on_stderr)
        else:
            wanted = (*FAMILIES, *ALERT_FAMILIES, *(NODE_FAMILIES if arguments.nodes else ()))
            ensure_tools(os.environ, say_on_stderr, wanted)
    except (HarnessError, EtcdServerError) as error:
        say_on_stderr(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
