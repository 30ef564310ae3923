"""The members of one group as processes, which a fork server starts: who runs, who has to leave, who was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.etcd_members import DIE_WITH_PARENT
from tests.harness.waiting import wait_for_async

PROGRAM: Final = Path(__file__).parents[2] / "programs" / "group_ledger.py"
START_BUDGET_S: Final = 60.0


@dataclass(slots=True, kw_only=True)
class MemberProcess:
    ordinal: int
    pid: int
    exit_code: int | None = None
    is_leaving: bool = False
    is_held: bool = False  # stopped, for a while
    was_killed: bool = False

    @property
    def is_present(self) -> bool:
        """It runs, and nobody has asked it to leave."""
        return self.exit_code is None and not self.is_leaving and not self.was_killed

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class MemberPool:
    """Ordinals are never used twice: a process that comes for another one is a new member."""

    def __init__(self, server: asyncio.subprocess.Process) -> None:
        self._server = server
        self.members: list[MemberProcess] = []
        self._asked = 0
        self._told = asyncio.create_task(self._listen())

    @property
    def present(self) -> list[MemberProcess]:
        return [member for member in self.members if member.is_present]

    @property
    def running(self) -> list[MemberProcess]:
        return [member for member in self.members if member.exit_code is None]

    async def add(self) -> MemberProcess:
        """A new member, which has begun to run."""
        ordinal, self._asked = self._asked, self._asked + 1
        assert self._server.stdin is not None
        self._server.stdin.write(f"start {ordinal}\n".encode())
        await self._server.stdin.drain()

        def started() -> MemberProcess | None:
            return next((member for member in self.members if member.ordinal == ordinal), None)

        return await wait_for_async(f"member {ordinal}", started, budget_s=START_BUDGET_S)

    async def _listen(self) -> None:
        assert self._server.stdout is not None
        while line := await self._server.stdout.readline():
            match line.decode().split():
                case ["started", ordinal, pid]:
                    self.members.append(MemberProcess(ordinal=int(ordinal), pid=int(pid)))
                case ["ended", pid, code]:
                    for member in self.members:
                        if member.pid == int(pid) and member.exit_code is None:
                            member.exit_code = int(code)

    async def end(self) -> None:
        for member in self.running:
            member.signal(signal.SIGKILL)
        self._server.kill()
        await self._server.wait()
        self._told.cancel()


@asynccontextmanager
async def running_pool(folder: Path, master: str, job: str, program: Path = PROGRAM) -> AsyncIterator[MemberPool]:
    """A pool without members; at the end of the context none is left."""
    with (folder / "fork-server.log").open("ab") as log:
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())),
            *(sys.executable, str(program), str(folder), master, job),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    pool = MemberPool(server)
    try:
        yield pool
    finally:
        await pool.end()
