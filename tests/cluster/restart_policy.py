"""A program that is started again when it ends, as a kubelet does: soon the first time, then after longer pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.harness.processes import Program

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
STEADY_S: Final = 300.0
"""A program that has run so long has recovered: its next end is a first one."""
LAST_LINE: Final = 300  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Pause of a program before its next restart."""

    next_s: float = FIRST_PAUSE_S

    def after(self, ran_s: float) -> tuple[float, Pauses]:
        """The pause after an end, and those to follow: doubled up to LONGEST_PAUSE_S, from the start after STEADY_S."""
        pause_s = FIRST_PAUSE_S if ran_s >= STEADY_S else self.next_s
        return pause_s, Pauses(next_s=min(2 * pause_s, LONGEST_PAUSE_S))


class Restarting:
    """Restarts `program` when it has ended, and reports it.  Call `look` every second or so."""

    def __init__(self, program: Program, *, now_s: float, say: Callable[[str], None]) -> None:
        self.program = program
        self._say = say
        self._pauses = Pauses()
        self._begun_s = now_s
        self._due_s: float | None = None

    def look(self, now_s: float) -> None:
        """Restart the program if its pause is over; report its end otherwise."""
        if self._due_s is None:
            if not self.program.is_running:
                self._note_end(now_s)
        elif now_s >= self._due_s:
            self.program.restart()
            self._begun_s, self._due_s = now_s, None

    def _note_end(self, now_s: float) -> None:
        pause_s, self._pauses = self._pauses.after(now_s - self._begun_s)
        self._due_s = now_s + pause_s
        last = (self.program.last_lines() or [""])[-1][:LAST_LINE]
        self._say(
            f"the {self.program.name} has ended with code {self.program.exit_code} and starts again in {pause_s:g} s; "
            f"its log is {self.program.log_file}; its last line: {last}"
        )
