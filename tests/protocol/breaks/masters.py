"""Left out of masters: the lineage, take-over, adoption, quarantine, END (rules 17, 18, 24, 26, 31, 32)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from master.api.positions import EMPTY, PositionSet
from master.job.dispatch import skip_agreement
from master.job.domain.durable_records import RaiseLineage, SwapHead
from master.job.recovery import model_recovery, rollback
from master.job.state import dispatch_state
from master.job.state.job_state import MasterState, Turn
from master.job.trainers import job_spec
from tests.protocol import masters
from tests.protocol.breaks.left_out import Break
from tests.protocol.settings import Faults, Setting

_opened = dispatch_state.open_dispatch
_raise = rollback.raise_lineage
_skip_answer = skip_agreement.handle_answer
_skip_begin = skip_agreement.begin_skip_round
_write = Turn.write


def below_high_water_is_done(books: Any, **parts: Any) -> Any:
    after = _opened(books, **parts)
    return replace(after, todo=after.todo - PositionSet.span(0, parts["high_water"]))


def raised_to_the_same(turn: Turn) -> None:
    before = len(turn.effects)
    _raise(turn)
    old = turn.state.lineage
    for place, effect in enumerate(turn.effects[before:], before):
        write = getattr(effect, "write", None)
        if isinstance(write, RaiseLineage) and old is not None:
            new = replace(write.new, number=old.number)
            route = replace(write.route, lineage=old.number) if write.route else None
            same = replace(write, new=new, route=route)
            turn.effects[place] = replace(effect, write=same)
            turn.change(writing=same)


def quarantined_unasked(turn: Turn, positions: PositionSet) -> None:
    asking = patch.object(skip_agreement, "resend_skip", lambda *_: None)
    with asking:
        _skip_begin(turn, positions)
    skip_agreement._record(turn)


def torn_skip_recorded(turn: Turn, server: Any, said: Any) -> bool:
    if _skip_answer(turn, server, said):
        turn.recover(quarantine=EMPTY)
        skip_agreement._record(turn)
    return False


def adopted_whatever(turn: Turn, found: Any) -> bool:
    return True


def swapped_from_any_parent(turn: Turn, write: Any) -> None:
    if isinstance(write, SwapHead):
        write = replace(write, parent=turn.state.head_id)
    _write(turn, write)


def everything_may_be_adopted(storage: Any, search: Any) -> Any:
    return storage


ONE: Final = {"trainers": 1, "servers": 1, "buckets": 1}

CRASH: Final = Faults(server_crash=1)

SMALL: Final = Setting()

BREAKS: Final = (
    Break(
        name="same-generation-restore",
        rule="26: lineage + 1 at each loss",
        patches=((rollback, "raise_lineage", raised_to_the_same),),
        setting=Setting(trainers=1, faults=CRASH),
    ),
    Break(
        name="adopt-any-generation",
        rule="24: adoption of the current lineage only",
        patches=(
            (model_recovery, "_is_adoptable", adopted_whatever),
            (masters, "adoptable", everything_may_be_adopted),
        ),
        setting=Setting(**ONE, positions=1, keeps_orphans=True, faults=Faults(server_crash=1, take_over=1)),
    ),
    Break(
        name="adopt-any-parent",
        rule="24: adoption only when parent = head",
        patches=(
            (model_recovery, "_is_adoptable", adopted_whatever),
            (masters, "adoptable", everything_may_be_adopted),
            (Turn, "write", swapped_from_any_parent),
        ),
        setting=Setting(**ONE, keeps_orphans=True, faults=Faults(take_over=2)),
    ),
    Break(
        name="hwm-skip",
        rule="18: the high-water mark skips nothing",
        patches=(
            (dispatch_state, "open_dispatch", below_high_water_is_done),
            (job_spec, "open_dispatch", below_high_water_is_done),
        ),
        setting=Setting(**ONE, faults=Faults(take_over=1)),
    ),
    Break(
        name="end-before-commit",
        rule="32: END only when head covers everything",
        patches=((MasterState, "is_complete", property(lambda state: state.dispatch.is_exhausted)),),
        setting=SMALL,
    ),
    Break(
        name="quarantine-unmarked",
        rule="31: every bucket is asked to SKIP",
        patches=((skip_agreement, "begin_skip_round", quarantined_unasked),),
        setting=Setting(**ONE, quarantine_after=1, faults=Faults(raising=1)),
    ),
    Break(
        name="quarantine-torn",
        rule="31: a skip that some had applied is rolled back",
        patches=((skip_agreement, "handle_answer", torn_skip_recorded),),
        setting=Setting(trainers=1, quarantine_after=1, faults=Faults(raising=1)),
    ),
)
