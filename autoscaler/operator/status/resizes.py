"""The last changes of a job's size, for its status: from, to, why, and who wanted it.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from autoscaler.domain import Cause, Role

MOST: Final = 10
BURST_S: Final = 10.0
"""Changes of one cause closer than this are one resize: a wave takes its trainers one by one."""


class ResizeAuthor(StrEnum):
    """Who wanted another size."""

    EDL = "edl"
    SCHEDULER = "scheduler"
    DRAIN = "drain"
    NODE = "node"
    USER = "user"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRecord:
    """`at_s` on the cluster's clock."""

    at_s: float
    before: int
    after: int
    cause: str
    by: ResizeAuthor
    role: Role = Role.TRAINER
    message: str = ""


def add_resize(resizes: tuple[ResizeRecord, ...], new: ResizeRecord) -> tuple[ResizeRecord, ...]:
    """The newest first; one that goes on with the last is one with it."""
    if resizes:
        last = resizes[0]
        is_same_way = (new.after - new.before) * (last.after - last.before) > 0
        is_same = (last.cause, last.by, last.role) == (new.cause, new.by, new.role)
        if is_same and is_same_way and new.at_s - last.at_s <= BURST_S:
            merged = replace(last, at_s=new.at_s, after=last.after + new.after - new.before, message=new.message)
            return (merged, *resizes[1:])
    return (new, *resizes)[:MOST]


def cause_words(causes: Iterable[Cause]) -> str:
    """The cause of a set of actions: one word a cause, as events and metrics write it."""
    return ", ".join(dict.fromkeys(cause_word(cause) for cause in causes))


def cause_word(cause: Cause) -> str:
    """`announced growth` -> `AnnouncedGrowth`."""
    return "".join(word.capitalize() for word in cause.value.split())
