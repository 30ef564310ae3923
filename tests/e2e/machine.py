"""What a run must leave as it found it: the machine's settings, network, mounts, control groups and /var.

The state is read before and after a run, from outside its namespaces.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

SETTINGS: Final = Path("/proc/sys")
WATCHED: Final = ("kernel", "net", "vm")
RESTLESS: Final = ("kernel/ns_last_pid", "kernel/pty/nr", "kernel/random/", "net/netfilter/nf_conntrack_count")
FOLDERS: Final = ("/sys/class/net", "/sys/fs/cgroup", "/var", "/var/lib", "/var/log", "/run")
FILES: Final = ("/proc/net/route", "/proc/self/mounts")
FIREWALL_BUDGET_S: Final = 10.0


def read_state(system: Path) -> dict[str, str]:
    """By what it is of.  `system` is a root with `nft` in it, which shows the firewall."""
    state = {path: _read(Path(path)) for path in FILES}
    state |= {folder: " ".join(sorted(entry.name for entry in Path(folder).iterdir())) for folder in FOLDERS}
    state |= {f"/sys/fs/cgroup/{name}": text for name, text in _groups()}
    state |= {str(path): _read(path) for path in _settings()}
    state["firewall"] = _firewall(system)
    return state


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """One line for each thing that is not as it was."""
    return [
        f"{name}: was {before.get(name)!r}, is {after.get(name)!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _settings() -> Iterator[Path]:
    for part in WATCHED:
        for path in sorted((SETTINGS / part).rglob("*")):
            if path.is_file() and not str(path.relative_to(SETTINGS)).startswith(RESTLESS):
                yield path


def _groups() -> Iterator[tuple[str, str]]:
    """The groups of each hierarchy: one level, where a run makes its own."""
    for hierarchy in sorted(Path("/sys/fs/cgroup").iterdir()):
        if hierarchy.is_dir():
            yield hierarchy.name, " ".join(sorted(entry.name for entry in hierarchy.iterdir() if entry.is_dir()))


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):  # some settings can only be written
        return path.read_text(errors="replace")
    return ""


def _firewall(system: Path) -> str:
    """What the kernel's packet filter does for the machine; without the counters."""
    command = ["chroot", str(system), "/usr/sbin/nft", "--stateless", "list", "ruleset"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FIREWALL_BUDGET_S)
    return done.stdout or done.stderr
