"""Pods of processes: /proc tells the UID of each one's pod, and the kubelet's log folders tell the name of a UID.

NVML tells PIDs of the host, so this needs the host's PID namespace.  Without it nothing is found, or a process that
only has the same number and is in no pod; so what is missing here never makes a device idle, it makes sharing
pods *unknown*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from autoscaler.gpus.owners import HoldingPod
from autoscaler.gpus.pods.cgroup_paths import find_pod_uid

PROC: Final = Path("/proc")
POD_LOGS: Final = Path("/var/log/pods")

_LONGEST_CGROUP: Final = 64 * 1024
_MOST_FOLDERS: Final = 10_000


class ProcessPods:
    """Looks up the pods of processes.  Names of pods are read again only when a new UID appears."""

    def __init__(self, proc: Path = PROC, pod_logs: Path = POD_LOGS) -> None:
        self._proc = proc
        self._pod_logs = pod_logs
        self._names: Mapping[str, HoldingPod] = {}

    def find(self, pids: Iterable[int]) -> Mapping[int, HoldingPod]:
        """The pod of each process that runs in one; a process that has ended is left out."""
        uids = {pid: uid for pid in pids if (uid := self._uid(pid)) is not None}
        if not self._names.keys() >= set(uids.values()):
            self._names = self._read_names()
        return {pid: self._names[uid] for pid, uid in uids.items() if uid in self._names}

    def _uid(self, pid: int) -> str | None:
        try:
            with (self._proc / str(pid) / "cgroup").open(encoding="utf-8", errors="replace") as file:
                return find_pod_uid(file.read(_LONGEST_CGROUP))
        except OSError:
            return None

    def _read_names(self) -> Mapping[str, HoldingPod]:
        """Folders are called NAMESPACE_NAME_UID; neither namespace nor name contains _."""
        names: dict[str, HoldingPod] = {}
        try:
            for count, folder in enumerate(self._pod_logs.iterdir()):
                parts = folder.name.split("_")
                if len(parts) == 3:
                    names[parts[2]] = HoldingPod(namespace=parts[0], name=parts[1])
                if count >= _MOST_FOLDERS:
                    break
        except OSError:
            return {}
        return names
