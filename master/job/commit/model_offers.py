"""Checkpoints that a trainer offers of its own model, in a job without servers (rules 33 to 36)."""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.from_members import OfferCheckpoint
from master.api.messages.to_members import OfferAnswered
from master.job.commit.head_swap import record_manifest
from master.job.domain.durable_records import MemberKey
from master.job.state.bucket_marks import compare_marks
from master.job.state.job_state import Turn
from master.job.state.protocol_state import CommitPhase, ModelOffer, RecoveryStage


def handle_offer(turn: Turn, sender: MemberKey, message: OfferCheckpoint) -> None:
    """Commits the offered file if its world is current, its data contain head's, and no other commit runs (rule 35)."""
    state, offer = turn.state, ModelOffer(trainer=sender, number=message.offer)
    if state.commit.offer == offer:
        return
    if state.head and state.head.files == (message.file,):
        turn.send(sender, OfferAnswered(offer=message.offer, manifest=state.head.id))
        return
    if reason := _offer_problem(turn, sender, message):
        turn.send(sender, OfferAnswered(offer=message.offer, manifest=None, reason=reason))
        if state.has_own_model and not _is_busy(turn):
            problem = f"the checkpoint that {sender.name} offered was refused: {reason}"
            turn.change(commit=replace(state.commit, problem=problem))
        return
    marks = compare_marks(message.file.marks)
    record_manifest(
        turn, data=marks.everywhere, quarantine=state.dispatch.quarantined, files=(message.file,), offer=offer
    )


def _offer_problem(turn: Turn, sender: MemberKey, message: OfferCheckpoint) -> str:
    state, marks = turn.state, compare_marks(message.file.marks)
    if not state.has_own_model:
        return "this job's trainers hold no model of their own: declare it with own_model, and run without servers"
    if state.owner != sender:
        return "another trainer holds the model; trainers with a model each are not supported (rule 36)"
    if (
        state.stage is not RecoveryStage.SERVING
        or message.world != state.number
        or message.file.lineage != state.number
    ):
        return f"it was trained in world {message.world}, the current one is {state.number}"
    if not marks.are_equal or not marks.everywhere <= state.dispatch.everything:
        return f"its marks {marks.everywhere} are not those of one model of this data set"
    if state.head and not state.head.data <= marks.everywhere:
        return f"it lacks {state.head.data - marks.everywhere}, which the last checkpoint contains"
    if marks.everywhere & state.dispatch.quarantined:
        return f"it contains {marks.everywhere & state.dispatch.quarantined}, which are quarantined"
    return "another commit is under way; offer it again" if _is_busy(turn) else ""


def _is_busy(turn: Turn) -> bool:
    return turn.state.commit.phase is not CommitPhase.IDLE or bool(turn.state.writing)
