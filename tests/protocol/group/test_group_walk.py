"""Groups of four and five trainers with the real cores: random walks break no invariant (M10, ADR 0295)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.protocol.group.breaks.left_out import Found, GroupBreak, forget
from tests.protocol.group.settings import GroupFaults, GroupSetting
from tests.protocol.group.walk import Walk, walk
from trainer_sdk.group.core import script_work
from trainer_sdk.group.core.member_events import ScriptWork, SendState
from trainer_sdk.group.core.member_state import MemberPhase, MemberState

WALKS: Final = 60
MOVES: Final = 400
_next_work: Final = script_work.next_work
LARGE: Final = {
    "one-and-three-joiners": GroupSetting(
        start=1, fresh=3, steps=6, batch=8, copies=0, begun=True, faults=GroupFaults(kill=1)
    ),
    "four-restart": GroupSetting(
        start=4, steps=2, batch=8, copies=0, begun=True, faults=GroupFaults(kill=2, net=1, restart=2)
    ),
    "one-and-four-joiners": GroupSetting(
        start=1, fresh=4, steps=3, batch=10, copies=0, begun=True, faults=GroupFaults(suspect=1, net=1)
    ),
}


def walks(setting: GroupSetting) -> list[Walk]:
    forget()
    made = [walk(setting, seed, moves=MOVES) for seed in range(WALKS)]
    forget()
    return made


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", LARGE)
def test_nothing_is_wrong_with_a_large_group(name):
    """Where one member has the state and three may come, somebody passes it on (71)."""
    made = walks(LARGE[name])
    for one in made:
        assert not one.problem, str(one)
    assert any(one.has_ended for one in made)
    assert LARGE[name].fresh < 3 or any(one.passed_on for one in made)


def passed_on_early(state: MemberState) -> ScriptWork:
    """Who is to pass the state on sends what it holds, before it has taken it."""
    transfer = state.transfer
    if state.phase is MemberPhase.TRANSFER and transfer is not None and transfer.receivers:
        return SendState(number=state.number, to=transfer.receivers)
    return _next_work(state)


PASSED_ON_EARLY: Final = GroupBreak(
    name="passed-on-early",
    rule="71: who passes the state on has taken it",
    patches=((script_work, "next_work", passed_on_early),),
    setting=LARGE["one-and-three-joiners"],
    found=Found.CONTENT,
)


@pytest.mark.timeout(1200)
def test_a_rule_of_passing_on_that_is_left_out_is_found():
    """No small group finds it: nobody passes anything on there."""
    with PASSED_ON_EARLY.applied():
        problems = [one.problem for one in walks(PASSED_ON_EARLY.setting) if one.problem]
    assert problems
    assert all(one.startswith(PASSED_ON_EARLY.found) for one in problems)
