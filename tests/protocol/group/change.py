"""One thing that can happen in a group's world."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.protocol.group.draft import GroupDraft
from tests.protocol.group.world import Bits, GroupWorld


class Change(NamedTuple):
    """What happens; `fault`: of which budget it is taken."""

    label: str
    act: Callable[[GroupDraft], None]
    fault: str = ""


def content_of(world: GroupWorld, name: str) -> tuple[Bits, object]:
    return next((bits, skipped) for known, bits, skipped in world.files if known == name)
