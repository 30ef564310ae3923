"""One rule left out of the real cores of a group while a small group is explored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from unittest.mock import patch

from master import group as master_group
from tests.protocol import masters as plain_masters
from tests.protocol.explore import Limits, Report, Verdict, explore
from tests.protocol.group import draft, masters
from tests.protocol.group.model import GroupModel
from tests.protocol.group.settings import GroupFaults, GroupSetting

Patches = tuple[tuple[object, str, object], ...]


class Found(StrEnum):
    """What finds a break: the invariant whose violation is seen first, or that END is out of reach."""

    CONTENT = "I1"
    TWO_STATES = "I2"
    FORK = "I3"
    LOST_WORK = "I4"
    DISTURBED = "I5"
    END = "I6"
    GIVEN_UP = "I7"
    PASSED_STOP = "I8"
    HANGS = "I9"
    DIFFERS = "I10"
    STUCK = "stuck"

    @classmethod
    def of(cls, report: Report) -> Found | None:
        """None: nothing was found."""
        if report.verdict is Verdict.STUCK:
            return cls.STUCK
        return cls(report.detail.split(":")[0]) if report.verdict is Verdict.VIOLATED else None


@dataclass(frozen=True, kw_only=True)
class GroupBreak:
    """`rule`: what is left out.  `patches`: (module or class, name, replacement).."""

    name: str
    rule: str
    patches: Patches
    setting: GroupSetting
    found: Found
    states: int = 15_000
    is_long: bool = False  # more than some seconds: for `make check-protocol`

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While it is explored the cores' own checks are off, and what the whole cores answered is forgotten."""
        unchecked = ((draft, "check_member", nothing), (master_group, "check_invariants", nothing))
        with ExitStack() as stack:
            stack.callback(forget)
            forget()
            for where, name, replacement in (*unchecked, *self.patches):
                stack.enter_context(patch.object(where, name, replacement))
            yield

    def explore(self) -> Report:
        with self.applied():
            return explore(GroupModel(self.setting), Limits(states=self.states, seconds=1800))


def forget() -> None:
    """The cores are asked again."""
    masters.handled.cache_clear()
    for memory in (
        masters.check_state,
        masters.deadlines,
        masters.states,
        draft.member_step,
        draft.work_of,
        draft.cores,
    ):
        memory.forget()
    plain_masters._try_commit.cache_clear()


def nothing(*_: Any, **__: Any) -> None:
    """In place of what is left out."""


def always(*_: Any, **__: Any) -> bool:
    return True


def never(*_: Any, **__: Any) -> bool:
    return False


def forking(**parts: Any) -> GroupSetting:
    """One trainer that a new master holds for lost while it works, and one that comes: two lines of work (rule 92)."""
    return small(**{"start": 1, "fresh": 1, "suspect": 1, "take_over": 1, "overlap": True, **parts})


def small(**parts: Any) -> GroupSetting:
    """A group of two that has begun, and two steps; numbers of faults by their names, and parts of the setting."""
    faults = {name: parts.pop(name) for name in tuple(parts) if name in GroupFaults.__dataclass_fields__}
    return GroupSetting(begun=True, faults=GroupFaults(**faults), **{"copies": 0, **parts})
