"""What comes in place of a job's progress when its master is asked.  Pure; `masters` asks, `health` tells people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class NoProgress(StrEnum):
    """Why there is nothing to tell of a job's progress."""

    SILENT = "no answer"  # it starts, has ended, is cut off, stands still or hangs
    REFUSED = "an answer, but no status"  # it does not lead


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedAnswer:
    """An answer that this version does not read, or with a value that cannot be.  `problem` names the field."""

    problem: str


NoAnswer: TypeAlias = NoProgress | MalformedAnswer
