"""Left out of identities, steps and the sync (rules 63 to 72)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.messages.generations import StateId
from tests.protocol.group import draft
from tests.protocol.group.breaks.left_out import Found, GroupBreak, never, small
from tests.protocol.group.draft import GroupDraft
from trainer_sdk.group.core import membership, steps, sync
from trainer_sdk.group.core.member_state import MemberPhase, MemberStep, Transfer

_expected_share, _handle_words = steps.expected_share, steps.handle_words
_choose, _gathered, _failed = sync.choose_transfer, sync.handle_gathered, membership.handle_failed
_depart = GroupDraft.depart


def shared_by_the_newest_record(state: Any, step: int) -> Any:
    newest = state.offered if state.offered and state.record else state.record
    is_listed = newest is not None and membership.rank_in(newest, state.incarnation) >= 0
    if newest is not None:  # whose first step this is not
        newest = replace(newest, members=tuple(replace(one, takes_state=False) for one in newest.members))
    share = _expected_share(replace(state, record=newest) if is_listed else state, step)
    return share and replace(share, rank=state.rank, generation=state.number)


def begun_under_the_old_incarnation(place: int, births: int) -> str:
    return f"{place}"


def summed_over_those_there(self: GroupDraft, place: int, number: int, *, is_abort: bool = True) -> None:
    _depart(self, place, number, is_abort=is_abort)
    core = self.member(place).core
    group = self.world.group(number, core.incarnation) if core else None
    if group is None:
        return
    given = tuple(one for one, left in zip(group.contributions, group.left, strict=True) if not left)
    if given and all(given):
        self.set_group(replace(group, sums=(self._sum(replace(group, contributions=given)),)))


def any_number_of_words(state: Any, event: Any) -> MemberStep:
    size = len(state.record.members) if state.record else len(event.words)
    return _handle_words(state, replace(event, words=(event.words * size)[:size]))


def torn_counts(state: Any, event: Any) -> MemberStep:
    if state.phase is MemberPhase.CONTRIBUTED and event.number == state.number:
        state = replace(state, state=replace(state.state, generation=state.number, step=state.step + 1))
    return _failed(state, event)


def _kept(record: Any, entries: Any, rank: int, is_same: Any) -> Transfer | None:
    """What is the same takes nothing, and nobody sends it anything."""
    chosen = _choose(record, entries, rank)
    if chosen is None:
        return None
    alike = tuple(other for other, entry in enumerate(entries) if entry.state and is_same(entry.state, chosen.state))
    if rank in alike:
        takers = tuple(one for one in chosen.receivers if one not in alike)
        return replace(chosen, state=entries[rank].state, source=None, is_from_head=False, receivers=takers)
    return chosen


def own_state_kept(record: Any, entries: Any, rank: int) -> Transfer | None:
    return _kept(record, entries, rank, lambda own, chosen: True)


def same_step_kept(record: Any, entries: Any, rank: int) -> Transfer | None:
    kept = _kept(record, entries, rank, lambda own, chosen: own.step == chosen.step)
    return kept and replace(kept, state=_choose(record, entries, rank).state)


def received_in_place(state: Any, event: Any) -> MemberStep:
    step = _gathered(state, event)
    if step.state.transfer is None or step.state.transfer.source is None:
        return step
    return MemberStep(replace(step.state, state=None, is_fresh=False), step.effects)


def half_received_counts(state: Any, event: Any) -> MemberStep:
    transfer = state.transfer
    if event.number == state.number and transfer and transfer.source is not None:
        state = replace(state, state=transfer.state, is_fresh=False)
    return _failed(state, event)


BREAKS: Final = (
    GroupBreak(
        name="shares-of-newest",
        rule="63: a share is a function of the member's own record",
        patches=((steps, "expected_share", shared_by_the_newest_record),),
        setting=small(start=1, fresh=1),
        found=Found.CONTENT,
    ),
    GroupBreak(
        name="known-by-name",
        rule="64: a new process is a new incarnation",
        patches=((draft, "incarnation_of", begun_under_the_old_incarnation),),
        setting=small(steps=1, kill=1, restart=1),
        found=Found.FORK,
        states=100_000,
        is_long=True,
    ),
    GroupBreak(
        name="sum-of-those-there",
        rule="67: a step needs all members of the record",
        patches=((GroupDraft, "depart", summed_over_those_there), (steps, "handle_words", any_number_of_words)),
        setting=small(kill=1),
        found=Found.CONTENT,
    ),
    GroupBreak(
        name="torn-counts",
        rule="68: who cannot tell whether the step ended is nothing",
        patches=((membership, "handle_failed", torn_counts),),
        setting=small(net=1),
        found=Found.CONTENT,
    ),
    GroupBreak(
        name="no-sync",
        rule="70: a generation begins with a sync",
        patches=((sync, "choose_transfer", own_state_kept),),
        setting=small(net=1),
        found=Found.STUCK,
        states=2_000,
    ),
    GroupBreak(
        name="order-rank",
        rule="70: the largest id is the source, not the lowest rank",
        patches=((StateId, "__lt__", never), (StateId, "__gt__", never)),
        setting=small(suspect=1, wished=True),
        found=Found.FORK,
    ),
    GroupBreak(
        name="head-no-candidate",
        rule="70: the head that the record names is a candidate",
        patches=((StateId, "__lt__", never),),
        setting=small(kill=1, wished=True),
        found=Found.FORK,
    ),
    GroupBreak(
        name="same-step-is-same",
        rule="71: who differs in id takes the state, also of the same step",
        patches=((sync, "choose_transfer", same_step_kept),),
        setting=small(suspect=1),
        found=Found.TWO_STATES,
    ),
    GroupBreak(
        name="receive-in-place",
        rule="71: a state is received into a second place",
        patches=((sync, "handle_gathered", received_in_place),),
        setting=small(steps=3, net=1, kill=1),
        found=Found.LOST_WORK,
    ),
    GroupBreak(
        name="half-counts",
        rule="71: half received is nothing",
        patches=((membership, "handle_failed", half_received_counts),),
        setting=small(net=2),
        found=Found.CONTENT,
    ),
)
