"""Left out of how replicas of one state are compared (rule 65)."""

from __future__ import annotations

from typing import Any, Final

from tests.protocol.group.breaks.left_out import Found, GroupBreak, never, small
from trainer_sdk.group.core import copies, steps


def all_alike(*_: Any) -> str:
    return ""


SCRIPT_THAT_DIFFERS: Final = {"steps": 3, "wished": True, "compares": True, "differ": 1}

BREAKS: Final = (
    GroupBreak(
        name="digests-not-compared",
        rule="65: replicas of one state are compared",
        patches=((steps, "difference", all_alike),),
        setting=small(**SCRIPT_THAT_DIFFERS),
        found=Found.DIFFERS,
    ),
    GroupBreak(
        name="offered-uncompared",
        rule="65: a copy is offered once its state is compared",
        patches=((copies, "_awaits_comparison", never),),
        setting=small(**SCRIPT_THAT_DIFFERS),
        found=Found.DIFFERS,
    ),
)
