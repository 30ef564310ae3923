"""Left out of how generations change, with a plan and without (rules 73 to 83)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.group import generations, plans
from master.group.group_state import keys_of
from master.group.membership import in_rank_order
from tests.protocol import masters as plain_masters
from tests.protocol.group import master_changes
from tests.protocol.group.breaks.left_out import Found, GroupBreak, always, forking, never, small
from tests.protocol.group.draft import GroupDraft
from trainer_sdk.group.core import membership, steps, sync
from trainer_sdk.group.core.member_events import AbortGroup, CloseGroup, TellMaster
from trainer_sdk.group.core.member_state import MemberPhase, MemberStep, rank_in

_leave, _switch, _handle_words = membership.leave, membership.switch, steps.handle_words
_try_enter, _enter = membership._try_enter, membership._enter
_break_group, _plan = generations.break_group, plans._plan
_is_met, _try_write = plain_masters.is_met, master_changes._try_write


def left_silently(*args: Any) -> MemberStep:
    step = _leave(*args)
    told = (TellMaster,)
    return MemberStep(step.state, tuple(effect for effect in step.effects if not isinstance(effect, told)))


def broken_by_the_first_master(turn: Any) -> None:
    if turn.state.term == 1:
        _break_group(turn)


def planned_without_old_members(turn: Any, *, with_joiners: bool) -> None:
    """In place of `_plan`, where all leave and a joiner is there."""
    state = turn.state
    here = [one for key in keys_of(state.current) if (one := state.try_replica(key))]
    joiners = plans._joiners(state)
    if joiners and all(one.is_leaving for one in here):
        generations.write_record(turn, in_rank_order(joiners), before=state.current)
    else:
        _plan(turn, with_joiners=with_joiners)


def fallen_forward(state: Any) -> MemberStep:
    record = state.offered
    if record and record.number > state.left and rank_in(record, state.incarnation) >= 0:
        return _enter(state, record, is_connected=False) if record.number not in state.entered else MemberStep(state)
    return MemberStep(state)


def agreed_alone(state: Any, event: Any) -> MemberStep:
    step = _handle_words(state, event)
    complete = step.state.phase is MemberPhase.COMPLETE
    return MemberStep(replace(step.state, is_agreed=complete and step.state.promised is not None), step.effects)


def agreed_by_the_least(state: Any, event: Any) -> MemberStep:
    step = _handle_words(state, event)
    is_ready = all(word.prepared for word in event.words) and step.state.promised is not None
    return MemberStep(
        replace(step.state, is_agreed=step.state.phase is MemberPhase.COMPLETE and is_ready), step.effects
    )


def switched_and_closed(state: Any, plan: Any) -> MemberStep:
    step = _switch(state, plan)
    others = tuple(effect for effect in step.effects if not isinstance(effect, CloseGroup))
    return MemberStep(replace(step.state, previous=0), (*others, AbortGroup(number=state.number)))


def met_but_for_the_record(comparison: Any, entries: Any) -> bool:
    return comparison.key == plain_masters.KEYS.generation or _is_met(comparison, entries)


def written_by_whoever(draft: GroupDraft, write: Any, term: Any) -> bool:
    return _try_write(draft, write, draft.world.etcd.term)


MANY_MASTERS: Final = (
    (plain_masters, "is_met", met_but_for_the_record),
    (master_changes, "_try_write", written_by_whoever),
)
ALONE: Final = {"start": 1, "fresh": 1}

BREAKS: Final = (
    GroupBreak(
        name="silent-leave",
        rule="73: who leaves reports",
        patches=tuple((module, "leave", left_silently) for module in (membership, steps, sync)),
        setting=small(steps=1, net=1),
        found=Found.STUCK,
    ),
    GroupBreak(
        name="no-break-on-report",
        rule="74: BROKEN also for who has reported",
        patches=((generations, "_has_left", never),),
        setting=small(net=1),
        found=Found.STUCK,
    ),
    GroupBreak(
        name="break-only-once",
        rule="74: every master sends BROKEN",
        patches=((generations, "break_group", broken_by_the_first_master),),
        setting=small(steps=1, net=1, take_over=1),
        found=Found.STUCK,
        states=2_500,
    ),
    GroupBreak(
        name="no-gathering",
        rule="75: the record waits until all have reported or are lost",
        patches=((generations, "_is_settled", always),),
        setting=small(fresh=1, batch=3, steps=3, kill=1),
        found=Found.LOST_WORK,
        states=100_000,
        is_long=True,
    ),
    GroupBreak(
        name="no-compare",
        rule="76: the transaction compares record and leader",
        patches=MANY_MASTERS,
        setting=forking(steps=1, net=1),
        found=Found.FORK,
        states=100_000,
        is_long=True,
    ),
    GroupBreak(
        name="plan-without-old",
        rule="79: a plan keeps an old member",
        patches=((plans, "_plan", planned_without_old_members),),
        setting=small(**ALONE, drain=1),
        found=Found.FORK,
    ),
    GroupBreak(
        name="fall-forward",
        rule="80: old members enter a plan by the switch alone",
        patches=((membership, "_try_enter", fallen_forward),),
        setting=small(drain=1, net=1),
        found=Found.DISTURBED,
        states=100_000,
        is_long=True,
    ),
    GroupBreak(
        name="switch-alone",
        rule="81: all leave after the same step",
        patches=((steps, "handle_words", agreed_alone),),
        setting=small(start=2, batch=3, fresh=1),
        found=Found.DISTURBED,
    ),
    GroupBreak(
        name="switch-min",
        rule="81: all name the same plan, the least is not enough",
        patches=((steps, "handle_words", agreed_by_the_least),),
        setting=small(steps=1, fresh=1, batch=3, kill=1),
        found=Found.DISTURBED,
        states=100_000,
        is_long=True,
    ),
    GroupBreak(
        name="close-early",
        rule="82: the old connections stay until the others have their step",
        patches=((membership, "switch", switched_and_closed), (steps, "switch", switched_and_closed)),
        setting=small(start=2, batch=3, fresh=1),
        found=Found.DISTURBED,
    ),
)
