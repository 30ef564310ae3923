"""The trainer that holds the model of a job without servers, and what it starts from (rules 33 to 35).

The lineage is the `world`.  A process that still holds this world's model continues with it: DONE := its marks.  Any
other process starts from head, and only in a world without a holder: the old world is closed first, durably, so
no file of the lost model can be committed over the new one's work.

Trainers with a model each are not supported (rule 36); plain sharding and jobs with servers have no holder.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.to_members import Refused
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import MemberKey
from master.job.recovery.rollback import fence_all, lose_model
from master.job.state.dispatch_state import mark_done, unmark_done, void_leases
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Trainer
from master.job.state.protocol_state import RecoveryStage


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFrom:
    """Model from which a registering trainer starts; no file: it has its model, or starts from zero."""

    file: FileRecord | None = None
    data: PositionSet = EMPTY


_NOTHING = StartFrom()


def try_admit(turn: Turn, trainer: Trainer) -> StartFrom | None:
    """Decides whether this trainer holds the model.  None: it must wait for a new world and register again."""
    state = turn.state
    if not state.has_own_model or state.owner not in (None, trainer.key) or state.number == 0:
        return _NOTHING
    head_data = state.head.data if state.head else EMPTY
    holds_a_model = bool(trainer.applied)  # who has applied nothing may have registered while another held it
    is_of_this_world = holds_a_model and trainer.lineage == state.number and head_data <= trainer.applied
    if is_of_this_world and not state.has_no_holder:
        dispatch = unmark_done(state.dispatch, state.dispatch.done - trainer.applied)
        turn.change(owner=trainer.key, dispatch=mark_done(dispatch, trainer.applied))
        return _NOTHING
    if state.has_no_holder or state.owner == trainer.key:
        turn.change(owner=trainer.key, has_no_holder=False, dispatch=void_leases(state.dispatch))
        return StartFrom(file=state.head.files[0], data=head_data) if state.head and state.head.files else _NOTHING
    if state.stage is not RecoveryStage.RAISING:
        lose_model(turn, f"{trainer.key.name} does not hold the model of world {state.number}")
    return None


def admit_first(turn: Turn) -> None:
    """The data set is recorded: one of the trainers that declared a model of their own holds it."""
    if not turn.state.has_own_model:
        return
    if turn.state.head:  # found in the folder, though the store had forgotten the job
        fence_all(turn, "start from the last checkpoint: register again")
        return
    for trainer in tuple(turn.state.members.registered()):
        if trainer.has_declared and turn.state.owner is None:
            try_admit(turn, trainer)


def release_model(turn: Turn, key: MemberKey) -> None:
    """The holder is gone: trainers that wait register again, and one of them starts from head."""
    if turn.state.owner == key:
        turn.change(owner=None)
        fence_all(turn, f"{key.name}, which held the model, is gone: register again")


def refuse_second_model(state: MasterState, key: MemberKey) -> Refused | None:
    """The refusal for any other trainer while the holder is here; None: it is accepted."""
    if not state.has_own_model or state.owner is None or state.owner == key:
        return None
    owner = state.members.trainers.get(state.owner.name)
    if owner is None or not owner.is_connected:
        return None
    return Refused(
        field="trainers",
        message=f"{owner.key.name} holds this job's model. own_model() is for jobs of one trainer: set "
        "spec.trainer.maxReplicas to 1, or keep the model on parameter servers (spec.parameterServer)",
    )
