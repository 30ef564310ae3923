"""Left out of how training ends, also before the last step (rules 96, 97)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.group import ending, generations
from tests.protocol.group.breaks.left_out import Found, GroupBreak, never, small
from trainer_sdk.group.core import sync
from trainer_sdk.group.core.member_state import MemberStep, Transfer

_choose, _taken = sync.choose_transfer, sync.handle_taken


def _going_on(state: Any) -> Any:
    return state and replace(state, is_stopped=False)


def loaded_as_if_it_went_on(state: Any, event: Any) -> MemberStep:
    return _taken(state, replace(event, state=_going_on(event.state)))


def chosen_without_the_stop(record: Any, entries: Any, rank: int) -> Transfer | None:
    head = replace(record.head, state=_going_on(record.head.state))
    held = tuple(replace(entry, state=_going_on(entry.state)) for entry in entries)
    return _choose(replace(record, head=head), held, rank)


def heard_alone(turn: Any) -> None:
    turn.change(final_save=turn.state.head_id)


BREAKS: Final = (
    GroupBreak(
        name="hook-not-durable",
        rule="96: END once it is durable that the final hook has run",
        patches=((ending, "_record_final_save", heard_alone),),
        setting=small(steps=1, has_hook=True),
        found=Found.END,
    ),
    GroupBreak(
        name="stop-not-in-the-file",
        rule="97: a stop is part of the file",
        patches=((sync, "handle_taken", loaded_as_if_it_went_on),),
        setting=small(start=1, stops_at=1, has_hook=True, kill=1),
        found=Found.PASSED_STOP,
    ),
    GroupBreak(
        name="stop-not-in-the-sync",
        rule="97: of two states with the same bits the stopped one is the source",
        patches=((sync, "choose_transfer", chosen_without_the_stop),),
        setting=small(stop=1, kill=1, has_hook=True),
        found=Found.PASSED_STOP,
    ),
    GroupBreak(
        name="stop-unheard",
        rule="97: BROKEN where one has stopped and another works on the next step",
        patches=((generations, "_has_passed_stop", never),),
        setting=small(stop=1),
        found=Found.STUCK,
    ),
)
