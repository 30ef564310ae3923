"""One process of a job: its role, its state, and what its log says about it."""

from __future__ import annotations

import math
import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autoscaler.domain import Role
from tests.harness.process_state import is_process_dead

_LISTENS = re.compile(r"process (\w+), listens")
_RELEASED = re.compile(r"(released): this server")


@dataclass(slots=True, kw_only=True)
class JobProcess:
    """A process by pid.  `code` is its exit code, None while it runs."""

    role: Role
    ordinal: int
    pid: int
    log: Path
    log_from: int  # offset: lines before it come from predecessors
    leaves_by_s: float = math.inf  # end of its grace period, once it was told to leave (monotonic)
    is_killed: bool = False  # by this harness
    is_paused: bool = False
    code: int | None = None

    @property
    def name(self) -> str:
        return f"{self.role}-{self.ordinal}"

    @property
    def is_running(self) -> bool:
        return self.code is None

    @property
    def is_leaving(self) -> bool:
        return self.leaves_by_s < math.inf

    @property
    def incarnation(self) -> str:
        """A server's incarnation from its log; empty if it does not run, is paused, or does not listen yet."""
        return (
            self._find_logged(_LISTENS)
            if self.is_running and not self.is_paused and not is_process_dead(self.pid)
            else ""
        )

    @property
    def was_released(self) -> bool:
        """True if the master has released this server: it owns no bucket."""
        return bool(self._find_logged(_RELEASED))

    def signal(self, number: signal.Signals) -> None:
        if self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _find_logged(self, what: re.Pattern[str]) -> str:
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            lines.seek(self.log_from)
            found = what.search(lines.read())
        return found[1] if found else ""
