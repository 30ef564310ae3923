"""State of the machine that a run must not change: its settings, network, mounts, control groups and /var.

The state is read before and after a run, from outside its namespaces.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.e2e.cgroups import PREFIX
from tests.e2e.surroundings import Surroundings

SETTINGS: Final = Path("/proc/sys")
WATCHED: Final = ("kernel", "net", "vm")
RESTLESS: Final = ("kernel/ns_last_pid", "kernel/pty/nr", "kernel/random/", "net/netfilter/nf_conntrack_count")
FOLDERS: Final = ("/sys/class/net", "/sys/fs/cgroup", "/var", "/var/lib", "/var/log", "/run")
FILES: Final = ("/proc/net/route", "/proc/self/mounts")
THERE: Final = "there"
FIREWALL_BUDGET_S: Final = 60.0


def read_state(surroundings: Surroundings) -> dict[str, str]:
    """By what it is of; without the control groups of other runs."""
    state = {str(path): _read(path) for path in _settings()}
    state |= {f"{path}: {line}": THERE for path in FILES for line in _read(Path(path)).splitlines()}
    state |= {str(entry): THERE for folder in FOLDERS for entry in Path(folder).iterdir()}
    state |= {str(group): THERE for group in Path("/sys/fs/cgroup").glob("*/*/")}
    state["firewall"] = _firewall(surroundings.images.system)
    return {name: value for name, value in state.items() if not _is_anothers(name, surroundings.run)}


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """One line for each thing that is not as it was.  What others took away meanwhile is none of ours."""
    return [
        f"{name}: was {before.get(name)!r}, is {value!r}"
        for name, value in sorted(after.items())
        if before.get(name) != value
    ]


def _settings() -> Iterator[Path]:
    for part in WATCHED:
        for path in sorted((SETTINGS / part).rglob("*")):
            if path.is_file() and not str(path.relative_to(SETTINGS)).startswith(RESTLESS):
                yield path


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):  # some settings can only be written
        return path.read_text(errors="replace")
    return ""


def _is_anothers(name: str, run: str) -> bool:
    return PREFIX in name and f"{PREFIX}{run}" not in name


def _firewall(system: Path) -> str:
    """Rules of the kernel's packet filter, without counters.  `system` has `nft` in it."""
    command = ["chroot", str(system), "/usr/sbin/nft", "--stateless", "list", "ruleset"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FIREWALL_BUDGET_S)
    return done.stdout or done.stderr
