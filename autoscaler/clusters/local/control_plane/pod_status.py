"""Status of a pod that runs as a process of this machine, as the kubelet writes it to the API server.

`PodRun` is the kubelet's record of a pod, `PodStatus` writes it: phase, container state, annotations with what only a
process of this machine has, and the log that the API server answers.  Not here: what happens to a pod and when
(`kubelet`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.errors import ConflictError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.clusters.kubernetes.objects.fields import Raw
from autoscaler.clusters.local.control_plane.pod_annotations import GPUS, PID, PORT
from autoscaler.clusters.local.machine.ports import HOST
from autoscaler.clusters.local.machine.processes import Processes
from autoscaler.clusters.local.run_files.run_folder import RunFolder
from autoscaler.domain import JobName
from autoscaler.fault_isolation import object_key

LOG_LINES: Final = 100
LOG_BYTES: Final = 64 << 10
_SIGNALLED: Final = 128


@dataclass(slots=True, kw_only=True)
class PodRun:
    """The kubelet's record of one pod.  `key` names its present process and is used for no other one."""

    uid: str
    namespace: str
    name: str
    gpus: tuple[int, ...]
    node: str
    port: int | None = None  # a web pod's, or for a master's metrics; from its first start on
    starts: int = 0  # of processes that began, and of the one that is starting
    refusals: int = 0  # starts in a row that could not be made, through no fault of the command
    quick_ends: int = 0  # ends in a row that came soon after the start
    started_at_s: float = 0.0
    log_offset: int = 0  # where the output of the present process begins
    is_starting: bool = False
    has_ended: bool = False  # for good: its devices are free as soon as its phase says so
    is_leaving: bool = False
    kill_at_s: float = math.inf  # when its grace is over; only ever lowered
    is_overdue: bool = False  # it was killed because it did not leave within its grace
    last_state: Mapping[str, Any] = field(default_factory=dict)  # how the process before the present one ended
    timer: asyncio.TimerHandle | None = None  # the next start, or the end of the grace

    @property
    def key(self) -> str:
        return f"{self.name}#{self.uid}.{self.starts}"

    @property
    def object_key(self) -> JobName:
        """The name under which faults with the pod are kept."""
        return object_key("pod", self.namespace, self.name)


class PodStatus:
    """Writes the objects of pods; each write is of the pod that the run is about, and none once that is gone."""

    def __init__(self, server: MemoryServer, processes: Processes, folder: RunFolder) -> None:
        self._server = server
        self._processes = processes
        self._folder = folder

    def find(self, run: PodRun) -> dict[str, Any] | None:
        """The pod as it stands; None once it is gone or another one bears its name."""
        try:
            pod = self._server.get(PODS, run.namespace, run.name)
        except NotFoundError:
            return None
        return pod if pod["metadata"]["uid"] == run.uid else None

    def report(
        self,
        run: PodRun,
        phase: str,
        state: Mapping[str, Any],
        *,
        is_ready: bool = False,
    ) -> None:
        """Write phase and container state, and where the process runs."""
        pod = self.find(run)
        if pod is None:
            return
        container = {
            "name": pod["spec"]["containers"][0]["name"],
            "restartCount": max(0, run.starts - 1),
            "ready": is_ready,
            "state": dict(state),
            "lastState": dict(run.last_state),
        }
        scheduled = {"type": "PodScheduled", "status": "True"}
        ready = {"type": "Ready", "status": "True" if is_ready else "False"}
        status = {
            **pod["status"],
            "phase": phase,
            "podIP": HOST,
            "conditions": [scheduled, ready],
            "containerStatuses": [container],
        }
        metadata = {
            **pod["metadata"],
            "annotations": {**(pod["metadata"].get("annotations") or {}), **self._annotations(run)},
        }
        self._server.rewrite(PODS, pod, {**pod, "metadata": metadata, "status": status})

    def report_running(self, run: PodRun, *, is_ready: bool = False) -> None:
        """Write that the pod's process runs, since now."""
        self.report(run, "Running", {"running": {"startedAt": _now()}}, is_ready=is_ready)

    def keep_log(self, run: PodRun) -> None:
        """Keep what the last process wrote: the API server answers with it for the pod's log."""
        with suppress(OSError), self._folder.log_of(run.name).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(run.log_offset if run.log_offset <= size else 0, size - LOG_BYTES))
            lines = file.read(LOG_BYTES).splitlines(keepends=True)[-LOG_LINES:]
            self._server.logs[run.namespace, run.name] = lines

    def remove(self, pod: Raw) -> None:
        """Remove the pod's object, unless that is gone already or another pod bears its name."""
        metadata = pod["metadata"]
        with suppress(NotFoundError, ConflictError):
            self._server.finish(metadata["namespace"], metadata["name"], uid=metadata["uid"])

    def _annotations(self, run: PodRun) -> dict[str, str]:
        """Annotations for what a process of this machine has and a container of a cluster has not."""
        return {
            PID: str(self._processes.pid_of(run.key)) if self._processes.is_running(run.key) else "",
            PORT: "" if run.port is None else str(run.port),
            GPUS: ",".join(map(str, run.gpus)),
        }


def terminated(code: int) -> dict[str, Any]:
    """The terminated state of a container whose process ended with this code; negative: by that signal."""
    exit_code = code if code >= 0 else _SIGNALLED - code
    return {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
