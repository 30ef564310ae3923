"""The commit, step by step: HOLD, CUT, files, manifest, head (rules 19 to 25, 32, 36).

    IDLE -> HOLDING -> WRITING -> RECORDING -> SWAPPING -> IDLE        anything that goes wrong -> IDLE, with back-off

A job without servers enters at RECORDING: with the file that its trainer offers (rule 35), or with no file and DONE as
the data state (rule 36).  Trainers take no part; giving up costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from master.api.checkpoints.manifest import Manifest
from master.api.identities import CutId
from master.api.messages import (
    Cut,
    CutRefused,
    FileRecord,
    Held,
    Hold,
    OfferAnswered,
    OfferCheckpoint,
    Refusal,
    Written,
)
from master.api.positions import EMPTY, PositionSet, union
from master.job.dispatch.skip_agreement import finish
from master.job.domain import (
    CommitDue,
    CutExpired,
    HoldExpired,
    ManifestWriteFailed,
    ManifestWritten,
    MemberKey,
    SwapHead,
    WriteManifest,
)
from master.job.moves.move_lifecycle import is_quiet
from master.job.recovery.rollback import lose_model
from master.job.state.bucket_marks import compare, file_problem, lists_exactly, manifest_id
from master.job.state.bucket_table import owners
from master.job.state.commit_attempt import ended, give_up, retain
from master.job.state.dispatch_state import forget, gain, settle
from master.job.state.job_state import Offer, Phase, Stage, Turn
from master.job.state.members import Server
from master.job.trainers.trainer_loss import shorten_for_cut


def advance(turn: Turn) -> None:
    """Begins a commit if one is due, or at once when nothing is left to train (rule 32)."""
    state, books = turn.state, turn.state.dispatch
    if state.commit.phase is not Phase.IDLE or state.stage is not Stage.SERVING or state.writing or state.skip:
        return
    is_urgent = books.is_exhausted and not state.commit.is_backing_off
    if (state.commit.due is not None and not is_urgent) or state.dataset is None or state.has_own_model:
        return
    if not books.done and books.quarantined == (state.head.quarantine if state.head else EMPTY):
        if state.commit.due is None:
            due = turn.after(state.config.checkpoint_every_ns)
            turn.change(commit=replace(state.commit, due=due, problem=""))  # nothing is left that did not go through
    elif not state.config.servers:
        _record(turn, data=books.committed | books.done, quarantine=books.quarantined, files=())
    elif is_quiet(state):  # else a bucket that is on its way would be listed by nobody
        _hold(turn)


def handle_due(turn: Turn, event: CommitDue) -> None:
    """Begun as soon as it can be."""
    commit = turn.state.commit
    if commit.phase is Phase.IDLE and commit.due == event.deadline:
        turn.change(commit=replace(commit, due=None, is_backing_off=False))


def handle_hold_expired(turn: Turn, event: HoldExpired) -> None:
    """Pushes have waited long enough (rule 19)."""
    if turn.state.commit.phase is Phase.HOLDING and turn.state.commit.cut == event.cut:
        give_up(turn, _hold_unanswered(turn))


def handle_cut_expired(turn: Turn, event: CutExpired) -> None:
    """A fork costs memory; and whoever has not written by now will not (rule 21)."""
    if turn.state.commit.phase is Phase.WRITING and turn.state.commit.cut == event.cut:
        give_up(turn, f"{_without(turn, turn.state.commit.files)} wrote no file in time")


def _hold(turn: Turn) -> None:
    state = turn.state
    sequence = state.commit.sequence + 1
    cut = CutId(term=state.term, lineage=state.number, sequence=sequence)
    assert state.route is not None
    having = owners(state.route)
    asked = [server for server in state.members.servers.values() if server.key in having]
    turn.change(
        commit=replace(
            ended(state.commit),
            phase=Phase.HOLDING,
            sequence=sequence,
            cut=cut,
            asked=frozenset(server.ordinal for server in asked),
            expires=turn.after(state.config.hold_timeout_ns),
            done_at_begin=state.dispatch.done,
        )
    )
    for server in asked:
        turn.send(server.key, Hold(cut=cut))


def handle_held(turn: Turn, server: Server, said: Held) -> None:
    """All have answered and named every bucket once (58): D is what any has; what not all have is leased first (20)."""
    state, underway = turn.state, turn.state.commit
    is_asked = underway.phase is Phase.HOLDING and underway.cut == said.cut and server.ordinal in underway.asked
    if not is_asked or state.route is None:
        return
    underway = replace(underway, held=underway.held.put(server.ordinal, said.marks))
    turn.change(commit=underway)
    if len(underway.held) < len(underway.asked):
        return
    listed = [group for groups in underway.held.values() for group in groups]
    if not lists_exactly(listed, PositionSet.span(0, len(state.route.owner))):
        give_up(turn, "the servers' lists do not name every bucket once")
        return
    marks = compare(listed)
    if not marks.skipped_anywhere <= state.dispatch.quarantined:
        give_up(turn, "a SKIP is half done and is completed first")
        finish(turn, marks.skipped_anywhere)
        return
    books = forget(gain(state.dispatch, marks.everywhere), underway.done_at_begin - marks.settled)
    turn.change(
        dispatch=replace(books, wanted=marks.anywhere - marks.settled),
        commit=replace(
            underway, phase=Phase.WRITING, data=marks.anywhere, expires=turn.after(state.config.cut_timeout_ns)
        ),
    )
    shorten_for_cut(turn)
    for each in state.members.servers.values():
        if each.ordinal in underway.asked:
            turn.send(each.key, Cut(cut=said.cut, data=marks.anywhere))


def handle_cut_refused(turn: Turn, server: Server, said: CutRefused) -> None:
    """Any refusal ends the attempt (rule 19); what a server has written stays written."""
    underway = turn.state.commit
    is_open = underway.phase in (Phase.HOLDING, Phase.WRITING) and underway.cut == said.cut
    if not is_open or server.ordinal in underway.files:
        return
    if underway.phase is Phase.HOLDING and server.ordinal in underway.held:
        give_up(turn, _hold_unanswered(turn))  # it held its pushes for as long as it may: others are missing
        return
    story = f": {said.message}" if said.message else ""
    is_storage = said.reason is Refusal.FAILED
    give_up(turn, f"{server.key.name} does not take part ({said.reason}){story}", is_storage=is_storage)


def _hold_unanswered(turn: Turn) -> str:
    return f"{_without(turn, turn.state.commit.held)} did not answer HOLD in time"


def _without(turn: Turn, answered: Container[int]) -> str:
    """The servers that were asked and have not answered, by name."""
    servers, asked = turn.state.members.servers.values(), turn.state.commit.asked
    missing = (server.key.name for server in servers if server.ordinal in asked and server.ordinal not in answered)
    return ", ".join(missing) or "a server"


def handle_written(turn: Turn, server: Server, said: Written) -> None:
    """All files are there: equal, they are a checkpoint; else they are dropped (rule 22)."""
    state, underway = turn.state, turn.state.commit
    is_asked = underway.phase is Phase.WRITING and underway.cut == said.cut and server.ordinal in underway.asked
    if not is_asked or state.route is None:
        return
    listed = union(group.buckets for group in underway.held[server.ordinal])
    if problem := file_problem(said.file, said.cut.lineage, listed):
        give_up(turn, problem)
        return
    underway = replace(underway, files=underway.files.put(server.ordinal, said.file))
    turn.change(commit=underway)
    if len(underway.files) < len(underway.asked):
        return
    files = tuple(underway.files[ordinal] for ordinal in sorted(underway.files))
    marks = compare(group for file in files for group in file.marks)
    if not marks.are_equal:
        turn.change(dispatch=gain(state.dispatch, marks.everywhere))
        give_up(turn, "the servers' files have different marks")
        finish(turn, marks.skipped_anywhere)
    elif state.head and not state.head.data <= marks.everywhere:
        lose_model(turn, f"the model lacks {state.head.data - marks.everywhere}, which head contains")
    else:
        _record(turn, data=marks.everywhere, quarantine=marks.skipped_anywhere, files=files)


def handle_offer(turn: Turn, sender: MemberKey, said: OfferCheckpoint) -> None:
    """A trainer's own model (rule 35): its world is current, its data contain head's, and it is the only one."""
    state, offer = turn.state, Offer(trainer=sender, number=said.offer)
    if state.commit.offer == offer:
        return
    if state.head and state.head.files == (said.file,):
        turn.send(sender, OfferAnswered(offer=said.offer, manifest=state.head.id))
        return
    if reason := _offer_problem(turn, sender, said):
        turn.send(sender, OfferAnswered(offer=said.offer, manifest=None, reason=reason))
        return
    marks = compare(said.file.marks)
    _record(turn, data=marks.everywhere, quarantine=state.dispatch.quarantined, files=(said.file,), offer=offer)


def _offer_problem(turn: Turn, sender: MemberKey, said: OfferCheckpoint) -> str:
    state, marks = turn.state, compare(said.file.marks)
    if not state.has_own_model:
        return "this job's trainers hold no model of their own: declare it with own_model, and run without servers"
    if state.owner != sender:
        return "another trainer holds the model; trainers with a model each are not supported (rule 36)"
    if state.stage is not Stage.SERVING or said.world != state.number or said.file.lineage != state.number:
        return f"it was trained in world {said.world}, the current one is {state.number}"
    if not marks.are_equal or not marks.everywhere <= state.dispatch.everything:
        return f"its marks {marks.everywhere} are not those of one model of this data set"
    if state.head and not state.head.data <= marks.everywhere:
        return f"it lacks {state.head.data - marks.everywhere}, which the last checkpoint contains"
    if marks.everywhere & state.dispatch.quarantined:
        return f"it contains {marks.everywhere & state.dispatch.quarantined}, which are quarantined"
    if state.commit.phase is not Phase.IDLE or state.writing:
        return "another commit is under way; offer it again"
    return ""


def _record(
    turn: Turn, *, data: PositionSet, quarantine: PositionSet, files: tuple[FileRecord, ...], offer: Offer | None = None
) -> None:
    state, underway = turn.state, turn.state.commit
    assert state.dataset is not None
    sequence = underway.sequence if underway.cut else underway.sequence + 1
    manifest = Manifest(
        id=manifest_id(state.term, state.number, sequence, state.origin.fresh),
        parent=state.head_id,
        lineage=state.number,
        term=state.term,
        data=data,
        quarantine=quarantine,
        files=files,
        dataset=state.dataset.dataset,
        tables=state.dataset.tables,
        bucket_count=len(state.route.owner) if state.route else len(files),  # a trainer's own model: one
        step=-(-len(data) // state.dataset.dataset.batch_size),
        created_at_s=0.0,  # stamped by the shell, which has a calendar
        history=state.origin.history,
        founded=state.origin.founded,
    )
    turn.change(
        commit=replace(
            underway, phase=Phase.RECORDING, sequence=sequence, manifest=manifest, offer=offer, expires=None
        ),
        dispatch=replace(state.dispatch, wanted=EMPTY),
    )
    turn.emit(WriteManifest(manifest=manifest))


def handle_manifest_written(turn: Turn, event: ManifestWritten) -> None:
    """Then head, in one transaction: only that makes it a checkpoint (rule 23)."""
    state, underway = turn.state, turn.state.commit
    if underway.phase is not Phase.RECORDING or underway.manifest is None or underway.manifest.id != event.manifest:
        return
    assert state.lineage is not None
    assert underway.manifest.lineage == state.number
    turn.change(commit=replace(underway, phase=Phase.SWAPPING))
    turn.write(SwapHead(parent=underway.manifest.parent, lineage=state.lineage, manifest=event.manifest))


def handle_manifest_write_failed(turn: Turn, event: ManifestWriteFailed) -> None:
    underway = turn.state.commit
    if underway.phase is Phase.RECORDING and underway.manifest and underway.manifest.id == event.manifest:
        give_up(turn, f"the manifest could not be written: {event.reason}", is_storage=True)


def handle_head_swapped(turn: Turn) -> None:
    """Committed.  What was answered as committed survives any crash (M6)."""
    state, manifest = turn.state, turn.state.commit.manifest
    assert manifest is not None
    if state.commit.offer:
        number, trainer = state.commit.offer.number, state.commit.offer.trainer
        turn.send(trainer, OfferAnswered(offer=number, manifest=manifest.id))
    books = replace(settle(state.dispatch, manifest.data, manifest.quarantine), wanted=EMPTY)
    turn.change(
        head=manifest,
        dispatch=books,
        commit=replace(
            ended(state.commit),
            due=turn.after(state.config.checkpoint_every_ns),
            is_backing_off=books.is_exhausted,  # of use only if head is not everything then: never at once again
            refusals=0,
            problem="",
            committed_at=turn.now,
        ),
    )
    retain(turn)
