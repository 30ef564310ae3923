"""The sync of a generation: rules 70, 71, 72 and 86.  Pure.

The first state is made by the script, so two processes may make it differently.  Its bits are those of the lowest rank
whose replica is as the script made it, and its id names the generation that chose it, like a step completed there: no
two generations choose one id (rule 65, ADR 0236).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from master.api.messages.generations import Generation, StateId
from trainer_sdk.group.core.control_words import SyncEntry, record_digest
from trainer_sdk.group.core.copies import restamp
from trainer_sdk.group.core.member_events import CloseGroup, RefuseScript, StateCaptured, StatesGathered, StateTaken
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, MemberStep, Transfer
from trainer_sdk.group.core.membership import leave


def entry_of(state: MemberState) -> SyncEntry:
    """Entry of this member in the sync of its generation (rule 70)."""
    assert state.record is not None
    is_current = state.state is not None and state.state.lineage == state.record.lineage
    return SyncEntry(
        digest=record_digest(state.record, state.layout),
        state=state.state if is_current else None,
        skipped=state.skipped,
        is_fresh=state.is_fresh,
    )


def handle_gathered(state: MemberState, event: StatesGathered) -> MemberStep:
    """Every member chooses the same source; who differs from it in id takes all of it (rules 70, 71)."""
    record = state.record
    if record is None or event.number != record.number or state.phase is not MemberPhase.SYNC:
        return MemberStep(state)
    digest = record_digest(record, state.layout)
    if len(event.entries) != len(record.members) or any(entry.digest != digest for entry in event.entries):
        return leave(state, record.number)
    transfer = choose_transfer(record, event.entries, state.rank)
    if transfer is None:
        left = leave(state, record.number)
        refusal = RefuseScript(
            field="replica",
            message="no member holds the job's first state any more: start the trainers' processes again",
        )
        return MemberStep(left.state, (*left.effects, refusal))
    closing = (CloseGroup(number=state.previous),) if state.previous else ()  # rule 82: all have switched
    listed = replace(state, phase=MemberPhase.TRANSFER, transfer=transfer, previous=0)
    if transfer.source is not None or transfer.is_from_head:
        return MemberStep(replace(listed, copy=None), closing)  # rule 86: its copy is of no ancestor
    kept = restamp(replace(listed, state=transfer.state, skipped=transfer.skipped, is_fresh=False), record)
    if transfer.receivers:
        return MemberStep(kept.state, (*closing, *kept.effects))
    return MemberStep(_end_sync(kept.state), (*closing, *kept.effects))


def choose_transfer(record: Generation, entries: tuple[SyncEntry, ...], rank: int) -> Transfer | None:
    """This rank's part: the largest id wins, a live replica before the head (rule 70).  None: there is no source."""
    held = [entry.state for entry in entries if entry.state is not None]
    top = record.head.state
    newest = max(held, default=None)
    if newest is None or newest < top:
        if record.head.manifest is not None:
            return Transfer(state=top, skipped=record.head.skipped, source=None, is_from_head=True)
        holders = [place for place, entry in enumerate(entries) if entry.is_fresh][:1]
        chosen = StateId(lineage=record.lineage, generation=record.number, step=top.step)
        takers = [place for place in range(len(entries)) if place not in holders]
        skipped = record.head.skipped
    else:
        chosen = newest
        holders = [place for place, entry in enumerate(entries) if entry.state == chosen]
        takers = [place for place in range(len(entries)) if place not in holders]
        skipped = entries[holders[0]].skipped
    if not holders:
        return None
    sender_of = senders(holders, takers)
    receivers = tuple(taker for taker, sender in sender_of.items() if sender == rank)
    return Transfer(state=chosen, skipped=skipped, source=sender_of.get(rank), receivers=receivers)


def senders(holders: Sequence[int], takers: Sequence[int]) -> dict[int, int]:
    """By taker: the rank that it receives from, in the order in which each sends.

    Whoever has the state sends it to one that lacks it, so that their number doubles with each transfer.
    """
    order, known = [*holders, *takers], len(holders)
    found: dict[int, int] = {}
    for place in range(len(holders), len(order)):
        if place == 2 * known:
            known = place
        found[order[place]] = order[place - known]
    return found


def handle_captured(state: MemberState, event: StateCaptured) -> MemberStep:
    """It goes on while its receivers get what was captured: no step ends without them (rule 72)."""
    transfer = state.transfer
    if event.number != state.number or transfer is None or transfer.source is not None or not transfer.receivers:
        return MemberStep(state)
    return MemberStep(_end_sync(state))


def handle_taken(state: MemberState, event: StateTaken) -> MemberStep:
    """The replica is that state, also if this member has left the generation meanwhile: the swap was whole (71).

    Who has taken it passes it on.
    """
    taken = replace(state, state=event.state, skipped=event.skipped, is_fresh=False, copy=None, is_step_given=False)
    if state.transfer is None or event.number != state.number:
        return MemberStep(taken)
    if state.transfer.receivers:
        return MemberStep(replace(taken, transfer=replace(state.transfer, source=None)))
    return MemberStep(_end_sync(taken))


def handle_torn(state: MemberState) -> MemberStep:
    """Rule 66: half a replica is nothing."""
    return leave(replace(state, state=None, is_fresh=False, copy=None), state.number)


def _end_sync(state: MemberState) -> MemberState:
    """Rule 72: from here on this member contributes."""
    return replace(state, phase=MemberPhase.BOUNDARY, transfer=None, has_synced=True)
