"""One process of a job: which it is, how it can be signalled, and what it has said of itself."""

from __future__ import annotations

import math
import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.harness.process_state import is_dead

_LISTENS = re.compile(r"process (\w+), listens")
_RELEASED = re.compile(r"(released): this server")


class Part(StrEnum):
    MASTER = "master"
    SERVER = "server"
    TRAINER = "trainer"


@dataclass(slots=True, kw_only=True)
class Actor:
    """`code`: how it ended."""

    part: Part
    ordinal: int
    pid: int
    log: Path
    log_from: int  # what stands before that is of its predecessors
    leaves_by_s: float = math.inf  # told to go: then its grace is over
    is_struck: bool = False  # we have killed it
    is_paused: bool = False
    code: int | None = None

    @property
    def name(self) -> str:
        return f"{self.part}-{self.ordinal}"

    @property
    def is_here(self) -> bool:
        return self.code is None

    @property
    def is_leaving(self) -> bool:
        return self.leaves_by_s < math.inf

    @property
    def incarnation(self) -> str:
        """Of a server; empty: it does not run, is paused, or does not listen yet."""
        return self._said(_LISTENS) if self.is_here and not self.is_paused and not is_dead(self.pid) else ""

    @property
    def was_released(self) -> bool:
        """The master has told this server that it owns nothing."""
        return bool(self._said(_RELEASED))

    def signal(self, number: signal.Signals) -> None:
        if self.is_here:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _said(self, what: re.Pattern[str]) -> str:
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            lines.seek(self.log_from)
            found = what.search(lines.read())
        return found[1] if found else ""
