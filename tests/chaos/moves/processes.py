"""The processes of one job: master, servers and trainers, restarted when they die.

`JobProcesses` reconciles like a small controller: ordinals below the wanted count run, others get SIGTERM and their
grace period.  There is no scheduler and no planner, so that a campaign has many resizes in little time.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from autoscaler.clusters.local.machine.ports import HOST, PortAllocator
from autoscaler.clusters.local.machine.processes import Command, ProcessEnd, Processes
from autoscaler.domain import Role
from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint
from master.api.servers_answer import ServersAnswer
from tests.chaos.ledger_shape import LedgerShape
from tests.chaos.moves.failpoints import HOOK
from tests.chaos.moves.job_kinds import ChaosJobKind
from tests.chaos.moves.process import JobProcess
from trainer_sdk.pserver.__main__ import EXIT_OWNING
from trainer_sdk.pserver.process.parameter_server import PIECE_BYTES

ROOT = Path(__file__).resolve().parents[3]
RESTART_AFTER_S = 0.2
KEEP_EVERY_S = 0.05
TELL_EVERY_S = 0.3
MOST_PROBLEMS = 20
STEPPED_DOWN = 75  # of a master that lost its leadership


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesJobShape(LedgerShape):
    """A job of this campaign; `servers` is the count that it starts with."""

    kind: ChaosJobKind = ChaosJobKind.DENSE
    epochs: int = 40
    step_s: float = 0.04
    buckets: int = 192
    most_servers: int = 4
    checkpoint_every_s: float = 1.0
    leader_ttl_s: int = 2
    reconnect_s: float = 1.0
    server_pause_s: float = 1.0  # about so long a server is stopped
    grace_s: float = 20.0
    meet_budget_s: float = 8.0  # a step that nobody has reached by then is missed
    piece_bytes: int = PIECE_BYTES  # from which on a push is passed on to its backup as it comes


class JobProcesses:
    """The processes of one job.  Made by `start_processes`."""

    def __init__(self, job: str, shape: MovesJobShape, *, folder: Path, etcd: Sequence[str], failpoints: Path) -> None:
        self.job = job
        self.shape = shape
        self.folder = folder
        self.servers_wanted = shape.servers
        self.trainers_wanted = shape.trainers
        self.leave_by_signal = False  # surplus servers get SIGTERM; otherwise only the master learns the new count
        self.processes: dict[str, JobProcess] = {}  # by name: the newest of that name
        self.problems: list[str] = []
        self.graces_over = 0  # processes killed because they did not leave within their grace period
        self.servers_hit = 0  # servers killed, paused, or ended before the master released them
        self.awake_since_s = -math.inf  # when the last server that was paused went on
        self.is_over = False  # training has ended: nobody is started again
        self.address = f"{HOST}:{PortAllocator().allocate()}"
        self._etcd = ",".join(etcd)
        self._failpoints = failpoints
        self._ends: dict[str, float] = {}
        self._launcher: Processes | None = None
        self.tasks: list[asyncio.Future[None]] = []  # of `start_processes`
        self._turn = 0
        self._early_ends: dict[int, ProcessEnd] = {}
        (folder / "diaries").mkdir(parents=True)

    @property
    def checkpoint_uri(self) -> str:
        return str(self.folder / "checkpoints")

    @property
    def diaries(self) -> Path:
        return self.folder / "diaries"

    @property
    def _haste(self) -> Path:
        return self.folder / "haste"

    def hurry(self) -> None:
        """Trainers compute no longer than they must: what is left is soon trained."""
        self._haste.touch()

    def staying(self, role: Role) -> list[JobProcess]:
        """The running processes of a role that are not leaving, by ordinal."""
        processes = (process for process in self.processes.values() if process.role is role)
        return sorted((a for a in processes if a.is_running and not a.is_leaving), key=lambda process: process.ordinal)

    def check(self) -> None:
        """Raises the error of a background task, and RuntimeError when too many processes have ended by themselves."""
        for task in self.tasks:
            if task.done():
                task.result()
        if len(self.problems) > MOST_PROBLEMS:
            raise RuntimeError(f"{self.job}: {self.problems[-1]}; logs in {self.folder}")

    def by_pid(self, pid: int) -> JobProcess | None:
        return next((process for process in self.processes.values() if process.pid == pid), None)

    def name_of(self, process: JobProcess) -> str:
        """The member name that the store has for this process."""
        return f"{self.job}-{process.name}"

    def living_servers(self) -> frozenset[tuple[str, str]]:
        """Name and incarnation of each server that runs and is not paused."""
        found = {(self.name_of(a), a.incarnation) for a in self.processes.values() if a.role is Role.SERVER}
        return frozenset((name, incarnation) for name, incarnation in found if incarnation)

    def kill(self, process: JobProcess) -> None:
        """Sends SIGKILL, which also ends a stopped process."""
        process.is_killed = True
        self.servers_hit += process.role is Role.SERVER
        process.signal(signal.SIGKILL)

    def pause(self, process: JobProcess) -> None:
        process.is_paused = True
        self.servers_hit += process.role is Role.SERVER
        process.signal(signal.SIGSTOP)

    def resume(self, process: JobProcess) -> None:
        process.is_paused = False
        if process.role is Role.SERVER:
            self.awake_since_s = time.monotonic()
        process.signal(signal.SIGCONT)

    def terminate(self, process: JobProcess, *, by_signal: bool = True) -> None:
        """Starts the grace period.  SIGTERM makes a server hand its buckets over and a trainer end its batch."""
        process.leaves_by_s = time.monotonic() + self.shape.grace_s
        if by_signal:
            process.signal(signal.SIGTERM)

    # ---- reconciling ------------------------------------------------------------------------------------------------

    async def report_server_count(self) -> None:
        """Until cancelled, tells the current master how many servers are wanted."""
        async with MasterConnections() as masters:
            door = MasterEndpoint(job=self.job, address=self.address, token="")
            while True:
                await asyncio.sleep(TELL_EVERY_S)
                answer = await masters.set_servers(door, self.servers_wanted)
                if isinstance(answer, ServersAnswer) and answer.refused is not None:
                    self.problems.append(f"{self.servers_wanted} servers were refused: {answer.refused}")

    async def reconcile_forever(self) -> None:
        """Until cancelled, starts missing processes, ends surplus ones, and kills those whose grace period is over."""
        while True:
            await self._reconcile()
            for process in self.processes.values():
                if process.is_running and time.monotonic() > process.leaves_by_s:
                    self.graces_over += 1
                    self.kill(process)
            await asyncio.sleep(KEEP_EVERY_S)

    async def _reconcile(self) -> None:
        wanted = {
            Role.MASTER: 1,
            Role.SERVER: self.servers_wanted,
            Role.TRAINER: self.trainers_wanted,
        }
        for role, count in wanted.items():
            for process in self.staying(role)[::-1]:
                if process.ordinal >= count:
                    self.terminate(process, by_signal=role is Role.TRAINER or self.leave_by_signal)
            if not self.is_over:
                for ordinal in range(count):
                    await self._start_missing(role, ordinal)

    async def _start_missing(self, role: Role, ordinal: int) -> None:
        before = self.processes.get(f"{role}-{ordinal}")
        if before is not None:
            is_back_soon = time.monotonic() < self._ends.get(before.name, 0.0) + RESTART_AFTER_S
            if before.is_running or is_back_soon:
                return
        assert self._launcher is not None
        self._turn += 1
        name = f"{role}-{ordinal}"
        log = self.folder / f"{name}.log"
        log_from = log.stat().st_size if log.exists() else 0
        command = Command(argv=self._argv(role), env=self._environment(role, ordinal), cwd=ROOT, log=log)
        pid = await self._launcher.start(f"{name}.{self._turn}", command)
        self.processes[name] = JobProcess(role=role, ordinal=ordinal, pid=pid, log=log, log_from=log_from)
        if (ended := self._early_ends.pop(pid, None)) is not None:
            self.handle_end(ended)

    def _argv(self, role: Role) -> tuple[str, ...]:
        match role:
            case Role.MASTER:
                return (sys.executable, "-m", "master")
            case Role.SERVER:
                return (sys.executable, "-m", "trainer_sdk.pserver")
            case _:
                rows = ("--rows",) if self.shape.kind.has_rows else ()
                return (*self.shape.trainer(self.diaries), *rows, f"--haste={self._haste}")

    def _environment(self, role: Role, ordinal: int) -> dict[str, str]:
        shape = self.shape
        told = {
            "PYTHONPATH": f"{HOOK}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "CHAOS_FAILPOINTS": str(self._failpoints),
            "CHAOS_PIECE_BYTES": str(shape.piece_bytes),
            "EDL_JOB": self.job,
            "EDL_ROLE": role,
            "EDL_NAME": f"{self.job}-{role}-{ordinal}",
            "EDL_ORDINAL": str(ordinal),
            "EDL_MASTER": self.address,
            "EDL_GRACE_S": f"{shape.grace_s:g}",
            "EDL_CHECKPOINT_URI": self.checkpoint_uri,
        }
        if role is Role.SERVER:
            told["EDL_LISTEN"] = f"{HOST}:0"
        if role is Role.MASTER:
            told |= {
                "EDL_LISTEN": self.address,
                "EDL_ETCD_ENDPOINTS": self._etcd,
                "EDL_SERVERS": str(shape.servers),
                "EDL_MAX_SERVERS": str(shape.most_servers),
                "EDL_BUCKETS": str(shape.buckets),
                "EDL_LEADER_TTL_S": str(shape.leader_ttl_s),
                "EDL_RECONNECT_S": f"{shape.reconnect_s:g}",
                "EDL_LEASE_FLOOR_S": f"{shape.lease_floor_s:g}",
                "EDL_CHECKPOINT_EVERY_S": f"{shape.checkpoint_every_s:g}",
                "EDL_BACKOFF_LIMIT": str(shape.backoff_limit),
                "EDL_AFTER_LOSS": "Keep" if shape.kind.keeps else "RollBack",
                "EDL_COPIES": str(shape.kind.copies),
                "EDL_CHECK_INVARIANTS": "1",
            }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
        return kept | told

    def handle_end(self, ended: ProcessEnd) -> None:
        """Records an end, and a problem unless this harness caused it: a fault of one process never ends another."""
        process = self.by_pid(ended.pid)
        if process is None or not process.is_running:
            self._early_ends[ended.pid] = ended  # it ended before `start` returned its pid
            return
        process.code = ended.code
        if process.role is Role.SERVER and not process.is_killed and not process.was_released:
            self.servers_hit += 1
        self._ends[process.name] = time.monotonic()
        if process.role is Role.TRAINER and ended.code == 0 and not process.is_leaving:
            self.is_over = True  # the master has answered END
        is_terminated_early = process.is_leaving and ended.code == -signal.SIGTERM  # before Python has set its handler
        has_stepped_down = process.role is Role.MASTER and ended.code == STEPPED_DOWN
        has_to_go = (
            process.role is Role.SERVER and process.is_leaving and ended.code == EXIT_OWNING
        )  # its grace is over
        may_end = process.is_killed or ended.code == 0 or is_terminated_early or has_stepped_down or has_to_go
        if not may_end:
            self.problems.append(f"{process.name} ended by itself with {ended.code}")

    async def run_in(self, launcher: Processes) -> None:
        self._launcher = launcher
        await self._reconcile()


@asynccontextmanager
async def start_processes(processes: JobProcesses) -> AsyncIterator[JobProcesses]:
    """Starts the processes; at the end all of them are gone."""
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: BaseException) -> None:
        if not lost.done():
            lost.set_exception(error)

    async with Processes(on_end=processes.handle_end, on_lost=fail) as launcher:
        await processes.run_in(launcher)
        processes.tasks = [
            lost,
            asyncio.create_task(processes.reconcile_forever()),
            asyncio.create_task(processes.report_server_count()),
        ]
        try:
            yield processes
            processes.check()
        finally:
            for task in processes.tasks:
                task.cancel()
            await asyncio.gather(*processes.tasks, return_exceptions=True)
