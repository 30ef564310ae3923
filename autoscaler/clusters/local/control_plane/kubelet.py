"""Kubelet: runs the pods that are bound to the nodes of this machine as processes, and reports their status.

    bound pod --start--> Running --ended, restartPolicy Never---> Succeeded or Failed
                         Running --ended, restartPolicy Always--> waiting (backoff) --start--> Running
    deleted pod --SIGTERM, SIGKILL after the grace--> Succeeded or Failed --> gone

`sync` is level-triggered: it compares a pod with what runs of it, so a pod may be shown any number of times.  A process
that cannot be started because the machine is full is tried again and no failure is counted; a command that cannot be
run has ended with 127, as in a shell.  Not here: which node a pod gets (`pod_scheduler`), what its process is
(`pod_commands`), how its status is written (`pod_status`), and the process table itself (`processes`).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.clusters.kubernetes.objects.fields import ENDED_PHASES, Raw, integer, parts, text
from autoscaler.clusters.kubernetes.objects.labels import ROLE
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.local.control_plane.pod_commands import PodCommands, is_member
from autoscaler.clusters.local.control_plane.pod_status import PodRun, PodStatus, terminated
from autoscaler.clusters.local.machine.gpus import choose
from autoscaler.clusters.local.machine.pod_logs import describe_exit, read_tail
from autoscaler.clusters.local.machine.ports import HOST, PortAllocator, is_listening
from autoscaler.clusters.local.machine.processes import (
    MachineFullError,
    ProcessEnd,
    Processes,
    StartError,
    SupervisorLostError,
)
from autoscaler.domain import JobName, NodeName, Role
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask, IsolatedTask, JobErrors, raw_object_key
from autoscaler.jobs.restart_policy import STEADY_AFTER_S, pause_s

GONE_AFTER_S: Final = 0.05
"""How long an ended pod that was told to leave stays: its last status is news for those who watch."""

NO_ROOM_PAUSE_S: Final = 1.0
PROBE_EVERY_S: Final = 0.02
PROBE_SLOWLY_EVERY_S: Final = 0.5
PROBE_SLOWER_AFTER_S: Final = 5.0
NOT_RUN: Final = 127
"""Exit code of a command that could not be run, as shells have it."""

GRACE_OVER: Final = "GraceOver"
"""Why a process was killed: it did not leave within its grace."""


class Kubelet:
    """One for all nodes.  `devices`: the GPU numbers of each node.

    `on_crash` hears of faults that are no pod's; `errors` keeps those that are one pod's alone.
    """

    def __init__(
        self,
        server: MemoryServer,
        commands: PodCommands,
        *,
        devices: Mapping[NodeName, Sequence[int]],
        clock: Callable[[], float],
        errors: JobErrors,
        on_crash: Callable[[BaseException], None],
        serves_metrics: bool = False,
    ) -> None:
        self._serves_metrics = serves_metrics
        self._commands = commands
        self._devices = devices
        self._clock = clock
        self._errors = errors
        self._on_crash = on_crash
        self._ports = PortAllocator()
        self._runs: dict[str, PodRun] = {}  # by UID
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.processes = Processes(on_end=self._handle_end, on_lost=on_crash)
        self._status = PodStatus(server, self.processes, commands.folder)

    async def close(self) -> None:
        """Nothing starts again; the processes themselves end with the context of `processes`."""
        self._is_closed = True
        for run in self._runs.values():
            _cancel(run)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def sync(self, pod: Raw) -> None:
        """Bring what runs of the pod to what its object says."""
        with self._isolate(raw_object_key("pod", pod), GuardedTask.LIFE):
            run = self._runs.get(pod["metadata"]["uid"])
            if "deletionTimestamp" in pod["metadata"]:
                self._leave(pod, run)
            elif run is None and text(pod, "spec", "nodeName") and text(pod, "status", "phase") not in ENDED_PHASES:
                self._admit(pod)

    def forget(self, uid: str) -> None:
        """The pod's object is gone: what still runs of it is killed, and the files of its Secrets are deleted."""
        if (run := self._runs.pop(uid, None)) is None:
            return
        with self._isolate(run.object_key, GuardedTask.POD_END):
            _cancel(run)
            if run.is_starting or self.processes.is_running(run.key):
                self.processes.end(run.key)
            if run.port is not None:
                self._ports.release(run.port)
            self._commands.remove_identity(run.uid)

    def pid_of(self, uid: str) -> int | None:
        """The first process of the pod; None if it has none now."""
        run = self._runs.get(uid)
        return self.processes.pid_of(run.key) if run is not None and self.processes.is_running(run.key) else None

    def send_signal(self, namespace: str, name: str, number: signal.Signals) -> bool:
        """A fault from outside, as `kill` would make it; False if the pod has no process now."""
        run = next((one for one in self._runs.values() if (one.namespace, one.name) == (namespace, name)), None)
        if run is None or not self.processes.is_running(run.key):
            return False
        self.processes.signal(run.key, number)
        return True

    # ---- starting -----------------------------------------------------------------------------------------------

    def _admit(self, pod: Raw) -> None:
        node, metadata = NodeName(text(pod, "spec", "nodeName")), pod["metadata"]
        used = (gpu for run in self._runs.values() if run.node == node and not run.has_ended for gpu in run.gpus)
        run = PodRun(
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            node=node,
            gpus=choose(self._devices.get(node, ()), used, pod_request(pod["spec"]).gpu_count),
        )
        self._runs[run.uid] = run
        self._start_soon(run)

    def _start_soon(self, run: PodRun) -> None:
        run.timer = None
        task = asyncio.create_task(self._start_safely(run), name=f"start {run.name}")
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    async def _start_safely(self, run: PodRun) -> None:
        """Start the pod's process; after a fault of EDL's again, when its pause is over (A11)."""
        with self._isolate(run.object_key, GuardedTask.START):
            await self._start(run)
            return
        run.is_starting = False
        if not run.is_leaving:  # otherwise its timer is the end of its grace
            self._start_after(run, self._errors.retry_at_s(run.object_key, GuardedTask.START) - self._clock())

    async def _start(self, run: PodRun) -> None:
        """The pod's process runs and serves.  A start that a fault has ended half-way goes on where it was."""
        pod = self._status.find(run)
        if pod is None or self._is_closed:
            return
        if not self.processes.is_running(run.key):
            if "deletionTimestamp" in pod["metadata"]:
                self._leave(pod, run)
                return
            if not await self._start_process(run, pod):
                return
        pod = self._status.find(run)
        if pod is None:
            self.processes.end(run.key)
        elif "deletionTimestamp" in pod["metadata"]:
            self._leave(pod, run)
        elif self.processes.is_running(run.key):
            self._status.report_running(run)
            await self._watch_readiness(run, pod)

    async def _start_process(self, run: PodRun, pod: Raw) -> bool:
        """False if there is none, and its status says why."""
        log = self._commands.folder.log_of(run.name)
        try:
            if run.port is None and self._needs_port(pod):
                run.port = self._ports.allocate()
            command = self._commands.command_of(pod, port=run.port, gpus=run.gpus)
        except MachineFullError as error:
            self._wait_for_another_try(run, "NoRoom", error)
            return False
        except ClusterError as error:
            self._wait_for_another_try(run, "CreateContainerConfigError", error)
            return False
        run.starts += 1
        run.is_starting, run.started_at_s = True, self._clock()
        run.log_offset = log.stat().st_size if log.exists() else 0
        try:
            await self.processes.start(run.key, command)
        except MachineFullError as error:
            run.starts -= 1
            self._wait_for_another_try(run, "NoRoom", error)
            return False
        except StartError as error:
            with suppress(OSError), log.open("a", encoding="utf-8") as file:
                file.write(f"{error}\n")
            self._handle_end(ProcessEnd(key=run.key, pid=0, code=NOT_RUN))
            return False
        finally:
            run.is_starting = False
        run.refusals = 0
        return True

    def _needs_port(self, pod: Raw) -> bool:
        """True of web pods, and of masters where Prometheus reads them; members listen on sockets otherwise."""
        if not is_member(pod):
            return _has_port(pod)
        return self._serves_metrics and text(pod, "metadata", "labels", ROLE) == Role.MASTER.value

    def _wait_for_another_try(self, run: PodRun, reason: str, error: Exception) -> None:
        """Nothing was started: no restart is counted, and the pauses grow while it goes on like this."""
        run.refusals += 1
        self._wait(run, reason, str(error), max(NO_ROOM_PAUSE_S, pause_s(run.refusals)))

    async def _watch_readiness(self, run: PodRun, pod: Raw) -> None:
        """A web pod is ready when its port answers, a master when its socket does, others at once."""
        key, address, began_at_s = run.key, self._address_of(run, pod), self._clock()
        while address and not await is_listening(address):
            is_early = self._clock() - began_at_s < PROBE_SLOWER_AFTER_S
            await asyncio.sleep(PROBE_EVERY_S if is_early else PROBE_SLOWLY_EVERY_S)
            if run.key != key or not self.processes.is_running(key):
                return
        if run.key == key and self.processes.is_running(key) and not run.is_leaving:
            self._status.report_running(run, is_ready=True)

    def _address_of(self, run: PodRun, pod: Raw) -> str:
        if text(pod, "metadata", "labels", ROLE) == Role.MASTER.value:
            return self._commands.socket_of(_variables(pod).get("EDL_JOB", ""))
        return "" if run.port is None else f"{HOST}:{run.port}"

    # ---- ending -------------------------------------------------------------------------------------------------

    def _leave(self, pod: Raw, run: PodRun | None) -> None:
        """Tell the pod's process to leave, once; at the end of its grace it is killed.

        A pod that is shown again keeps the end of its grace; a shorter grace lowers it.
        """
        if run is None or (not run.is_starting and not self.processes.is_running(run.key)):
            if text(pod, "status", "phase") not in ENDED_PHASES or run is None:
                self._status.remove(pod)
            return
        if run.is_starting:
            return  # its start finds out
        now_s = self._clock()
        run.kill_at_s = min(run.kill_at_s, now_s + integer(pod, "metadata", "deletionGracePeriodSeconds"))
        self._later(run, max(0.0, run.kill_at_s - now_s), partial(self._kill, run))
        if not run.is_leaving:
            run.is_leaving = True
            self.processes.signal(run.key, signal.SIGTERM)

    def _kill(self, run: PodRun) -> None:
        """Kill the pod's process: its grace period is over, or it has none."""
        pod = self._status.find(run)
        run.is_overdue = pod is not None and integer(pod, "metadata", "deletionGracePeriodSeconds") > 0
        self.processes.signal(run.key, signal.SIGKILL)

    def _handle_end(self, ended: ProcessEnd) -> None:
        uid = ended.key.rpartition("#")[2].rpartition(".")[0]
        run = self._runs.get(uid)
        if run is None or run.key != ended.key or self._is_closed:
            return
        self._attempt(run, partial(self._judge, run, ended.code))

    def _judge(self, run: PodRun, code: int) -> None:
        """The pod has ended, or its process is started again."""
        pod = self._status.find(run)
        if pod is None:
            return
        self._status.keep_log(run)
        is_leaving = "deletionTimestamp" in pod["metadata"]
        if not is_leaving and text(pod, "spec", "restartPolicy") != "Never":
            has_run_long = self._clock() - run.started_at_s >= STEADY_AFTER_S
            run.quick_ends = 1 if has_run_long else run.quick_ends + 1
            self._wait(
                run,
                "CrashLoopBackOff",
                f"the process {describe_exit(code)}",
                pause_s(run.quick_ends),
                last={
                    **terminated(code),
                    "message": read_tail(self._commands.folder.log_of(run.name), run.log_offset),
                },
            )
            return
        ended = terminated(code) | ({"reason": GRACE_OVER} if run.is_overdue else {})
        run.has_ended = True
        self._status.report(run, "Failed" if code else "Succeeded", {"terminated": ended})
        if is_leaving:
            self._later(run, GONE_AFTER_S, partial(self._status.remove, pod))

    def _wait(
        self, run: PodRun, reason: str, why: str, wait_s: float, *, last: Mapping[str, Any] | None = None
    ) -> None:
        """No process of the pod runs for so long, and its status says why.  `last`: how the one before ended."""
        following = "at once" if wait_s == 0 else f"in {wait_s:.0f} s"
        state = {"waiting": {"reason": reason, "message": f"{why}; starts again {following}"}}
        if last is not None:
            run.last_state = {"terminated": last}
        self._status.report(run, "Running" if run.starts > 0 else "Pending", state)
        self._start_after(run, wait_s)

    def _start_after(self, run: PodRun, wait_s: float) -> None:
        self._later(run, max(0.0, wait_s), partial(self._start_soon, run))

    def _later(self, run: PodRun, delay_s: float, action: Callable[[], None]) -> None:
        """The next thing to do for the pod, in place of what was to be done."""
        _cancel(run)
        run.timer = asyncio.get_running_loop().call_later(delay_s, self._attempt, run, action)

    def _attempt(self, run: PodRun, action: Callable[[], None]) -> None:
        """Do this for the pod now; after a fault of EDL's again, when its pause is over (A11)."""
        _cancel(run)
        with self._isolate(run.object_key, GuardedTask.POD_END):
            action()
            return
        self._later(run, self._errors.retry_at_s(run.object_key, GuardedTask.POD_END) - self._clock(), action)

    def _isolate(self, key: JobName, task: GuardedTask) -> IsolatedTask:
        """Only the supervisor's loss ends the run."""
        return self._errors.isolate(key, task, passing=SupervisorLostError)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)


def _cancel(run: PodRun) -> None:
    if run.timer is not None:
        run.timer.cancel()
        run.timer = None


def _variables(pod: Raw) -> dict[str, str]:
    (container, *_) = parts(pod, "spec", "containers")
    return {text(variable, "name"): text(variable, "value") for variable in parts(container, "env")}


def _has_port(pod: Raw) -> bool:
    return any(parts(container, "ports") for container in parts(pod, "spec", "containers"))
