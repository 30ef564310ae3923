"""Next work of the script's thread, as a function of the state.  Pure.

The script's thread alone touches the replica, so an abort that comes while it computes changes what it is asked to do,
and nothing under its hands.
"""

from __future__ import annotations

from master.api.messages.generations import HeadState, StateId
from trainer_sdk.group.core.copies import due_copy
from trainer_sdk.group.core.member_events import (
    Await,
    CompareReplicas,
    FinishScript,
    GatherStates,
    GiveStep,
    LoadHead,
    ReceiveState,
    ScriptWork,
    SendState,
    TakeDigest,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState
from trainer_sdk.group.core.replica_digests import is_digest_due, last_word
from trainer_sdk.group.core.steps import share_of
from trainer_sdk.group.core.sync import entry_of
from trainer_sdk.group.port import GroupFinish
from trainer_sdk.protocol.trainer_events import FinishReason


def next_work(state: MemberState) -> ScriptWork:
    """The script's next action; it may have changed by the time that it is answered, and the answer is then ignored."""
    if state.ended is not None:
        head = state.ended.head
        if head is not None and head.manifest is not None and not _holds(state, head.state):
            return LoadHead(number=0, head=head)  # of no generation
        return FinishScript(finish=GroupFinish(reason=FinishReason.ENDED, final_saver=state.ended.final_saver))
    match state.phase:
        case MemberPhase.GONE:
            return Await() if state.copy is not None else FinishScript(finish=GroupFinish(reason=FinishReason.DRAINED))
        case MemberPhase.SYNC if state.is_connected:
            return GatherStates(number=state.number, entry=entry_of(state))
        case MemberPhase.TRANSFER:
            return _transfer(state)
        case MemberPhase.BOUNDARY if state.state is not None and is_digest_due(state):
            return TakeDigest(state=state.state)
        case MemberPhase.BOUNDARY if word := last_word(state):
            return CompareReplicas(number=state.number, word=word)
        case MemberPhase.BOUNDARY:
            return due_copy(state) or (Await() if state.is_all_done else GiveStep(share=share_of(state)))
        case _:
            return Await()


def _holds(state: MemberState, last: StateId) -> bool:
    """True if the replica is at the job's last step, which has the same bits at all that have done it (rule 65)."""
    return state.state is not None and (state.state.lineage, state.state.step) == (last.lineage, last.step)


def _transfer(state: MemberState) -> ScriptWork:
    transfer, record = state.transfer, state.record
    assert transfer is not None
    assert record is not None
    if transfer.is_from_head:
        head: HeadState = record.head
        return LoadHead(number=record.number, head=head)
    if transfer.source is not None:
        return ReceiveState(
            number=record.number, source=transfer.source, state=transfer.state, skipped=transfer.skipped
        )
    return SendState(number=record.number, to=transfer.receivers)
