"""Requirements of a machine for real nodes, and messages about missing ones."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("apt-get", "chroot", "dpkg-deb", "ip", "mount", "nsenter", "unshare")
FREE_GIB: Final = 6.0


def missing(cache: Path, environ: Mapping[str, str]) -> list[str]:
    """One line for each thing that keeps the tests from running here; empty when they can."""
    if sys.platform != "linux":
        return [f"Linux is needed: this is {sys.platform}"]
    problems = []
    if os.geteuid() != 0:
        problems.append("root is needed, for namespaces, mounts and control groups: try `sudo make e2e`")
    lacking = [program for program in PROGRAMS if shutil.which(program, path=environ.get("PATH")) is None]
    if lacking:
        problems.append(f"these programs are needed on PATH (Debian and Ubuntu have them): {', '.join(lacking)}")
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        problems.append("the kernel needs overlayfs")
    if not Path("/sys/fs/cgroup").is_dir():
        problems.append("control groups are needed at /sys/fs/cgroup")
    if (free_gib := _free_bytes(cache) / 2**30) < FREE_GIB:
        problems.append(f"{FREE_GIB:.0f} GiB are needed below {cache}, {free_gib:.1f} are free")
    if not problems and _file_system_of(cache) == "overlay":
        problems.append(
            f"{cache} lies on overlayfs, which cannot carry another: name another folder with EDL_CACHE_DIR"
        )
    return problems


def _free_bytes(folder: Path) -> int:
    """Also for a folder that does not exist yet."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return shutil.disk_usage(there).free


def _file_system_of(folder: Path) -> str:
    """Its type, by the longest mount point that leads to it."""
    folder = folder.resolve()
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    fitting = [(point, kind) for point, kind in mounts if folder.is_relative_to(point.replace("\\040", " "))]
    return max(fitting, key=lambda mount: len(mount[0]))[1]
