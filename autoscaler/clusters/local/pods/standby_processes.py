"""Standby processes: each waits, started and connected, for the pod's process before it to die (ADR 0202).

A standby has the key of the pod's next process, which it becomes.  One that dies is replaced.  Not here: the pods' own
processes and their ends (`pod_runtime`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from autoscaler.clusters.local.machine.pod_logs import describe_exit
from autoscaler.clusters.local.machine.processes import Command, ProcessEnd, Processes, StartError, SupervisorLostError
from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.clusters.local.pods.pod_table import PodTable
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import PodName
from autoscaler.jobs.restart_policy import pause_s
from master.api.host.signals import TAKE_OVER

FIRST_AFTER_S: Final = 2.0
"""After a pod's first process serves: the standby's interpreter must not slow the start of a job."""
NEXT_AFTER_S: Final = 0.3
"""After a standby has taken over: members reconnect first, and another death may be near."""


class StandbyProcesses:
    """Standbys of all pods.  `command_of` gives the command of a pod's standby; None: it has none."""

    def __init__(
        self,
        table: PodTable,
        processes: Processes,
        recorder: RunJournal,
        *,
        command_of: Callable[[LocalPod], Command | None],
    ) -> None:
        self._table = table
        self._processes = processes
        self._recorder = recorder
        self._command_of = command_of
        self._due: dict[PodName, asyncio.TimerHandle] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}  # by key
        self._deaths: dict[PodName, int] = {}  # in a row, of those that stood by for one process

    async def close(self) -> None:
        """Start nothing any more."""
        for timer in self._due.values():
            timer.cancel()
        for task in self._starting.values():
            task.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)

    def note_ready(self, pod: LocalPod) -> None:
        """The pod's process serves: plan a standby for it."""
        self._deaths.pop(pod.name, None)
        self._plan(pod, FIRST_AFTER_S if pod.starts == 1 else NEXT_AFTER_S)

    def note_end(self, ended: ProcessEnd) -> None:
        """A standby has died: start another one after a growing pause, while its pod's process lives."""
        name = PodName(ended.key.rpartition("#")[0])
        pod = self._table.pods.get(name)
        if pod is None or pod.next_key != ended.key or pod.is_leaving:
            return
        deaths = self._deaths[name] = self._deaths.get(name, 0) + 1
        self._recorder.record_event(
            "Exited", f"pod/{name}", "StandbyDied", f"what stood by {describe_exit(ended.code)}"
        )
        self._plan(pod, max(FIRST_AFTER_S, pause_s(deaths)))

    def end(self, pod: LocalPod) -> None:
        """End the pod's standby."""
        self._cancel(pod.name)
        self._deaths.pop(pod.name, None)
        starting = self._starting.pop(pod.next_key, None)
        if starting is not None:
            starting.cancel()
        if starting is not None or self._processes.is_running(pod.next_key):
            self._processes.end(pod.next_key)

    async def take_over(self, pod: LocalPod) -> int | None:
        """Tell the standby that all processes before it are gone; return its pid, None if there is no standby."""
        self._cancel(pod.name)
        if (starting := self._starting.pop(pod.key, None)) is not None:
            await asyncio.gather(starting, return_exceptions=True)
        if not self._processes.is_running(pod.key):
            return None
        self._processes.signal(pod.key, TAKE_OVER)
        return self._processes.pid_of(pod.key)

    def _plan(self, pod: LocalPod, delay_s: float) -> None:
        if self._command_of(pod) is not None:
            self._cancel(pod.name)
            self._due[pod.name] = asyncio.get_running_loop().call_later(delay_s, self._begin, pod.name, pod.key)

    def _begin(self, name: PodName, key: str) -> None:
        """Start a standby for this very process, unless that is gone or leaves."""
        self._due.pop(name, None)
        pod = self._table.pods.get(name)
        if pod is not None and pod.key == key and not pod.is_leaving and (command := self._command_of(pod)) is not None:
            self._starting[pod.next_key] = asyncio.create_task(self._start(pod, command))

    async def _start(self, pod: LocalPod, command: Command) -> None:
        try:
            await self._processes.start(pod.next_key, command)
        except (StartError, SupervisorLostError) as error:  # the pod lives; its next process is started when it is due
            self._recorder.record_event("Failed", f"pod/{pod.name}", "NoStandby", str(error))
        finally:
            self._starting.pop(pod.next_key, None)

    def _cancel(self, name: PodName) -> None:
        timer = self._due.pop(name, None)
        if timer is not None:
            timer.cancel()
