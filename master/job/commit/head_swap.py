"""The end of a commit: write the manifest, then move head to it in one store transaction (rules 22, 23)."""

from __future__ import annotations

from dataclasses import replace

from master.api.checkpoints.manifest import Manifest
from master.api.messages.checkpoint_files import FileRecord
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import SwapHead
from master.job.domain.effects import WriteManifest
from master.job.domain.job_events import ManifestWriteFailed, ManifestWritten
from master.job.state.bucket_marks import manifest_id
from master.job.state.commit_attempt import end_attempt, give_up, retain
from master.job.state.dispatch_state import apply_head
from master.job.state.job_state import Turn
from master.job.state.protocol_state import CommitPhase


def record_manifest(
    turn: Turn,
    *,
    data: PositionSet,
    quarantine: PositionSet,
    files: tuple[FileRecord, ...],
) -> None:
    """The manifest of this commit is written next (WriteManifest)."""
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
        bucket_count=len(state.route.owner) if state.route else 0,
        step=-(-len(data) // state.dataset.dataset.batch_size),
        created_at_s=0.0,  # stamped by the shell, which has a calendar
        history=state.origin.history,
        founded=state.origin.founded,
    )
    turn.change(
        commit=replace(underway, phase=CommitPhase.RECORDING, sequence=sequence, manifest=manifest, expires=None),
        dispatch=replace(state.dispatch, wanted_by_cut=EMPTY),
    )
    turn.emit(WriteManifest(manifest=manifest))


def handle_manifest_written(turn: Turn, event: ManifestWritten) -> None:
    """Moves head to the manifest in one transaction: only that makes it a checkpoint (rule 23)."""
    state, underway = turn.state, turn.state.commit
    if (
        underway.phase is not CommitPhase.RECORDING
        or underway.manifest is None
        or underway.manifest.id != event.manifest
    ):
        return
    assert state.lineage is not None
    assert underway.manifest.lineage == state.number
    turn.change(commit=replace(underway, phase=CommitPhase.SWAPPING))
    turn.write(SwapHead(parent=underway.manifest.parent, lineage=state.lineage, manifest=event.manifest))


def handle_manifest_write_failed(turn: Turn, event: ManifestWriteFailed) -> None:
    underway = turn.state.commit
    if underway.phase is CommitPhase.RECORDING and underway.manifest and underway.manifest.id == event.manifest:
        give_up(turn, f"the manifest could not be written: {event.reason}", is_storage=True)


def handle_head_swapped(turn: Turn) -> None:
    """Handle the committed checkpoint, which now survives any crash (M6)."""
    state, manifest = turn.state, turn.state.commit.manifest
    assert manifest is not None
    dispatch = replace(apply_head(state.dispatch, manifest.data, manifest.quarantine), wanted_by_cut=EMPTY)
    turn.change(
        head=manifest,
        dispatch=dispatch,
        commit=replace(
            end_attempt(state.commit),
            due=turn.after(state.config.checkpoint_every_ns),
            is_backing_off=dispatch.is_exhausted,  # matters only if head is not complete: no immediate second attempt
            refusals=0,
            problem="",
            committed_at=turn.now,
        ),
    )
    retain(turn)
