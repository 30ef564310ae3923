"""Copies of the replica and their commit: rules 84 to 87.  One copy at a time, by the first rank; any rank on demand.

Pure.
"""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.generations import OfferState
from master.api.messages.to_members import OfferAnswered
from trainer_sdk.group.core.member_events import CopyTaken, CopyWritten, TakeCopy, TellMaster
from trainer_sdk.group.core.member_state import Copy, MemberPhase, MemberState, MemberStep


def handle_due(state: MemberState) -> MemberStep:
    """The first rank copies at its next boundary; others pass the wish on with their next step (rule 84)."""
    if state.rank == 0:
        return MemberStep(replace(state, must_copy=True, refused_copy=0))
    return MemberStep(replace(state, wants_copy=True))


def handle_wanted(state: MemberState) -> MemberStep:
    """Whoever leaves waits for this very member's copy (rule 83)."""
    return MemberStep(replace(state, must_copy=True, refused_copy=0))


def due_copy(state: MemberState) -> TakeCopy | None:
    """The copy to take at this boundary; also of the last step, for the end waits for it (rule 95)."""
    if state.phase is not MemberPhase.BOUNDARY or state.copy is not None or state.state is None:
        return None
    is_last = state.rank == 0 and state.is_all_done and state.refused_copy != state.number
    if state.step <= state.committed or not (state.must_copy or is_last):
        return None
    return TakeCopy(number=state.copies + 1, stamp=state.number, state=state.state, skipped=state.skipped)


def handle_copied(state: MemberState, event: CopyTaken) -> MemberStep:
    work = event.work
    copy = Copy(number=work.number, offer=state.offers + 1, state=work.state, skipped=work.skipped, stamp=work.stamp)
    return MemberStep(replace(state, copy=copy, copies=work.number, offers=copy.offer, must_copy=False))


def handle_written(state: MemberState, event: CopyWritten) -> MemberStep:
    """Offers the copy; one that could not be written, or was dropped in a sync, is forgotten."""
    if state.copy is None or state.copy.number != event.number:
        return MemberStep(state)
    if event.file is None:
        return MemberStep(replace(state, copy=None, refused_copy=state.copy.stamp))
    written = replace(state, copy=replace(state.copy, file=event.file))
    return MemberStep(written, offer(written))


def handle_answered(state: MemberState, event: OfferAnswered) -> MemberStep:
    """An answer to an offer with an older stamp changes nothing: the newer one is answered too."""
    copy = state.copy
    if copy is None or event.offer != copy.offer:
        return MemberStep(state)
    if event.manifest is None:
        return MemberStep(replace(state, copy=None, refused_copy=copy.stamp))
    return MemberStep(replace(state, copy=None, committed=max(state.committed, copy.state.step)))


def restamp(state: MemberState, number: int) -> MemberStep:
    """Rule 86: this member keeps its state, so its copy is an ancestor of what the generation goes on from."""
    if state.copy is None:
        return MemberStep(state)
    offers = state.offers + 1
    stamped = replace(state, copy=replace(state.copy, stamp=number, offer=offers), offers=offers)
    return MemberStep(stamped, offer(stamped))


def offer(state: MemberState) -> tuple[TellMaster, ...]:
    """COMMIT, asked until it is answered (rule 87)."""
    copy = state.copy
    if copy is None or copy.file is None or not state.is_registered:
        return ()
    message = OfferState(
        offer=copy.offer, stamp=copy.stamp, state=copy.state, skipped=copy.skipped, shard=0, shards=1, file=copy.file
    )
    return (TellMaster(message=message),)
