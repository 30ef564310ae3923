"""Rules left out of the real cores of a group, one at a time; the checker must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from master.group import generations
from tests.protocol.explore import Limits, Report, explore
from tests.protocol.group import draft, masters
from tests.protocol.group.model import GroupModel
from tests.protocol.group.settings import GroupFaults, GroupSetting
from trainer_sdk.group.core import membership, steps, sync
from trainer_sdk.group.core.member_events import TellMaster
from trainer_sdk.group.core.member_state import MemberStep, Transfer

_leave, _choose_transfer = membership.leave, sync.choose_transfer
_NETWORK: Final = GroupSetting(copies=0, faults=GroupFaults(net=1))
_ONE_STEP: Final = GroupSetting(steps=1, copies=0, faults=GroupFaults(net=1))


@dataclass(frozen=True, kw_only=True)
class GroupBreak:
    """`rule`: what is left out.  `patches`: (module, name, replacement)."""

    name: str
    rule: str
    patches: tuple[tuple[object, str, Callable[..., Any]], ...]
    setting: GroupSetting
    states: int = 20_000

    def explore(self) -> Report:
        """The exploration without the rule.  What the whole cores answered is forgotten before and after it."""
        with ExitStack() as stack:
            stack.callback(forget)
            forget()
            for where, name, replacement in self.patches:
                stack.enter_context(patch.object(where, name, replacement))
            return explore(GroupModel(self.setting), Limits(states=self.states, seconds=900))


def forget() -> None:
    """The cores are asked again."""
    masters.handled.cache_clear()
    draft.member_step.cache_clear()


def _leave_silently(*args: Any) -> MemberStep:
    step = _leave(*args)
    told = (TellMaster,)
    return MemberStep(step.state, tuple(effect for effect in step.effects if not isinstance(effect, told)))


def _keep_own(record: Any, entries: Any, rank: int) -> Transfer | None:
    chosen, mine = _choose_transfer(record, entries, rank), entries[rank].state
    return Transfer(state=mine, skipped=entries[rank].skipped, source=None) if chosen and mine else chosen


def _keep_same_step(record: Any, entries: Any, rank: int) -> Transfer | None:
    chosen, mine = _choose_transfer(record, entries, rank), entries[rank].state
    if chosen and mine and mine.step == chosen.state.step:
        return Transfer(state=chosen.state, skipped=chosen.skipped, source=None)
    return chosen


BREAKS: Final = (
    GroupBreak(name="no-sync", rule="70: no sync", patches=((sync, "choose_transfer", _keep_own),), setting=_NETWORK),
    GroupBreak(
        name="same-step",
        rule="71: the same step is the same state",
        patches=((sync, "choose_transfer", _keep_same_step),),
        setting=GroupSetting(copies=0, faults=GroupFaults(suspect=1)),
        states=45_000,
    ),
    GroupBreak(
        name="silent-leave",
        rule="73: a member leaves without a report",
        patches=tuple((module, "leave", _leave_silently) for module in (membership, steps, sync)),
        setting=_ONE_STEP,
    ),
    GroupBreak(
        name="no-break",
        rule="74: BROKEN is never sent",
        patches=((generations, "break_if_troubled", lambda turn: None),),
        setting=_ONE_STEP,
    ),
)
