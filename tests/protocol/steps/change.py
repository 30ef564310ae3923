"""A step: its name, what it makes of a world, and which budget of faults it is taken from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.protocol.draft import Draft

UNNEEDED = "nothing may depend on it"


@dataclass(frozen=True, slots=True)
class Label:
    """Told only in traces."""

    what: str
    parts: tuple[object, ...] = ()

    def __str__(self) -> str:
        return self.what.format(*map(shown, self.parts))


@dataclass(frozen=True, slots=True)
class Change:
    """A step that may be taken.  `fault`: the budget that it is taken from, or UNNEEDED; None: no fault."""

    label: Label
    make: Callable[[Draft], None]
    fault: str | None = None


def shown(part: object) -> str:
    text = str(part)
    for long, short in (("PositionSet(bounds=", "("), ("kw_only=True", "")):
        text = text.replace(long, short)
    return text
