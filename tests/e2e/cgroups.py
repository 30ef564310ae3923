"""A control group for each node, below one for the run: two kubelets must not share theirs.

The control groups are the machine's; a run leaves nothing there, and removes what a killed run had to leave.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

MOUNT: Final = Path("/sys/fs/cgroup")
PREFIX: Final = "edl-e2e-"
REMOVAL_BUDGET_S: Final = 5.0
POLL_S: Final = 0.1
INHERITED: Final = ("cpuset.cpus", "cpuset.mems")  # empty in a new group of version 1, which lets no process in


def make_groups(run: str, node: str) -> str:
    """The node's group, as a path from the root of every hierarchy."""
    for hierarchy in _hierarchies():
        parent = hierarchy
        for name in (PREFIX + run, node):
            group = parent / name
            group.mkdir(exist_ok=True)
            _let_in(parent, group)
            parent = group
    return f"/{PREFIX}{run}/{node}"


def remove_groups(run: str) -> None:
    """Remove the run's groups.  Their processes must have ended."""
    deadline_s = time.monotonic() + REMOVAL_BUDGET_S
    for hierarchy in _hierarchies():
        while (hierarchy / (PREFIX + run)).is_dir() and not _try_remove(hierarchy / (PREFIX + run)):
            if time.monotonic() > deadline_s:
                break  # a later run's `remove_stale` tries again
            time.sleep(POLL_S)


def remove_stale(is_running: Callable[[str], bool]) -> None:
    """Removes the groups of runs that were killed."""
    names = {group.name.removeprefix(PREFIX) for hierarchy in _hierarchies() for group in hierarchy.glob(f"{PREFIX}*")}
    for hierarchy in _hierarchies():
        for run in names:
            if not is_running(run):
                _try_remove(hierarchy / (PREFIX + run))


def _try_remove(group: Path) -> bool:
    """A group with processes stays."""
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)  # noqa: PTH106  # a group is removed with its files in it
    except OSError:
        return False
    return True


def _hierarchies() -> list[Path]:
    """Hierarchies for the groups: the one of version 2, or each of version 1, with what of version 2 is beside."""
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    return [folder for folder in sorted(MOUNT.iterdir()) if folder.is_dir() and not folder.is_symlink()]


def _let_in(parent: Path, group: Path) -> None:
    """Makes the new group one that processes may enter and that passes its controllers on."""
    for name in INHERITED:
        if (group / name).exists() and (parent / name).exists():
            shutil.copyfile(parent / name, group / name)
    available, passed_on = parent / "cgroup.controllers", parent / "cgroup.subtree_control"
    if available.exists():
        passed_on.write_text(" ".join(f"+{name}" for name in available.read_text().split()))
