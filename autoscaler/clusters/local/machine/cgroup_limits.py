"""Limits of this process's control groups: the cores and memory that a container, or a service of systemd, may use.

The machine's own numbers are larger there.  cgroup v2 has the files cpu.max and memory.max, v1 cpu.cfs_quota_us and
memory.limit_in_bytes, each in its own hierarchy; a limit of any group above binds as well.  Pure but for `read_limits`,
which reads the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

CGROUPS: Final = "/proc/self/cgroup"
MOUNTS: Final = "/proc/self/mountinfo"
_PERIOD_US: Final = 100_000  # the kernel's default

TryRead = Callable[[str], str | None]
"""Text of the file at this path; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimits:
    """The smallest limits of the groups of a process; None: unlimited."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


def read_limits() -> CgroupLimits:
    """The limits of this process; none where the system shows no control groups."""
    return find_limits(_try_read)


def find_limits(try_read: TryRead) -> CgroupLimits:
    """The limits that the files of a system say."""
    cgroups, mounts = try_read(CGROUPS) or "", try_read(MOUNTS) or ""
    cores = [_cpu_limit(folder, try_read) for folder in find_folders("cpu", cgroups, mounts)]
    sizes = [_memory_limit(folder, try_read) for folder in find_folders("memory", cgroups, mounts)]
    return CgroupLimits(
        cpu_milli=min((limit for limit in cores if limit is not None), default=None),
        memory_bytes=min((limit for limit in sizes if limit is not None), default=None),
    )


def find_folders(controller: str, cgroups: str, mounts: str) -> tuple[str, ...]:
    """Folders of the process's groups and all above, in v2 and in the v1 hierarchy of this controller.

    `cgroups` and `mounts`: texts of /proc/PID/cgroup and /proc/PID/mountinfo.  A mount may show only a part of a
    hierarchy, from its root on; a group outside that part counts as its root.
    """
    paths = {name: path for names, path in _groups_of(cgroups) for name in names.split(",")}
    found: list[str] = []
    for root, point, names in _cgroup_mounts(mounts):
        for name in names & paths.keys() & {controller, ""}:
            path = PurePosixPath(paths[name])
            inside = path.relative_to(root) if path.is_relative_to(root) else PurePosixPath()
            folder = PurePosixPath(point)
            found += [str(folder), *(str(folder := folder / part) for part in inside.parts)]
    return tuple(found)


def _groups_of(cgroups: str) -> Iterator[tuple[str, str]]:
    """Controllers, by commas, and path of each group; v2 names no controllers."""
    for line in cgroups.splitlines():
        _, has_names, rest = line.partition(":")
        names, has_path, path = rest.partition(":")
        if has_names and has_path:
            yield names, path


def _cgroup_mounts(mounts: str) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Root within its hierarchy, folder, and controllers of each mount; "" for v2."""
    for line in mounts.splitlines():
        fields, _, source = line.partition(" - ")
        words, kind = fields.split(), source.split()
        if len(words) < 5 or len(kind) < 3 or kind[0] not in {"cgroup", "cgroup2"}:
            continue
        yield words[3], words[4], frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset({""})


def _cpu_limit(folder: str, try_read: TryRead) -> int | None:
    if (text := try_read(f"{folder}/cpu.max")) is not None:
        return parse_cpu_max(text)
    quota, period = try_read(f"{folder}/cpu.cfs_quota_us"), try_read(f"{folder}/cpu.cfs_period_us")
    return None if quota is None else parse_cpu_max(f"{quota.strip()} {period or ''}")


def _memory_limit(folder: str, try_read: TryRead) -> int | None:
    text = try_read(f"{folder}/memory.max") or try_read(f"{folder}/memory.limit_in_bytes")
    return None if text is None else parse_memory_max(text)


def parse_cpu_max(text: str) -> int | None:
    """Thousandths of a core, at least 1, of quota and period in microseconds; None for max, -1 and other texts."""
    quota, period = [*map(_whole, text.split()), 0, 0][:2]
    return max(1, 1000 * quota // (period or _PERIOD_US)) if quota else None


def parse_memory_max(text: str) -> int | None:
    """Bytes; None for max and other texts.  v1 has a number above every memory for no limit."""
    return _whole(text.strip()) or None


def _whole(word: str) -> int:
    return int(word) if word.isascii() and word.isdigit() else 0


def _try_read(path: str) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="utf-8")
    return None
