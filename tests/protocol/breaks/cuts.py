"""Left out of the commit: HOLD, CUT, the fork, and what the files say (rules 19 to 22, 26)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from master.api.messages.from_members import Written
from master.api.positions import EMPTY, PositionSet
from master.job.commit import commit_protocol
from master.job.recovery import model_recovery, rollback
from master.job.servers import server_handlers
from master.job.state.job_state import Turn
from tests.protocol import servers as shell
from tests.protocol.breaks.left_out import Break
from tests.protocol.explore import Limits
from tests.protocol.settings import Faults, Setting
from trainer_sdk.pserver.core import event_table, fork, pushes, server_events
from trainer_sdk.pserver.core import messages as server_messages
from trainer_sdk.pserver.core.server_events import DropFork
from trainer_sdk.pserver.core.server_state import CutPhase, fork_marks

_verdict_of = pushes.verdict_of
_mark = pushes._PushEvaluation._mark
_hold = fork.handle_hold
_record = commit_protocol.record_manifest
_compare = commit_protocol.compare_marks
_lose_model = rollback.lose_model
_marks = model_recovery.handle_marks
_restore = event_table.handle_restore
_loaded = shell._loaded


def applied_while_held(group: Any, positions: PositionSet, *, is_holding: bool) -> Any:
    return _verdict_of(group, positions, is_holding=False)


def wanted_goes_to_live_alone(evaluation: Any, group: Any, buckets: PositionSet) -> Any:
    return replace(_mark(evaluation, replace(group, fork=None), buckets), fork=group.fork)


def others_go_to_the_fork_too(evaluation: Any, group: Any, buckets: PositionSet) -> Any:
    before = evaluation.live
    after = _mark(evaluation, group, buckets)
    if group.fork is not None and evaluation.live != before:
        evaluation.live, evaluation.both = before, evaluation.both | buckets
    return after


def never_split(group: Any, positions: PositionSet, *, is_holding: bool) -> Any:
    verdict, named = _verdict_of(group, positions, is_holding=is_holding)
    if verdict is server_messages.PushVerdict.SPLIT:
        return server_messages.PushVerdict.APPLIED, EMPTY
    return verdict, named


def straddling_goes_to_live_alone(evaluation: Any, group: Any, buckets: PositionSet) -> Any:
    inside = group.fork.wanted & evaluation._positions if group.fork else EMPTY
    if inside and inside != evaluation._positions:
        return wanted_goes_to_live_alone(evaluation, group, buckets)
    return _mark(evaluation, group, buckets)


def copied_at_hold(state: Any, event: Any, now_s: float) -> Any:
    step = _hold(state, event, now_s)
    if step.state.cut is None or step.state.cut.phase is not CutPhase.HELD or step.state is state:
        return step
    groups = tuple(fork._forked_group(group, group.applied) for group in step.state.groups)
    sealed = replace(step.state, groups=groups, cut=replace(step.state.cut, phase=CutPhase.SEALED, deadline_s=None))
    writes = (
        server_events.OpenFork(cut=event.cut, buckets=step.state.active),
        server_events.WriteFork(cut=event.cut, marks=fork_marks(groups)),
    )
    return replace(step, state=sealed, effects=(*step.effects, *writes))


def hold_of_any_lineage(state: Any, event: Any, now_s: float) -> Any:
    if not state.is_ready or event.cut.lineage == state.lineage:
        return _hold(state, event, now_s)
    step = _hold(replace(state, lineage=event.cut.lineage), event, now_s)
    return replace(step, state=replace(step.state, lineage=state.lineage))


def recorded_as_acked(turn: Turn, **parts: Any) -> None:
    books = turn.state.dispatch
    _record(turn, **{**parts, "data": books.committed | books.done})


def compared_as_equal(marks: Any) -> Any:
    return replace(_compare(marks), are_equal=True)


def union_taken_for_common(marks: Any) -> Any:
    found = _compare(marks)
    return replace(found, everywhere=found.anywhere, settled=found.anywhere)


def common_taken_for_union(marks: Any) -> Any:
    found = _compare(marks)
    return replace(found, anywhere=found.everywhere, are_equal=True)


def commit_goes_on(turn: Turn, problem: str, **why: bool) -> None:
    with patch.object(rollback, "give_up", lambda *_: None):
        _lose_model(turn, problem, **why)


def marks_not_asked(turn: Turn, server: Any, said: Any) -> None:
    with patch.object(model_recovery, "mark_done", lambda books, _: books):
        _marks(turn, server, said)


def restored_beside_its_fork(state: Any, event: Any) -> Any:
    step = _restore(state, event)
    is_taken = step.state.newest_restore != state.newest_restore
    kept = replace(step.state, cut=state.cut) if is_taken else step.state
    return replace(step, state=kept, effects=tuple(e for e in step.effects if not isinstance(e, DropFork)))


def loaded_beside_its_fork(process: Any, restore: Any, positions: int) -> Any:
    return replace(_loaded(process, restore, positions), fork=process.fork, file_to_write=process.file_to_write)


def written_once_restored(turn: Turn, server: Any, said: Any) -> None:
    """Not the hole: a smaller world, in which files of servers that RESTORE has not reached are late."""
    if server.lineage == turn.state.number:
        commit_protocol.handle_written(turn, server, said)


CRASH: Final = Faults(server_crash=1)

SMALL: Final = Setting()

BREAKS: Final = (
    Break(
        name="copy-at-once",
        rule="19, 20: the fork is taken at CUT, when D is known",
        patches=((fork, "handle_hold", copied_at_hold), (commit_protocol, "compare_marks", compared_as_equal)),
        setting=SMALL,
    ),
    Break(
        name="commit-from-acks",
        rule="22: the data state is what the files say",
        patches=((commit_protocol, "record_manifest", recorded_as_acked),),
        setting=Setting(faults=Faults(loss=1)),
    ),
    Break(
        name="rebuild-from-trainers",
        rule="17, 22: a new master asks the servers for their marks; files say the data state",
        patches=(
            (commit_protocol, "record_manifest", recorded_as_acked),
            (model_recovery, "handle_marks", marks_not_asked),
        ),
        setting=Setting(trainers=1, faults=Faults(take_over=1)),
    ),
    Break(
        name="want-intersection",
        rule="20: D is the union of the marks",
        patches=(
            (commit_protocol, "compare_marks", common_taken_for_union),
            (fork, "_can_fork", lambda group, data: True),
        ),
        setting=SMALL,
    ),
    Break(
        name="no-hold",
        rule="19, 20: no push between HELD and CUT, and marks inside D",
        patches=(
            (pushes, "verdict_of", applied_while_held),
            (fork, "_can_fork", lambda group, data: True),
            (commit_protocol, "compare_marks", compared_as_equal),
        ),
        setting=SMALL,
    ),
    Break(
        name="wanted-live-only",
        rule="21: wanted positions go to the fork too",
        patches=((pushes._PushEvaluation, "_mark", wanted_goes_to_live_alone),),
        setting=SMALL,
    ),
    Break(
        name="shared-parameters",
        rule="21: other positions go to the live bucket alone",
        patches=((pushes._PushEvaluation, "_mark", others_go_to_the_fork_too),),
        setting=SMALL,
    ),
    Break(
        name="straddle-live-only",
        rule="21: SPLIT",
        patches=((pushes, "verdict_of", never_split), (pushes._PushEvaluation, "_mark", straddling_goes_to_live_alone)),
        setting=Setting(positions=3, batches=(1, 2), faults=Faults(trainer_crash=1)),
        limits=Limits(states=200_000, seconds=1800),
        is_long=True,
    ),
    Break(
        name="done-from-union",
        rule="20: D is no ground for DONE",
        patches=((commit_protocol, "compare_marks", union_taken_for_common),),
        setting=Setting(trainers=1, faults=Faults(trainer_crash=1, loss=1)),
    ),
    Break(
        name="hold-any-lineage",
        rule="19, 26: HOLD of the current lineage only; a roll-back aborts the commit",
        patches=(
            (fork, "handle_hold", hold_of_any_lineage),
            (rollback, "lose_model", commit_goes_on),
            (commit_protocol, "lose_model", commit_goes_on),
        ),
        setting=Setting(positions=1, trainers=1, faults=CRASH),
    ),
    Break(
        name="commit-survives-rollback",
        rule="26: a roll-back aborts the commit",
        patches=((rollback, "lose_model", commit_goes_on), (commit_protocol, "lose_model", commit_goes_on)),
        setting=Setting(positions=1, trainers=1, faults=CRASH),
    ),
    Break(
        name="restore-keeps-fork",
        rule="21, 26: RESTORE ends a fork, a roll-back the commit",
        patches=(
            (event_table, "handle_restore", restored_beside_its_fork),
            (shell, "_loaded", loaded_beside_its_fork),
            (rollback, "lose_model", commit_goes_on),
            (commit_protocol, "lose_model", commit_goes_on),
            (commit_protocol, "file_problem", lambda *_: ""),
            (server_handlers, "HANDLERS", {**server_handlers.HANDLERS, Written: written_once_restored}),
        ),
        setting=Setting(positions=1, trainers=1, faults=CRASH),
    ),
)
