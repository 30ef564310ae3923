"""Failpoints: named steps of a move at which a process stops itself.

`hook/sitecustomize.py` is the other end, inside the processes.  One process reaches an armed step and stays stopped
until it is released: what comes before the step has happened, what follows has not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.harness.process_state import has_stopped

HOOK = Path(__file__).with_name("hook")
POLL_S = 0.01


class Step(StrEnum):
    """What has just happened in the process that stops; no other process knows of it yet."""

    INTENT = "INTENT"  # master: the intent is durable
    AHEAD = "AHEAD"  # source: its rows are about to go ahead
    WARM = "WARM"  # target: rows that went ahead have arrived
    SENT = "SENT"  # source: knows that they have
    CHANGED = "CHANGED"  # source: pushed to while its rows are ahead of it
    FREEZE = "FREEZE"  # source: frozen, nothing handed over
    HANDOVER = "HANDOVER"  # source: handed over
    INSTALLED = "INSTALLED"  # target: staged
    FLIP = "FLIP"  # master: the new owner is durable
    UNDO = "UNDO"  # master: the old owner's next version is durable
    ACTIVATE = "ACTIVATE"  # owner: serves
    FORGET = "FORGET"  # loser: dropped
    HOLD = "HOLD"  # owner: holds pushes
    CUT = "CUT"  # owner: has forked
    WRITTEN = "WRITTEN"  # owner: its file is complete
    PASS = "PASS"  # owner: a push was passed on, the backup's answer is not read
    PASSED = "PASSED"  # backup: has applied it, and its owner does not know
    PROMOTE = "PROMOTE"  # master: it is durable that backups own what was lost
    ALONE = "ALONE"  # master: it is durable that owners have no backup any more
    RECRUIT = "RECRUIT"  # master: the intent for a new backup is durable
    BACKED = "BACKED"  # master: the new backup is durable


CUT_STEPS = (Step.HOLD, Step.CUT, Step.WRITTEN)
ROW_STEPS = (Step.AHEAD, Step.WARM, Step.SENT, Step.CHANGED)  # of buckets that have rows of sparse tables
COPY_STEPS = (Step.PASS, Step.PASSED, Step.PROMOTE, Step.ALONE, Step.RECRUIT, Step.BACKED)  # of second copies
SENT_STEPS = tuple(step for step in Step if step not in {*ROW_STEPS, *COPY_STEPS})  # what each move takes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedProcess:
    """A process that is stopped at a step, until it is released or killed."""

    step: Step
    pid: int


class Failpoints:
    """Arms steps by files in a folder, which the hook in every process of a campaign looks at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def arm(self, step: Step) -> None:
        """The next process that reaches the step stops there."""
        (self.folder / f"{step}.armed").touch()

    async def wait_reached(self, step: Step, *, budget_s: float, give_up: Callable[[], bool]) -> StoppedProcess | None:
        """The process that has stopped at the step.  None: none did in time, and the step is not armed any more."""
        until_s = time.monotonic() + budget_s
        while (stopped := await self._try_find_stopped(step)) is None:
            if time.monotonic() > until_s or give_up():
                with suppress(FileNotFoundError):  # a process has just reached it
                    (self.folder / f"{step}.armed").unlink()
                    return None
            await asyncio.sleep(POLL_S)
        return stopped

    async def _try_find_stopped(self, step: Step) -> StoppedProcess | None:
        for path in self.folder.glob(f"{step}.*.met"):
            pid = int(path.name.split(".")[1])
            has_landed = await has_stopped(pid)
            path.unlink()
            if has_landed:
                return StoppedProcess(step=step, pid=pid)
            self.arm(step)  # it was killed on the way
        return None

    def release(self, stopped: StoppedProcess) -> None:
        """The process continues, unless it was killed."""
        with suppress(ProcessLookupError):
            os.kill(stopped.pid, signal.SIGCONT)
