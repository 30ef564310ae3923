"""Everybody who takes part in one job, as processes, and the hand that starts again whoever dies.

The cluster's part, as small as it can be: so many servers and trainers are wanted, ordinals from 0; who is missing is
started, who is too much gets SIGTERM and its grace.  A growing job's new server is started and registers; a shrinking
one's is told to go.  Scheduling and planning have nothing to do with it, so a run meets many moves in little time.
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

from autoscaler.clusters.local.ports import HOST, Ports
from autoscaler.clusters.local.processes import Command, Ended, Processes
from autoscaler.jobs.answers import NoProgress
from autoscaler.jobs.master_connections import Door, Masters
from tests.chaos.ledger_shape import LedgerShape
from tests.chaos.moves.failpoints import HOOK
from tests.chaos.moves.job_kinds import JobKind
from tests.chaos.moves.process import Actor, Part
from trainer_sdk.pserver.__main__ import EXIT_OWNING
from trainer_sdk.pserver.process.parameter_server import PIECE_BYTES

ROOT = Path(__file__).resolve().parents[3]
RESTART_AFTER_S = 0.2
KEEP_EVERY_S = 0.05
TELL_EVERY_S = 0.3
MOST_PROBLEMS = 20
STEPPED_DOWN = 75  # of a master that lost its leadership


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(LedgerShape):
    """`servers` are those of its begin."""

    kind: JobKind = JobKind.DENSE
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


class Cast:
    """The processes of one job.  Made by `on_stage`."""

    def __init__(self, job: str, shape: Shape, *, folder: Path, etcd: Sequence[str], points: Path) -> None:
        self.job = job
        self.shape = shape
        self.folder = folder
        self.servers_wanted = shape.servers
        self.trainers_wanted = shape.trainers
        self.leave_by_signal = False  # of servers that are too many: else only the master is told
        self.actors: dict[str, Actor] = {}  # by name: the newest of that name
        self.problems: list[str] = []
        self.graces_over = 0  # leavers that were killed: a loss, which a paused one cannot help
        self.servers_hit = 0  # killed, paused, or gone before they were released
        self.awake_since_s = -math.inf  # when the last server that was paused went on
        self.is_over = False  # training has ended: nobody is started again
        self.address = f"{HOST}:{Ports().take()}"
        self._etcd = ",".join(etcd)
        self._points = points
        self._ends: dict[str, float] = {}
        self._processes: Processes | None = None
        self.tasks: list[asyncio.Future[None]] = []  # of `on_stage`
        self._turn = 0
        self._early: dict[int, Ended] = {}
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

    def here(self, part: Part) -> list[Actor]:
        """Those that run and stay, by ordinal."""
        actors = (actor for actor in self.actors.values() if actor.part is part)
        return sorted((a for a in actors if a.is_here and not a.is_leaving), key=lambda actor: actor.ordinal)

    def check(self) -> None:
        """Raises what went wrong in the hand that keeps them, and RuntimeError where processes end by themselves."""
        for task in self.tasks:
            if task.done():
                task.result()
        if len(self.problems) > MOST_PROBLEMS:
            raise RuntimeError(f"{self.job}: {self.problems[-1]}; logs in {self.folder}")

    def by_pid(self, pid: int) -> Actor | None:
        return next((actor for actor in self.actors.values() if actor.pid == pid), None)

    def name_of(self, actor: Actor) -> str:
        """By which the store knows it."""
        return f"{self.job}-{actor.name}"

    def living(self) -> frozenset[tuple[str, str]]:
        """Name and incarnation of the servers that run and are not paused."""
        found = {(self.name_of(a), a.incarnation) for a in self.actors.values() if a.part is Part.SERVER}
        return frozenset((name, incarnation) for name, incarnation in found if incarnation)

    def kill(self, actor: Actor) -> None:
        """SIGKILL, also to one that stands still."""
        actor.is_struck = True
        self.servers_hit += actor.part is Part.SERVER
        actor.signal(signal.SIGKILL)

    def pause(self, actor: Actor) -> None:
        actor.is_paused = True
        self.servers_hit += actor.part is Part.SERVER
        actor.signal(signal.SIGSTOP)

    def resume(self, actor: Actor) -> None:
        actor.is_paused = False
        if actor.part is Part.SERVER:
            self.awake_since_s = time.monotonic()
        actor.signal(signal.SIGCONT)

    def leave(self, actor: Actor, *, by_signal: bool = True) -> None:
        """SIGTERM: a server empties itself, a trainer ends its batch.  Without it the master lets a server go."""
        actor.leaves_by_s = time.monotonic() + self.shape.grace_s
        if by_signal:
            actor.signal(signal.SIGTERM)

    # ---- the cluster's part -----------------------------------------------------------------------------------------

    async def tell(self) -> None:
        """Until cancelled: the master knows how many servers are wanted, whichever master it is."""
        async with Masters() as masters:
            door = Door(job=self.job, address=self.address, token="")
            while True:
                await asyncio.sleep(TELL_EVERY_S)
                answer = await masters.set_servers(door, self.servers_wanted)
                if not isinstance(answer, NoProgress) and answer.refused is not None:
                    self.problems.append(f"{self.servers_wanted} servers were refused: {answer.refused}")

    async def keep(self) -> None:
        """Until cancelled: who is wanted runs, who is not gets told."""
        while True:
            await self._keep_once()
            for actor in self.actors.values():
                if actor.is_here and time.monotonic() > actor.leaves_by_s:
                    self.graces_over += 1
                    self.kill(actor)
            await asyncio.sleep(KEEP_EVERY_S)

    async def _keep_once(self) -> None:
        wanted = {Part.MASTER: 1, Part.SERVER: self.servers_wanted, Part.TRAINER: self.trainers_wanted}
        for part, count in wanted.items():
            for actor in self.here(part)[::-1]:
                if actor.ordinal >= count:
                    self.leave(actor, by_signal=part is Part.TRAINER or self.leave_by_signal)
            if not self.is_over:
                for ordinal in range(count):
                    await self._start_missing(part, ordinal)

    async def _start_missing(self, part: Part, ordinal: int) -> None:
        before = self.actors.get(f"{part}-{ordinal}")
        if before is not None:
            is_back_soon = time.monotonic() < self._ends.get(before.name, 0.0) + RESTART_AFTER_S
            if before.is_here or is_back_soon:
                return
        assert self._processes is not None
        self._turn += 1
        name = f"{part}-{ordinal}"
        log = self.folder / f"{name}.log"
        log_from = log.stat().st_size if log.exists() else 0
        command = Command(argv=self._argv(part), env=self._environment(part, ordinal), cwd=ROOT, log=log)
        pid = await self._processes.start(f"{name}.{self._turn}", command)
        self.actors[name] = Actor(part=part, ordinal=ordinal, pid=pid, log=log, log_from=log_from)
        if (ended := self._early.pop(pid, None)) is not None:
            self.note_end(ended)

    def _argv(self, part: Part) -> tuple[str, ...]:
        match part:
            case Part.MASTER:
                return (sys.executable, "-m", "master")
            case Part.SERVER:
                return (sys.executable, "-m", "trainer_sdk.pserver")
            case Part.TRAINER:
                rows = ("--rows",) if self.shape.kind.has_rows else ()
                return (*self.shape.trainer(self.diaries), *rows, f"--haste={self._haste}")

    def _environment(self, part: Part, ordinal: int) -> dict[str, str]:
        shape = self.shape
        told = {
            "PYTHONPATH": f"{HOOK}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "CHAOS_POINTS": str(self._points),
            "CHAOS_PIECE_BYTES": str(shape.piece_bytes),
            "EDL_JOB": self.job,
            "EDL_ROLE": part,
            "EDL_NAME": f"{self.job}-{part}-{ordinal}",
            "EDL_ORDINAL": str(ordinal),
            "EDL_MASTER": self.address,
            "EDL_GRACE_S": f"{shape.grace_s:g}",
            "EDL_CHECKPOINT_URI": self.checkpoint_uri,
        }
        if part is Part.SERVER:
            told["EDL_LISTEN"] = f"{HOST}:0"
        if part is Part.MASTER:
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

    def note_end(self, ended: Ended) -> None:
        """Nobody but us ends processes: a fault of one never ends another."""
        actor = self.by_pid(ended.pid)
        if actor is None or not actor.is_here:
            self._early[ended.pid] = ended  # so soon that its start has not been told yet
            return
        actor.code = ended.code
        if actor.part is Part.SERVER and not actor.is_struck and not actor.was_released:
            self.servers_hit += 1
        self._ends[actor.name] = time.monotonic()
        if actor.part is Part.TRAINER and ended.code == 0 and not actor.is_leaving:
            self.is_over = True  # END was said to it
        is_told_early = actor.is_leaving and ended.code == -signal.SIGTERM  # before Python has set its handler
        has_stepped_down = actor.part is Part.MASTER and ended.code == STEPPED_DOWN
        has_to_go = actor.part is Part.SERVER and actor.is_leaving and ended.code == EXIT_OWNING  # its grace is over
        may_end = actor.is_struck or ended.code == 0 or is_told_early or has_stepped_down or has_to_go
        if not may_end:
            self.problems.append(f"{actor.name} ended by itself with {ended.code}")

    async def run_processes(self, processes: Processes) -> None:
        self._processes = processes
        await self._keep_once()


@asynccontextmanager
async def on_stage(cast: Cast) -> AsyncIterator[Cast]:
    """All of it runs; at the end every process is gone."""
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: BaseException) -> None:
        if not lost.done():
            lost.set_exception(error)

    async with Processes(on_end=cast.note_end, on_lost=fail) as processes:
        await cast.run_processes(processes)
        cast.tasks = [lost, asyncio.create_task(cast.keep()), asyncio.create_task(cast.tell())]
        try:
            yield cast
            cast.check()
        finally:
            for task in cast.tasks:
                task.cancel()
            await asyncio.gather(*cast.tasks, return_exceptions=True)
