"""Runtime of pods: keeps one process behind each bound pod, from its start and readiness to its grace and restart.

Servers, masters and web pods restart in place, at once first, then with growing pauses; a trainer that has ended is
gone.  Behind a master stands a second process that takes over within moments (`standby_processes`); it is told to do so
only when no process of the one before is left.

Not here: which pods there are, and what the end of a trainer means for its job (`on_gone`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from autoscaler.clusters.local.machine.pod_logs import describe_exit, read_tail
from autoscaler.clusters.local.machine.ports import HOST, is_listening
from autoscaler.clusters.local.machine.processes import Command, MachineFullError, ProcessEnd, Processes, StartError
from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.clusters.local.pods.pod_table import PodTable
from autoscaler.clusters.local.pods.standby_processes import StandbyProcesses
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import JobName, PodName, PodPhase, Role
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key
from autoscaler.jobs.restart_policy import STEADY_AFTER_S, pause_s

_PROBE_EVERY_S: Final = 0.02
_PROBE_SLOWER_AFTER_S: Final = 5.0
_PROBE_SLOWLY_EVERY_S: Final = 0.5
_FIRST_ROOM_PAUSE_S: Final = 1.0
_NOT_RUN: Final = 127
"""Exit code of a command that could not be run, as shells have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedPod:
    """Pod that was dropped.  `story` tells how its process ended, with its last log lines if nobody asked it to end."""

    pod: LocalPod
    code: int | None
    story: str


class PodRuntime:
    """Processes behind the pods of a table.

    `command_of` says what a pod runs, `standby_of` what stands by for it, if anything; `on_gone` hears of each pod that
    was dropped, `on_restart` of each whose process has ended unasked and is started again.
    """

    def __init__(
        self,
        table: PodTable,
        recorder: RunJournal,
        *,
        clock: Callable[[], float],
        command_of: Callable[[LocalPod], Command],
        standby_of: Callable[[LocalPod], Command | None],
        on_gone: Callable[[DroppedPod], None],
        on_restart: Callable[[LocalPod], None],
        on_crash: Callable[[BaseException], None],
        errors: JobErrors,
    ) -> None:
        self._errors = errors
        self._table = table
        self._recorder = recorder
        self._clock = clock
        self._command_of = command_of
        self._on_gone = on_gone
        self._on_restart = on_restart
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._starting: set[PodName] = set()
        self._is_closed = False
        self.processes = Processes(on_end=self._take_end, on_lost=on_crash)
        self.standbys = StandbyProcesses(table, self.processes, recorder, command_of=standby_of)

    async def close(self) -> None:
        """End all timers and tasks; nothing starts again.  The processes end with their own context."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, self.standbys.close(), return_exceptions=True)

    def launch(self, name: PodName) -> None:
        """Start the process of a bound pod."""
        self._do(self._launch(name), f"start {name}")

    def leave(self, name: PodName, *, grace_s: float, why: str) -> None:
        """Send the pod SIGTERM, and SIGKILL after the grace; of two calls the shorter grace holds."""
        pod = self._table.pods[name]
        first_time = not pod.is_leaving
        pod = self._table.update(name, phase=PodPhase.TERMINATING, grace_s=grace_s, leaving=pod.leaving or why)
        self.standbys.end(pod)
        if first_time:
            self._recorder.record_event("Drained" if grace_s > 0 else "Killed", f"pod/{name}", "Leaving", why)
        if name in self._starting:
            return  # the start finds out
        if not self.processes.is_running(pod.key):
            self._cancel_timer(f"{name} restart")
            self._drop(pod, code=None, story="had no process")
            return
        if first_time and grace_s > 0:
            self.processes.signal(pod.key, signal.SIGTERM)
        self._later(pod.key, grace_s, lambda: self._kill(name, pod.key))

    def send_signal(self, name: PodName, number: signal.Signals) -> bool:
        """A fault from outside, as `kill` would make it; False when the pod has no process now."""
        pod = self._table.pods[name]
        if not self.processes.is_running(pod.key):
            return False
        self._recorder.record_event("Killed", f"pod/{name}", number.name, f"{number.name} was sent to pid {pod.pid}")
        self.processes.signal(pod.key, number)
        return True

    def is_present(self, pod: LocalPod) -> bool:
        """True if the process of this value still runs and was not told to leave."""
        current = self._table.pods.get(pod.name)
        return current is not None and current.key == pod.key and current.pid is not None and not current.is_leaving

    def end_hung(self, name: PodName, *, why: str) -> None:
        """Kill a hung process; it restarts in place where its role does."""
        pod = self._table.pods[name]
        self._recorder.record_event("Killed", f"pod/{name}", "Unresponsive", f"{why}: pid {pod.pid} is killed")
        self.processes.signal(pod.key, signal.SIGKILL)

    def mark_ready(self, name: PodName) -> None:
        """Record that the pod is ready."""
        pod = self._table.pods.get(name)
        if pod is None or pod.phase is not PodPhase.STARTING:
            return
        pod = self._table.update(name, phase=PodPhase.READY, ready_at_s=self._clock())
        self._recorder.record_event("Ready", f"pod/{name}", "Ready", f"on {pod.node}")
        self.standbys.note_ready(pod)

    async def _launch(self, name: PodName) -> None:
        """Start the pod; after a fault of EDL try again later, without harm to other pods (A11)."""
        pod = self._table.pods.get(name)
        if pod is None:
            return
        owner = owner_of(pod)
        with self._errors.isolate(owner, GuardedTask.START):
            await self._start(name)
            return
        if name in self._table.pods:
            self._launch_after(name, self._errors.retry_at_s(owner, GuardedTask.START) - self._clock())

    def _launch_after(self, name: PodName, pause_s: float) -> None:
        self._later(f"{name} restart", max(0.0, pause_s), lambda: self.launch(name))

    async def _start(self, name: PodName) -> None:
        """The pod's process runs and serves.  A start that a fault has ended half-way goes on where it was."""
        pod = self._table.pods.get(name)
        if pod is None:
            return
        is_running = self.processes.is_running(pod.key)
        if pod.is_leaving and not is_running:
            self._drop(pod, code=None, story="had no process")
            return
        key = pod.key if is_running else pod.next_key
        pid = self.processes.pid_of(key) if is_running else await self._start_process(pod)
        current = self._table.pods.get(name)
        if pid is None or current is None or current.key != key or not self.processes.is_running(key):
            return  # it has ended within the same breath
        pod = self._table.update(name, pid=pid)
        self._recorder.record_event("Started", f"pod/{name}", "Started", f"pid {pid} on {pod.node}")
        if pod.is_leaving:
            self.processes.signal(pod.key, signal.SIGTERM)
            self._later(pod.key, pod.grace_s, lambda: self._kill(name, pod.key))
            return
        await self._watch_readiness(pod)

    async def _start_process(self, pod: LocalPod) -> int | None:
        """The pid; None where the command could not be run, which is judged as a process that has ended.

        A machine without room for another process says nothing about the command: it is tried again until there is.
        """
        name = pod.name
        size = pod.log.stat().st_size if pod.log.exists() else 0
        pod = self._table.update(
            name,
            starts=pod.starts + 1,
            log_offset=size,
            waiting="",
            started_at_s=self._clock(),
            phase=PodPhase.STARTING,
        )
        self._starting.add(name)
        try:
            return await self.standbys.take_over(pod) or await self.processes.start(pod.key, self._command_of(pod))
        except MachineFullError as error:
            self._starting.discard(name)
            self._wait_for_room(name, error)
            return None
        except StartError as error:
            self._starting.discard(name)
            await asyncio.to_thread(_append, pod, f"{error}\n")
            self._take_end(ProcessEnd(key=pod.key, pid=0, code=_NOT_RUN))
            return None
        except Exception:
            self.processes.end(pod.key)  # what stood by may not know that its time has come
            raise
        finally:
            self._starting.discard(name)

    def _wait_for_room(self, name: PodName, error: MachineFullError) -> None:
        """Try again later and count no failure: a neighbour that fills the machine for a while must not fail a job."""
        pod = self._table.pods[name]
        if pod.is_leaving:
            self._drop(pod, code=None, story="had no process")
            return
        refusals = pod.quick_ends + 1
        pause = max(_FIRST_ROOM_PAUSE_S, pause_s(refusals))
        following = f"tried again in {pause:.0f} s"
        self._table.update(name, quick_ends=refusals, waiting=f"NoRoom: {following}")
        self._launch_after(name, pause)
        self._recorder.record_event(
            "Failed", f"pod/{name}", "NoRoom", f"the machine starts no process: {error}\n{following}"
        )

    async def _watch_readiness(self, pod: LocalPod) -> None:
        """A web pod is ready when its port answers, a master when its job's Status does (`jobs`), others at once."""
        if pod.role is Role.MASTER:
            return
        began_at_s = self._clock()
        while pod.port is not None and not await is_listening(f"{HOST}:{pod.port}"):
            is_early = self._clock() - began_at_s < _PROBE_SLOWER_AFTER_S
            await asyncio.sleep(_PROBE_EVERY_S if is_early else _PROBE_SLOWLY_EVERY_S)
            if not self.processes.is_running(pod.key):
                return
        current = self._table.pods.get(pod.name)
        if current is not None and current.key == pod.key:
            self.mark_ready(pod.name)

    def _take_end(self, ended: ProcessEnd) -> None:
        name = PodName(ended.key.rpartition("#")[0])
        pod = self._table.pods.get(name)
        with self._errors.isolate(object_key("pod", "", name) if pod is None else owner_of(pod), GuardedTask.POD_END):
            self._cancel_timer(ended.key)
            if pod is None or self._is_closed:
                return
            if pod.key == ended.key:
                self._judge_end(pod, ended)
            else:
                self.standbys.note_end(ended)
            return
        pod = self._table.pods.get(name)
        if pod is None or pod.key != ended.key:
            return
        if pod.role is Role.TRAINER or pod.is_leaving:  # nothing runs behind it, and its room is others'
            self._errors.attempt(name_of_pod(pod), GuardedTask.POD_END, partial(self._table.drop, name))
        else:
            self._launch_after(name, self._errors.retry_at_s(owner_of(pod), GuardedTask.POD_END) - self._clock())

    def _judge_end(self, pod: LocalPod, ended: ProcessEnd) -> None:
        story = describe_exit(ended.code)
        if pod.is_leaving:
            self._drop(pod, code=ended.code, story=story)
            return
        if ended.code != 0 or pod.role is not Role.TRAINER:
            story += read_tail(pod.log, pod.log_offset)
        if pod.role is Role.TRAINER:
            self._drop(pod, code=ended.code, story=story)
        else:
            self._restart(pod, story)

    def _restart(self, pod: LocalPod, story: str) -> None:
        ran_s = self._clock() - (pod.started_at_s or 0.0)
        stands_by = self.processes.is_running(pod.next_key)  # begun after the present one served: no crash is counted
        quick_ends = 0 if stands_by else 1 if ran_s >= STEADY_AFTER_S else pod.quick_ends + 1
        pause = pause_s(quick_ends)
        following = "starts again at once" if pause == 0 else f"starts again in {pause:.0f} s"
        waiting = "" if pause == 0 else f"CrashLoopBackOff: {following}"
        self._table.update(
            pod.name, phase=PodPhase.STARTING, quick_ends=quick_ends, waiting=waiting, pid=None, ready_at_s=None
        )
        self._launch_after(pod.name, pause)  # first: it comes back whatever becomes of the rest
        self._recorder.record_event("Exited", f"pod/{pod.name}", "Restarting", f"{story}\n{following}")
        self._on_restart(pod)

    def _drop(self, pod: LocalPod, *, code: int | None, story: str) -> None:
        self._table.drop(pod.name)
        brief = "had no process" if code is None else describe_exit(code)  # its job tells the whole story
        self._recorder.record_event("Exited", f"pod/{pod.name}", "Gone", brief)
        self._on_gone(DroppedPod(pod=pod, code=code, story=story))

    def _kill(self, name: PodName, key: str) -> None:
        if self.processes.is_running(key):
            pod = self._table.pods[name]
            if pod.grace_s > 0:
                message = f"did not leave within its grace of {pod.grace_s:g} s"
                self._recorder.record_event("Killed", f"pod/{name}", "GraceOver", message)
            self.processes.signal(key, signal.SIGKILL)

    def _later(self, label: str, delay_s: float, action: Callable[[], None]) -> None:
        self._cancel_timer(label)

        def fire() -> None:
            self._timers.pop(label, None)
            action()

        self._timers[label] = asyncio.get_running_loop().call_later(delay_s, fire)

    def _cancel_timer(self, label: str) -> None:
        timer = self._timers.pop(label, None)
        if timer is not None:
            timer.cancel()

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)


def owner_of(pod: LocalPod) -> JobName:
    """Name under which faults with the pod's owner are kept (`fault_isolation`)."""
    return JobName(pod.owner) if pod.is_job_pod else object_key("deployment", "", pod.owner)


def name_of_pod(pod: LocalPod) -> JobName:
    """Name under which faults with this one pod are kept."""
    return object_key("pod", "", pod.name)


def _append(pod: LocalPod, text: str) -> None:
    with contextlib.suppress(OSError), pod.log.open("a", encoding="utf-8") as log:  # a full disk; the event is told
        log.write(text)
