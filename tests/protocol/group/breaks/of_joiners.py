"""What a joiner takes while the others compute, left out (rules 63 and 71)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.messages.generations import StateId
from tests.protocol.group import member_acts
from tests.protocol.group.breaks.left_out import Found, GroupBreak, small
from trainer_sdk.group.core import steps

_is_first, _capture = steps._is_first, member_acts.capture


def first_for_others_alone(state: Any, step: int) -> bool:
    return _is_first(state, step) and not state.record.members[state.rank].takes_state


def captured_late(draft: Any, place: int, work: Any, core: Any) -> None:
    """The sender's replica is read once it has changed again."""
    _capture(draft, place, work, core)
    group = draft.group(work.number, core)
    later = (*draft.member(place).bits, ("changed", StateId(lineage=core.lineage, generation=work.number, step=0)))
    captured = tuple(later if bits else bits for bits in group.captured)
    draft.set_group(replace(group, captured=captured))


BREAKS: Final = (
    GroupBreak(
        name="joiner-has-a-first-share",
        rule="63: who takes the state has no share of the first step, at all ranks alike",
        patches=((steps, "_is_first", first_for_others_alone),),
        setting=small(start=1, fresh=1),
        found=Found.CONTENT,
    ),
    GroupBreak(
        name="captured-late",
        rule="72: what is sent is copied before the sender goes on",
        patches=((member_acts, "capture", captured_late),),
        setting=small(start=1, fresh=1),
        found=Found.CONTENT,
    ),
)
