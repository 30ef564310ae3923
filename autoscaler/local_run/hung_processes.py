"""Hang detection for masters and servers: kills a process that stands still, so that another one takes its place.

`jobs.restart_policy` decides when a process counts as hung, from what the operator has heard of it: no question is
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
from autoscaler.jobs.restart_policy import MasterSilence, observe_answer
from autoscaler.operator.job.job_pods import active_pods, uid_of
from autoscaler.operator.job.job_record import JobRecord
from autoscaler.operator.store.job_store import JobStore

LOOK_EVERY_S: Final = 0.25


class HungProcesses:
    """Since when each process has been silent."""

    def __init__(self, store: JobStore, kubelet: Kubelet, journal: RunJournal, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._kubelet = kubelet
        self._journal = journal
        self._clock = clock
        self._silences: dict[str, MasterSilence] = {}  # by the pod's UID
        self._answered_at_s: dict[str, float] = {}  # by the job's UID: the last answer of its master that was looked at

    async def run(self) -> None:
        """Look at all jobs until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(LOOK_EVERY_S)

    def check(self) -> None:
        """Take in what is known of every master and server now, and kill those that hang."""
        before, self._silences = self._silences, {}
        for record in tuple(self._store.records.values()):
            with self._store.errors.isolate(record.job.key, GuardedTask.POLL):
                self._check_job(record, before)

    def _check_job(self, record: JobRecord, before: dict[str, MasterSilence]) -> None:
        pods = [raw for raw in self._store.objects.pods(record.job) if self._kubelet.pid_of(uid_of(raw)) is not None]
        for master in active_pods(pods, Role.MASTER):
            self._observe(master, before, is_heard=_is_heard(record, before.get(uid_of(master))), lacking="no answer")
        progress, uid = record.progress, record.job.uid
        has_news = record.progress_at_s > self._answered_at_s.get(uid, record.progress_at_s - 1)
        self._answered_at_s[uid] = record.progress_at_s
        for server in active_pods(pods, Role.SERVER):
            if progress is not None and has_news:
                is_heard = text(server, "metadata", "name") in progress.connected
                self._observe(server, before, is_heard=is_heard, lacking="not connected to its master")
            elif (silence := before.get(uid_of(server))) is not None:
                self._silences[uid_of(server)] = silence  # nothing new is known of it

    def _observe(self, pod: Raw, before: dict[str, MasterSilence], *, is_heard: bool, lacking: str) -> None:
        """Note whether the pod's process was heard of; kill it once it counts as hung.

        `lacking` names the missing sign of life, for the user.
        """
        pid, name = self._kubelet.pid_of(uid_of(pod)), text(pod, "metadata", "name")
        silence = observe_answer(before.get(uid_of(pod)), f"{pid}", has_answered=is_heard, now_s=self._clock())
        if not silence.is_hung:
            self._silences[uid_of(pod)] = silence
            return
        message = f"{lacking} for {silence.silent_s:.0f} s: pid {pid} is killed"
        self._journal.record_event("Killed", f"pod/{name}", "Unresponsive", message)
        self._kubelet.send_signal(text(pod, "metadata", "namespace"), name, signal.SIGKILL)


def _is_heard(record: JobRecord, before: MasterSilence | None) -> bool:
    """True if the job's master answers; an answer of the process before this one says nothing about it."""
    answered_at_s = max(record.progress_at_s, record.refused_at_s)
    is_of_this_one = before is not None and (before.has_answered or answered_at_s > before.silent_since_s)
    return record.missing_answer is not WhyNoAnswer.SILENT and is_of_this_one
