"""Copies of the replica and their commit: rules 84 to 88.  Pure.

One copy at a time, by all members in shards, or by one member whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from master.api.group_shares import total_steps
from master.api.messages.generations import CopyFailed, Generation, OfferState
from master.api.messages.to_members import OfferAnswered
from trainer_sdk.group.core.control_words import CANNOT_COPY, StepWord
from trainer_sdk.group.core.member_events import CopyTaken, CopyWritten, TakeCopy, TellMaster
from trainer_sdk.group.core.member_state import Copy, MemberPhase, MemberState, MemberStep

LEAST_SHARD_BYTES: Final = 8 << 20  # a replica below twice that is written by one member: a file more costs more
MOST_SHARDS: Final = 64  # so many writers fill any storage, and the record names each file


def handle_due(state: MemberState) -> MemberStep:
    """The next step's word carries the wish to all; who is alone, leaves, or has no step left copies by itself."""
    is_alone = state.record is not None and len(state.record.members) == 1
    if is_alone or state.is_leaving or state.is_all_done:
        return handle_now(state)
    return MemberStep(replace(state, wants_copy=True))


def handle_now(state: MemberState) -> MemberStep:
    """This very member copies the whole: whoever leaves waits for it (rule 83).

    A copy of this state that waits to be compared would wait for a step that does not come before it is committed.
    """
    copy, asked = state.copy, replace(state, must_copy=True, refused_copy=0)
    if copy is None or copy.is_compared or copy.writers or copy.state != state.state:
        return MemberStep(asked)
    ready = replace(asked, copy=replace(copy, is_compared=True))
    return MemberStep(ready, offer(ready))


def wished_shards(state: MemberState, replica_bytes: int) -> int:
    """Shards that this member's word wishes for a copy after this step, the last one in any case (rule 95)."""
    assert state.record is not None
    if _is_writing(state):
        return CANNOT_COPY
    is_last = state.step + 1 == total_steps(state.dataset)
    if not (state.wants_copy or is_last):
        return 0
    return max(1, min(replica_bytes // LEAST_SHARD_BYTES, len(state.record.members), MOST_SHARDS))


def agreed_shards(words: Iterable[StepWord]) -> int:
    """Shards of the copy after this step, the same at all members; 0: nobody wishes for one, or one cannot copy."""
    wishes = {word.copy_shards for word in words}
    return 0 if min(wishes) < 0 else max(wishes)


def due_copy(state: MemberState) -> TakeCopy | None:
    """The copy to take at this boundary.  One of an older step that is written, and not committed yet, gives way."""
    record, own = state.record, state.state
    if state.phase is not MemberPhase.BOUNDARY or record is None or own is None or own.progress <= state.committed:
        return None
    whole = TakeCopy(number=state.copies + 1, stamp=state.number, state=own, skipped=state.skipped)
    if 0 <= state.rank < state.copy_shards:
        writers = tuple(one.incarnation for one in record.members[: state.copy_shards])
        return whole if len(writers) == 1 else replace(whole, shard=state.rank, writers=writers)
    is_last = state.rank == 0 and state.is_all_done and state.refused_copy != state.number
    is_offered = state.copy is not None and state.copy.state == own and state.copy.is_compared
    is_busy = _is_writing(state) or is_offered
    return whole if (state.must_copy or is_last) and not is_busy else None


def _is_writing(state: MemberState) -> bool:
    """True while this process writes a copy, also one that a sync has dropped: it writes one at a time."""
    return state.writing > 0


def handle_copied(state: MemberState, event: CopyTaken) -> MemberStep:
    work = event.work
    copy = Copy(
        number=work.number,
        offer=state.offers + 1,
        state=work.state,
        skipped=work.skipped,
        stamp=work.stamp,
        shard=work.shard,
        writers=work.writers,
        is_compared=not _awaits_comparison(state),
    )
    taken = replace(state, copy=copy, copies=work.number, offers=copy.offer, must_copy=False, copy_shards=0)
    return MemberStep(replace(taken, writing=work.number, untold_failure=None))


def _awaits_comparison(state: MemberState) -> bool:
    """True for a copy that all agreed on: the next step's words compare its state (the last one is compared by now).

    Not for one that a member takes by itself at the same boundary: whoever asked for it waits, and takes no step.
    """
    is_alone = state.record is None or len(state.record.members) == 1
    is_agreed = 0 <= state.rank < state.copy_shards
    return state.can_compare and is_agreed and not is_alone and not state.is_all_done


def compared(state: MemberState) -> MemberStep:
    """All members hold the state that the step begins from: a copy of it may be offered."""
    copy = state.copy
    if copy is None or copy.is_compared or copy.state != state.state:
        return MemberStep(state)
    ready = replace(state, copy=replace(copy, is_compared=True))
    return MemberStep(ready, offer(ready))


def handle_written(state: MemberState, event: CopyWritten) -> MemberStep:
    """Offers the copy.  One that was dropped in a sync is forgotten; one that could not be written is told (88).

    Once it is written, a failure of the same copy is a deadline that has passed later.
    """
    copy = state.copy
    if event.number == state.writing:
        state = replace(state, writing=0)
    if copy is None or copy.number != event.number or copy.file is not None:
        return MemberStep(state)
    if event.file is None:
        failed = CopyFailed(state=copy.state, shards=len(copy.writers) or 1, reason=event.problem)
        told = (TellMaster(message=failed),) if state.is_registered else ()
        untold = None if state.is_registered else failed
        return MemberStep(replace(state, copy=None, refused_copy=copy.stamp, untold_failure=untold), told)
    written = replace(state, copy=replace(copy, file=event.file, contents=event.contents))
    return MemberStep(written, offer(written))


def handle_answered(state: MemberState, event: OfferAnswered) -> MemberStep:
    """An answer to an offer with an older stamp changes nothing: the newer one is answered too."""
    copy = state.copy
    if copy is None or event.offer != copy.offer:
        return MemberStep(state)
    if event.manifest is None:
        return MemberStep(replace(state, copy=None, refused_copy=copy.stamp))
    is_of_lineage = copy.state.lineage == state.lineage
    committed = max(state.committed, copy.state.progress) if is_of_lineage else state.committed
    return MemberStep(replace(state, copy=None, committed=committed))


def restamp(state: MemberState, record: Generation) -> MemberStep:
    """Rule 86: this member keeps its state, so its copy is an ancestor of what the generation goes on from.

    A shard whose other writers are not all there is dropped (rule 88): nobody would complete it.  After the last step
    it is dropped in any sync but that of a switch, since no later copy could take its place.
    """
    copy = state.copy
    if copy is None:
        return MemberStep(state)
    is_switch = record.planned_from == copy.state.generation
    has_writers = set(copy.writers) <= {one.incarnation for one in record.members}
    if copy.writers and not is_switch and (state.is_all_done or not has_writers):
        return MemberStep(replace(state, copy=None))
    offers = state.offers + 1
    stamped = replace(state, copy=replace(copy, stamp=record.number, offer=offers), offers=offers)
    return MemberStep(stamped, offer(stamped))


def tell_failure(state: MemberState) -> MemberStep:
    """The failure of a copy that no master was there to hear: else the other writers' shards wait for it (rule 88)."""
    if state.untold_failure is None:
        return MemberStep(state)
    return MemberStep(replace(state, untold_failure=None), (TellMaster(message=state.untold_failure),))


def offer(state: MemberState) -> tuple[TellMaster, ...]:
    """COMMIT, asked until it is answered (rule 87)."""
    copy = state.copy
    if copy is None or copy.file is None or not copy.is_compared or not state.is_registered:
        return ()
    message = OfferState(
        offer=copy.offer,
        stamp=copy.stamp,
        state=copy.state,
        skipped=copy.skipped,
        shard=copy.shard,
        shards=len(copy.writers) or 1,
        file=copy.file,
        contents=copy.contents,
    )
    return (TellMaster(message=message),)
