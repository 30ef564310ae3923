"""The commit protocol, step by step: HOLD, CUT, files, then manifest and head (rules 19 to 25, docs/protocol.md).

    IDLE -> HOLDING -> WRITING -> RECORDING -> SWAPPING -> IDLE        anything that goes wrong -> IDLE, with back-off

HOLD collects each bucket's marks (the positions that it has applied); CUT has every server fork with D, the union of
the marks, as data state; equal marks in the files are the ground for the manifest.  A job without servers enters at
RECORDING, with no file and DONE as the data state (rule 36).  Trainers take no part; giving up costs time and nothing
else.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from master.api.identities import CutId
from master.api.messages.from_members import CutRefusal, CutRefused, Held, Written
from master.api.messages.to_members import Cut, Hold
from master.api.positions import EMPTY, PositionSet, union
from master.job.commit.head_swap import record_manifest
from master.job.dispatch.skip_agreement import finish_skip
from master.job.domain.job_events import CommitDue, CutExpired, HoldExpired
from master.job.moves.move_lifecycle import is_quiet
from master.job.recovery.rollback import lose_model
from master.job.state.bucket_marks import compare_marks, file_problem, lists_exactly
from master.job.state.bucket_table import owners
from master.job.state.commit_attempt import end_attempt, give_up
from master.job.state.dispatch_state import mark_done, unmark_done
from master.job.state.job_state import Turn
from master.job.state.members import Server
from master.job.state.protocol_state import CommitPhase, RecoveryStage
from master.job.trainers.trainer_loss import shorten_for_cut


def advance(turn: Turn) -> None:
    """Begins a commit if one is due, or at once when nothing is left to train (rule 32)."""
    state, dispatch = turn.state, turn.state.dispatch
    if (
        state.commit.phase is not CommitPhase.IDLE
        or state.stage is not RecoveryStage.SERVING
        or state.writing
        or state.skip
    ):
        return
    is_urgent = dispatch.is_exhausted and not state.commit.is_backing_off
    if (state.commit.due is not None and not is_urgent) or state.dataset is None:
        return
    if not dispatch.done and dispatch.quarantined == (state.head.quarantine if state.head else EMPTY):
        if state.commit.due is None:
            due = turn.after(state.config.checkpoint_every_ns)
            turn.change(commit=replace(state.commit, due=due, problem=""))  # nothing is left that did not go through
    elif not state.config.servers:
        record_manifest(turn, data=dispatch.committed | dispatch.done, quarantine=dispatch.quarantined, files=())
    elif is_quiet(state):  # else no server would list a moving bucket
        _hold(turn)


def handle_due(turn: Turn, event: CommitDue) -> None:
    """Mark the commit as due."""
    commit = turn.state.commit
    if commit.phase is CommitPhase.IDLE and commit.due == event.deadline:
        turn.change(commit=replace(commit, due=None, is_backing_off=False))


def handle_hold_expired(turn: Turn, event: HoldExpired) -> None:
    """Give the attempt up: pushes waited too long (rule 19)."""
    if turn.state.commit.phase is CommitPhase.HOLDING and turn.state.commit.cut == event.cut:
        give_up(turn, _hold_unanswered(turn))


def handle_cut_expired(turn: Turn, event: CutExpired) -> None:
    """The attempt is given up: a fork costs memory, and a server that has not written by now will not (rule 21)."""
    if turn.state.commit.phase is CommitPhase.WRITING and turn.state.commit.cut == event.cut:
        give_up(turn, f"{_without(turn, turn.state.commit.files)} wrote no file in time")


def _hold(turn: Turn) -> None:
    state = turn.state
    sequence = state.commit.sequence + 1
    cut = CutId(term=state.term, lineage=state.number, sequence=sequence)
    assert state.route is not None
    having = owners(state.route)
    expected = [server for server in state.members.servers.values() if server.key in having]
    turn.change(
        commit=replace(
            end_attempt(state.commit),
            phase=CommitPhase.HOLDING,
            sequence=sequence,
            cut=cut,
            expected=frozenset(server.ordinal for server in expected),
            expires=turn.after(state.config.hold_timeout_ns),
            done_at_begin=state.dispatch.done,
        )
    )
    for server in expected:
        turn.send(server.key, Hold(cut=cut))


def handle_held(turn: Turn, server: Server, message: Held) -> None:
    """Store an answer; once every bucket is listed exactly once (rule 58), D is the union of the marks.

    Positions that not all buckets have are leased first (rule 20).
    """
    state, underway = turn.state, turn.state.commit
    is_asked = (
        underway.phase is CommitPhase.HOLDING and underway.cut == message.cut and server.ordinal in underway.expected
    )
    if not is_asked or state.route is None:
        return
    underway = replace(underway, held=underway.held.put(server.ordinal, message.marks))
    turn.change(commit=underway)
    if len(underway.held) < len(underway.expected):
        return
    listed = [group for groups in underway.held.values() for group in groups]
    if not lists_exactly(listed, PositionSet.span(0, len(state.route.owner))):
        give_up(turn, "the servers' lists do not name every bucket once")
        return
    marks = compare_marks(listed)
    if not marks.skipped_anywhere <= state.dispatch.quarantined:
        give_up(turn, "an unfinished SKIP is completed first")
        finish_skip(turn, marks.skipped_anywhere)
        return
    dispatch = unmark_done(mark_done(state.dispatch, marks.everywhere), underway.done_at_begin - marks.settled)
    turn.change(
        dispatch=replace(dispatch, wanted_by_cut=marks.anywhere - marks.settled),
        commit=replace(
            underway, phase=CommitPhase.WRITING, data=marks.anywhere, expires=turn.after(state.config.cut_timeout_ns)
        ),
    )
    shorten_for_cut(turn)
    for each in state.members.servers.values():
        if each.ordinal in underway.expected:
            turn.send(each.key, Cut(cut=message.cut, data=marks.anywhere))


def handle_cut_refused(turn: Turn, server: Server, refusal: CutRefused) -> None:
    """Any refusal ends the attempt (rule 19); a file that is written stays written."""
    underway = turn.state.commit
    is_open = underway.phase in (CommitPhase.HOLDING, CommitPhase.WRITING) and underway.cut == refusal.cut
    if not is_open or server.ordinal in underway.files:
        return
    if underway.phase is CommitPhase.HOLDING and server.ordinal in underway.held:
        give_up(turn, _hold_unanswered(turn))  # it held its pushes for as long as it may: others are missing
        return
    detail = f": {refusal.message}" if refusal.message else ""
    is_storage = refusal.reason is CutRefusal.FAILED
    give_up(turn, f"{server.key.name} refused to take part ({refusal.reason}){detail}", is_storage=is_storage)


def _hold_unanswered(turn: Turn) -> str:
    return f"{_without(turn, turn.state.commit.held)} did not answer HOLD in time"


def _without(turn: Turn, answered: Container[int]) -> str:
    """The servers that were asked and have not answered, by name."""
    servers, expected = turn.state.members.servers.values(), turn.state.commit.expected
    missing = (server.key.name for server in servers if server.ordinal in expected and server.ordinal not in answered)
    return ", ".join(missing) or "a server"


def handle_written(turn: Turn, server: Server, message: Written) -> None:
    """Once all files are there: equal marks make a checkpoint, others end the attempt (rule 22)."""
    state, underway = turn.state, turn.state.commit
    is_expected = (
        underway.phase is CommitPhase.WRITING and underway.cut == message.cut and server.ordinal in underway.expected
    )
    if not is_expected or state.route is None:
        return
    listed = union(group.buckets for group in underway.held[server.ordinal])
    if problem := file_problem(message.file, message.cut.lineage, listed):
        give_up(turn, problem)
        return
    underway = replace(underway, files=underway.files.put(server.ordinal, message.file))
    turn.change(commit=underway)
    if len(underway.files) < len(underway.expected):
        return
    files = tuple(underway.files[ordinal] for ordinal in sorted(underway.files))
    marks = compare_marks(group for file in files for group in file.marks)
    if not marks.are_equal:
        turn.change(dispatch=mark_done(state.dispatch, marks.everywhere))
        give_up(turn, "the servers' files have different marks")
        finish_skip(turn, marks.skipped_anywhere)
    elif state.head and not state.head.data <= marks.everywhere:
        lose_model(turn, f"the model lacks positions {state.head.data - marks.everywhere} of head")
    else:
        record_manifest(turn, data=marks.everywhere, quarantine=marks.skipped_anywhere, files=files)
