"""Declaration of a group's job: data set with the global batch, and the layout, which is equal on all ranks.

The first one is recorded, and later ones are compared with it.  A refusal names the field and what to do.  The number
of epochs and the settings of the replica belong to a start of the job: they may be others while no trainer is there
that declared the old ones (98, ADR 0273).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.api.group_shares import steps_per_epoch, total_steps
from master.api.identities import DatasetSpec
from master.api.messages.from_members import Declare
from master.api.messages.to_members import Declared, Refused
from master.api.positions import MAX_POSITION
from master.api.replica_layout import compare_layouts
from master.group.group_state import GroupState, GroupTurn, RefusedMember, Replica
from master.job.domain.durable_records import DatasetRecord, RecordDataset
from master.job.domain.effects import Persist
from master.job.state.trainer_failures import clear_positions

REFUSED_KEPT: Final = 20
_HINT: Final = "Declare the same, or start another job (another name and checkpoint folder)"


def is_same_order(one: DatasetSpec, other: DatasetSpec) -> bool:
    """True if they train the same records in the same order, for so many epochs as both have."""
    return replace(one, epochs=other.epochs).digest == other.digest


def handle_declare(turn: GroupTurn, replica: Replica, message: Declare) -> None:
    """Answered Declared once it is durable, or Refused at once (persist before reply).

    Other epochs or settings are answered once it is known whether trainers with the old ones are still there.
    """
    state = turn.state
    is_change = _belongs_to_a_start(state, message)
    if is_change and _may_come_back(state, replica):
        turn.put(replica, declares=message)
        turn.change(has_deferred=True)
        return
    if refused := _problem(state, replica, message, is_change=is_change):
        _refuse(turn, replica, refused)
        return
    turn.put(replica, has_declared=True, declares=None, moved_at=turn.now)
    turn.change(is_declared=True)
    if any(one.member.name == replica.key.name for one in state.refused):
        turn.change(refused=_without(state.refused, replica))
    if is_change or not state.layout:
        turn.change(layout=message.layout)
    if state.pending_declaration is not None:
        return
    if state.dataset and not is_change:
        turn.send(replica.key, Declared(dataset=state.dataset.dataset, tables=()))
        return
    record = DatasetRecord(dataset=message.dataset, layout=message.layout)
    turn.change(pending_declaration=record)
    turn.emit(Persist(write=RecordDataset(record=record, old=state.dataset)))


def _refuse(turn: GroupTurn, replica: Replica, refused: Refused) -> None:
    """Who is refused beside trainers that train is told of, and does not count as a failure of their job."""
    text = f"{refused.field}: {refused.message}"
    state = turn.state
    turn.put(replica, refusal=text, declares=None, has_declared=False)
    if any(one.is_connected and not one.is_lost for one in _others(state, replica)):
        refusal = RefusedMember(member=replica.key, at=turn.now, message=text)
        turn.change(refused=(*_without(state.refused, replica), refusal)[-REFUSED_KEPT:])
    turn.send(replica.key, refused)


def _without(refused: tuple[RefusedMember, ...], replica: Replica) -> tuple[RefusedMember, ...]:
    return tuple(one for one in refused if one.member.name != replica.key.name)


def handle_recorded(turn: GroupTurn, write: RecordDataset) -> None:
    """The declaration is durable: all that declared it are answered.  What was said of another end is forgotten."""
    turn.change(dataset=write.record, pending_declaration=None, final_saver=None, has_final_saved=False, told_end=())
    if write.old is not None:  # the trainers that had done more steps than head are gone
        left_out = write.old.dataset.everything - write.record.dataset.everything
        failures = clear_positions(turn.state.failures, left_out) if left_out else turn.state.failures
        turn.change(newest=turn.state.head_state.state.step, failures=failures)
    for replica in turn.state.members.values():
        if replica.has_declared:
            turn.send(replica.key, Declared(dataset=write.record.dataset, tables=()))


def advance(turn: GroupTurn) -> None:
    """Declarations that waited for what becomes of earlier trainers."""
    if not turn.state.has_deferred:
        return
    for replica in tuple(turn.state.members.values()):
        if replica.declares is not None and not _may_come_back(turn.state, replica):
            handle_declare(turn, replica, replica.declares)
    if not any(one.declares for one in turn.state.members.values()):
        turn.change(has_deferred=False)


def _belongs_to_a_start(state: GroupState, message: Declare) -> bool:
    """True for another number of epochs than the recorded one, or other settings of the replica, and nothing else.

    With other epochs layouts are not compared: a schedule may depend on them.  A state of another form does not load.
    """
    if state.pending_declaration is not None or state.dataset is None:
        return False
    known = state.dataset.dataset
    if message.dataset == known:
        return bool(state.layout) and compare_layouts(message.layout, state.layout).is_of_settings_alone
    return replace(message.dataset, epochs=known.epochs) == known


def _others(state: GroupState, replica: Replica) -> tuple[Replica, ...]:
    return tuple(one for one in state.members.values() if one.has_declared and one.key != replica.key)


def _may_come_back(state: GroupState, replica: Replica) -> bool:
    """True while it is not known of a trainer with the recorded declaration whether it still is there."""
    return state.reclaim_ends is not None or any(not one.is_connected for one in _others(state, replica))


def _problem(state: GroupState, replica: Replica, message: Declare, *, is_change: bool) -> Refused | None:
    dataset = message.dataset
    for field in ("size", "epochs", "batch_size"):
        if getattr(dataset, field) < 1:
            return Refused(field=f"dataset.{field}", message=f"is {getattr(dataset, field)}; it must be at least 1")
    if dataset.size * dataset.epochs > MAX_POSITION:
        return Refused(field="dataset.size", message="size x epochs is above 2**62; train fewer epochs in one job")
    if message.tables:
        return Refused(field="tables", message="a group has no parameter servers: its trainers hold the model")
    if is_change:
        return _problem_of_start(state, replica, message)
    holds = state.pending_declaration or state.dataset
    known = holds.dataset if holds else state.head.dataset if state.head else None
    for field in ("name", "size", "seed", "batch_size", "epochs") if known else ():  # other epochs alone are no problem
        before, now = getattr(known, field), getattr(dataset, field)
        if before != now:
            return Refused(field=f"dataset.{field}", message=f"is {now!r}, this job's is {before!r}. {_HINT}")
    if state.layout and message.layout != state.layout:
        return Refused(field="layout", message=f"{compare_layouts(message.layout, state.layout)}. {_HINT}")
    return None


def _problem_of_start(state: GroupState, replica: Replica, message: Declare) -> Refused | None:
    """Rule 98: not while trainers with another declaration train, and not below what is done."""
    assert state.dataset is not None
    dataset, others = message.dataset, _others(state, replica)
    before, done = state.dataset.dataset.epochs, state.head_state.state.step
    if others and dataset.epochs == before:
        difference = compare_layouts(message.layout, state.layout)
        who = f"{others[0].key.name}, which is here, has what was"
        how = "Run the same script on all trainers, or end all of them and start them again"
        return Refused(field="layout", message=f"{difference}; {who}. {how}")
    if others:
        who = f"{others[0].key.name} declared {before} and is here"
        how = "End all trainers and start them again: then epochs may be raised"
        return Refused(field="dataset.epochs", message=f"is {dataset.epochs}, and {who}. {how}")
    if total_steps(dataset) < done:
        least = -(-done // steps_per_epoch(dataset))
        told = f"is {dataset.epochs}, and the last checkpoint has done {done:,} steps, of {least} epochs"
        return Refused(field="dataset.epochs", message=f"{told}. Declare {least} or more, or start from an earlier one")
    return None
