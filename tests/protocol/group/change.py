"""One thing that can happen in a group's world."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.protocol.group.draft import GroupDraft
from tests.protocol.group.world import Bits, GroupWorld


class Change(NamedTuple):
    """What happens; `fault`: of which budget it is taken; `heard`: a message, which only traces print: it is deep."""

    label: str
    act: Callable[[GroupDraft], None]
    fault: str = ""
    heard: object = None

    def __str__(self) -> str:
        return self.label if self.heard is None else f"{self.label} {self.heard}"


def content_of(world: GroupWorld, name: str) -> tuple[Bits, object]:
    return next((bits, skipped) for known, bits, skipped in world.files if known == name)
