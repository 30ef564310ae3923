"""Steps of a move by name: arm one, and know which process has stopped at it.

`hook/sitecustomize.py` is the other end, inside the processes.  A step is met by one process; until it is let go, that
process stands exactly there: what came before has happened, what follows has not.
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

from tests.harness.process_state import state_of, until

HOOK = Path(__file__).with_name("hook")
LOOK_EVERY_S = 0.01


class Step(StrEnum):
    """What has just happened where a process stops; nobody else knows of it yet."""

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
class Met:
    """A process stands at this step.  Let it go by `release`, or kill it."""

    step: Step
    pid: int


class Points:
    """The folder through which steps are armed.  One campaign's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def arm(self, step: Step) -> None:
        """The next process that reaches it stops there."""
        (self.folder / f"{step}.armed").touch()

    async def meet(self, step: Step, *, budget_s: float, give_up: Callable[[], bool]) -> Met | None:
        """Who stands there.  None: nobody within the budget, or it was given up; the step is not armed any more."""
        until_s = time.monotonic() + budget_s
        while (met := await self._try_met(step)) is None:
            if time.monotonic() > until_s or give_up():
                with suppress(FileNotFoundError):  # somebody has just come
                    (self.folder / f"{step}.armed").unlink()
                    return None
            await asyncio.sleep(LOOK_EVERY_S)
        return met

    async def _try_met(self, step: Step) -> Met | None:
        for path in self.folder.glob(f"{step}.*.met"):
            pid = int(path.name.split(".")[1])
            await until(lambda pid=pid: state_of(pid) in {"T", "Z", ""})
            path.unlink()
            if state_of(pid) == "T":
                return Met(step=step, pid=pid)
            self.arm(step)  # it was killed on the way
        return None

    def release(self, met: Met) -> None:
        """It goes on, unless somebody has killed it."""
        with suppress(ProcessLookupError):
            os.kill(met.pid, signal.SIGCONT)
