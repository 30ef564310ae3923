"""Hang detection for masters and servers: kills a process that stands still, so that another one takes its place.

`jobs.restart_policy` decides when a process counts as hung, from the operator's polls of masters: no question is
asked twice.  Trainers are left alone, because their script may compute for an hour after its session is closed: what
they held goes to others when their leases end.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, text
from autoscaler.clusters.local.control_plane.kubelet import Kubelet
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import Role
from autoscaler.fault_isolation import GuardedTask
from autoscaler.jobs.progress import WhyNoAnswer
from autoscaler.jobs.restart_policy import ProcessSilence, observe_answer
from autoscaler.operator.job.job_pods import active_pods, uid_of
from autoscaler.operator.job.job_record import JobRecord
from autoscaler.operator.store.job_store import JobStore

CHECK_EVERY_S: Final = 0.25


class HungProcesses:
    """Since when each process has been silent.  `clock` is the store's."""

    def __init__(self, store: JobStore, kubelet: Kubelet, journal: RunJournal, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._kubelet = kubelet
        self._journal = journal
        self._clock = clock
        self._silences: dict[str, ProcessSilence] = {}  # by the pod's UID

    async def run(self) -> None:
        """Check all jobs until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_EVERY_S)

    def check(self) -> None:
        """Apply what the last polls say of every master and server, and kill those that hang."""
        before, self._silences = self._silences, {}
        errors = self._store.errors
        for record in tuple(self._store.records.values()):
            if not errors.is_paused(record.job.key, GuardedTask.HANG):
                with errors.isolate(record.job.key, GuardedTask.HANG):
                    self._check_job(record, before)

    def _check_job(self, record: JobRecord, before: dict[str, ProcessSilence]) -> None:
        pods = [raw for raw in self._store.objects.pods(record.job) if self._kubelet.pid_of(uid_of(raw)) is not None]
        is_answered = record.missing_answer is not WhyNoAnswer.SILENT
        for master in active_pods(pods, Role.MASTER):
            silence = self._observe(master, before, polled_at_s=record.polled_at_s, has_answered=is_answered)
            self._keep_or_kill(master, silence, lacking="no answer")
        connected = () if record.progress is None else record.progress.connected
        for server in active_pods(pods, Role.SERVER):
            is_connected = text(server, "metadata", "name") in connected
            silence = self._observe(server, before, polled_at_s=record.progress_at_s, has_answered=is_connected)
            self._keep_or_kill(server, silence, lacking="not connected to its master")

    def _observe(
        self, pod: Raw, before: dict[str, ProcessSilence], *, polled_at_s: float, has_answered: bool
    ) -> ProcessSilence:
        """Apply the last poll, unless it is known, or says nothing of this process: it began later."""
        process, silence = f"{self._kubelet.pid_of(uid_of(pod))}", before.get(uid_of(pod))
        if silence is None or silence.process != process:
            return observe_answer(None, process, has_answered=False, now_s=self._clock())
        if polled_at_s <= silence.polled_at_s:
            return silence
        return observe_answer(silence, process, has_answered=has_answered, now_s=polled_at_s)

    def _keep_or_kill(self, pod: Raw, silence: ProcessSilence, *, lacking: str) -> None:
        """Kill the process once it counts as hung.  `lacking` names the missing sign of life, for the user."""
        if not silence.is_hung:
            self._silences[uid_of(pod)] = silence
            return
        name = text(pod, "metadata", "name")
        message = f"{lacking} for {silence.silent_s:.0f} s: pid {silence.process} is killed"
        self._journal.record_event("Killed", f"pod/{name}", "Unresponsive", message)
        self._kubelet.send_signal(text(pod, "metadata", "namespace"), name, signal.SIGKILL)
