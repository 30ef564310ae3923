"""Left out of what becomes of a group whose store has lost its records (rules 74, 93)."""

from __future__ import annotations

from typing import Any, Final

from master.group import generations, machine, reports
from tests.protocol.group.breaks.left_out import Found, GroupBreak, nothing, small

_refute = generations.refute


def refuted_by_a_record(turn: Any, replica: Any) -> None:
    if turn.state.current is not None:
        _refute(turn, replica)


BREAKS: Final = (
    GroupBreak(
        name="lost-record-unanswered",
        rule="74: BROKEN also to members of a record that is lost",
        patches=tuple((module, "refute", refuted_by_a_record) for module in (generations, reports)),
        setting=small(start=1, lose=1),
        found=Found.STUCK,
    ),
    GroupBreak(
        name="lost-lineage-again",
        rule="93: a lineage above those of replicas whose record is lost",
        patches=((machine, "_give_up_replicas", nothing),),
        setting=small(start=1, has_head=True, lose=1),
        found=Found.GIVEN_UP,
    ),
)
