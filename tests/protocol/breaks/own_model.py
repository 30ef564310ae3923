"""Left out of jobs whose trainer keeps the model itself (rules 33 to 35)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.positions import EMPTY
from master.job.commit import model_offers
from master.job.recovery import rollback, server_restore
from master.job.state import dispatch_state
from master.job.state.job_state import Turn
from master.job.trainers import model_holder
from tests.protocol.breaks.cuts import recorded_as_acked
from tests.protocol.breaks.left_out import Break
from tests.protocol.settings import Faults, Setting
from trainer_sdk.protocol import leasing
from trainer_sdk.protocol import transitions as protocol_core

_offer_problem = model_offers._offer_problem
_void = dispatch_state.void_leases
_take = leasing.handle_granted
_StartFrom = model_holder.StartFrom


def older_than_head_is_welcome(turn: Turn, sender: Any, said: Any) -> str:
    problem = _offer_problem(turn, sender, said)
    return "" if problem.startswith("it lacks") else problem


def acks_stay(books: Any) -> Any:
    after = _void(books)
    return replace(after, done=books.done, todo=after.todo - books.done)


def started_from_nothing(**_: Any) -> Any:
    return model_holder._NOTHING


def started_without_marks(file: Any = None, data: Any = None) -> Any:
    return _StartFrom(file=file, data=EMPTY)


def done_again(state: Any, message: Any) -> Any:
    return _take(replace(state, applied=EMPTY), message).__class__(
        replace(_take(replace(state, applied=EMPTY), message).state, applied=state.applied),
        _take(replace(state, applied=EMPTY), message).effects,
    )


ALONE: Final = Setting(servers=0, trainers=1, own_model=True, faults=Faults(trainer_crash=1))

BREAKS: Final = (
    Break(
        name="data-from-acks",
        rule="35: the data state is the model's own marks",
        patches=((model_offers, "record_manifest", recorded_as_acked),),
        setting=ALONE,
    ),
    Break(
        name="acks-survive",
        rule="34: no ack outlives the replica",
        patches=tuple(
            (where, "void_leases", acks_stay) for where in (dispatch_state, rollback, server_restore, model_holder)
        ),
        setting=ALONE,
    ),
    Break(
        name="head-not-considered",
        rule="34: the model starts from head at least",
        patches=((model_holder, "StartFrom", started_from_nothing),),
        setting=ALONE,
    ),
    Break(
        name="head-back",
        rule="35: a file must contain head's data",
        patches=(
            (model_holder, "StartFrom", started_from_nothing),
            (model_offers, "_offer_problem", older_than_head_is_welcome),
        ),
        setting=ALONE,
    ),
    Break(
        name="join-without-marks",
        rule="34: model and marks come together",
        patches=((model_holder, "StartFrom", started_without_marks),),
        setting=ALONE,
    ),
    Break(
        name="no-dedupe",
        rule="33: only what the model has not marked is trained",
        patches=(
            (leasing, "handle_granted", done_again),
            (protocol_core.leasing, "handle_granted", done_again),
            (model_holder, "mark_done", lambda books, _: books),
        ),
        setting=replace(ALONE, faults=Faults(take_over=1)),
    ),
)
