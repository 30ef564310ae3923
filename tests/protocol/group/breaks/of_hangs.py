"""Left out of what becomes of a script that hangs (rule 75)."""

from __future__ import annotations

from typing import Final

from master.group import membership
from tests.protocol.group.breaks.left_out import Found, GroupBreak, small

BREAKS: Final = (
    GroupBreak(
        name="ready-by-report",
        rule="75: a report proves that the process lives, not that its script comes back",
        patches=((membership, "IN_SCRIPT", frozenset()),),
        setting=small(hang=1),
        found=Found.HANGS,
    ),
)
