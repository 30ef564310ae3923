"""Invariants of a group's master after every step; a breach is a bug and ends the process before it does harm."""

from __future__ import annotations

from master.api.group_shares import data_of
from master.errors import InvariantViolationError
from master.group.group_state import CopyPhase, GroupState, keys_of, roster_of
from master.job.domain.durable_records import GenerationRecord, RecordGeneration, SwapHead


def check_invariants(state: GroupState) -> None:
    """Raises InvariantViolationError, naming the rule that is broken."""
    if state.record is not None:
        _check_record(state, state.record)
    _expect(state.roster == roster_of(state.record), "rule 74: those concerned are not those of the record")
    if isinstance(state.writing, RecordGeneration):
        write = state.writing
        _expect(write.old == state.record, "rule 76: a record is written over another one than was read")
        _check_record(state, write.new)
        before = state.record.current.number if state.record else 0
        _expect(write.new.current.number > before, "rule 64: the next generation's number is not larger")
    if isinstance(state.writing, SwapHead):
        _expect(state.writing.generation == state.record, "rule 87: head is swapped under another record")
        _expect(state.commit.phase is CopyPhase.SWAPPING, "rule 87: head is swapped without a commit")
    if state.commit.phase is CopyPhase.SWAPPING:
        manifest = state.commit.manifest
        _expect(
            manifest is not None and manifest.parent == state.head_id, "rule 87: head was swapped by another commit"
        )
        new = manifest.state if manifest is not None else None
        is_later = new is not None and new.progress > state.head_state.state.progress
        _expect(is_later, "rule 87: the new head is of no later step, and ends nothing")
    if state.head is not None and state.head.state is not None and state.dataset is not None:
        done = data_of(state.dataset.dataset, state.head.state.step)
        _expect(state.head.data | state.head.quarantine == done, "M1: head's data are not those of its steps")
    _expect(state.synced <= state.largest, "rule 64: a sync of a generation that was never recorded")


def _check_record(state: GroupState, record: GenerationRecord) -> None:
    current, before = record.current, record.before
    members = keys_of(current)
    _expect(bool(members) and len(set(members)) == len(members), "rule 64: a generation needs members, each one once")
    _expect(
        current.lineage <= state.number or state.lineage is None, "rule 93: a record of a lineage that is not there"
    )
    _expect(0 <= current.suspect_rank < len(members), "M4: the suspects are of no rank")
    _expect(current.planned_from == (before.number if before else 0), "rule 79: a plan from a generation not recorded")
    if before is not None:
        _expect(before.number < current.number, "rule 64: a plan is older than what it is planned from")
        _expect(bool(set(members) & set(keys_of(before))), "rule 79: a plan keeps nobody of the old generation")
        _expect(before.lineage == current.lineage, "rule 93: a plan crosses a lineage")


def _expect(is_so: bool, rule: str) -> None:
    if not is_so:
        raise InvariantViolationError(rule)
