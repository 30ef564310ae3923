"""Left out of commits, restores, skips and the end (rules 84 to 96)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.group_shares import data_of
from master.group import commits, ending, generations, plans, reports
from master.group.group_state import GroupState
from master.job.domain.effects import WriteManifest
from tests.protocol.group.breaks.left_out import Found, GroupBreak, always, forking, never, small
from tests.protocol.group.breaks.of_generations import MANY_MASTERS
from trainer_sdk.group.core import script_work, steps, sync
from trainer_sdk.group.core.control_words import SyncEntry, record_digest
from trainer_sdk.group.core.member_events import FinishScript
from trainer_sdk.group.core.member_state import MemberPhase, MemberState
from trainer_sdk.group.port import GroupFinish
from trainer_sdk.protocol.trainer_events import FinishReason

_problem, _record = commits._problem, commits._record
_has_trouble = generations.has_trouble
_expected_share, _next_work = steps.expected_share, script_work.next_work


def _refused_but_for(reason: str) -> Any:
    def problem(state: GroupState, said: Any) -> str:
        text = _problem(state, said)
        return "" if text.startswith(reason) else text

    return problem


def _manifest_of(change: Any) -> Any:
    """In place of `_record`: the manifest says what `change` makes of it."""

    def record(turn: Any) -> None:
        _record(turn)
        for place, effect in enumerate(turn.effects):
            if isinstance(effect, WriteManifest):
                manifest = change(turn.state, effect.manifest)
                turn.effects[place] = WriteManifest(manifest=manifest)
                turn.change(commit=replace(turn.state.commit, manifest=manifest))

    return record


def shard_of_step(commit: Any, said: Any) -> bool:
    return commit.state is not None and (commit.state.step, commit.shards) == (said.state.step, said.shards)


def no_problem(*_: Any) -> str:
    return ""


def position_from_books(state: GroupState, manifest: Any) -> Any:
    return replace(manifest, step=state.newest, data=data_of(manifest.dataset, state.newest) - manifest.quarantine)


def skips_from_books(state: GroupState, manifest: Any) -> Any:
    done = data_of(manifest.dataset, manifest.step)
    return replace(manifest, data=done - state.lineage.quarantine, quarantine=done & state.lineage.quarantine)


def skipped_as_soon_as_heard(state: Any, step: int) -> Any:
    if state.record and state.offered:
        state = replace(state, record=replace(state.record, quarantine=state.offered.quarantine))
    return _expected_share(state, step)


def entered_with_any_lineage(state: MemberState) -> SyncEntry:
    digest = record_digest(state.record, state.layout)
    return SyncEntry(digest=digest, state=state.state, skipped=state.skipped, is_fresh=state.is_fresh)


def troubled_by_members_alone(state: GroupState) -> bool:
    if state.current is None:
        return False
    return _has_trouble(replace(state, lineage=replace(state.lineage, number=state.current.lineage)))


def left_at_the_end(state: MemberState) -> Any:
    if state.ended is None and state.phase is MemberPhase.BOUNDARY and state.is_all_done and state.copy is None:
        return FinishScript(finish=GroupFinish(reason=FinishReason.DRAINED))
    return _next_work(state)


BREAKS: Final = (
    GroupBreak(
        name="commit-any-generation",
        rule="87: the stamp is the record's generation or its `from`",
        patches=((commits, "is_current", always),),
        setting=forking(steps=1),
        found=Found.FORK,
        states=100_000,
        is_long=True,
    ),
    GroupBreak(
        name="commit-any-step",
        rule="87: the head's step is smaller",
        patches=((commits, "_problem", _refused_but_for("it is of step")),),
        setting=small(drain=1),
        found=Found.FORK,
    ),
    GroupBreak(
        name="shards-by-step + commit-any-generation",
        rule="87, 88: the stamp is the record's generation or its `from`, and all shards are of one id",
        patches=(
            (commits, "is_current", always),
            (commits, "_is_of", shard_of_step),
            (commits, "_problem_of_shard", no_problem),
        ),
        setting=small(steps=1, start=3, batch=3, shards=2, kill=1),
        found=Found.CONTENT,
        states=100_000,
        is_long=True,
    ),
    GroupBreak(
        name="compare-outside",
        rule="87: record and leader are compared in the transaction",
        patches=MANY_MASTERS,
        setting=small(steps=1, start=1, fresh=1, kill=1, take_over=1),
        found=Found.FORK,
        states=100_000,
        is_long=True,
    ),
    GroupBreak(
        name="position-from-books",
        rule="90: the data position is the file's",
        patches=((commits, "_record", _manifest_of(position_from_books)),),
        setting=small(wished=True),
        found=Found.CONTENT,
    ),
    GroupBreak(
        name="skip-from-books",
        rule="90, 94: what is skipped is what the file skips",
        patches=((commits, "_record", _manifest_of(skips_from_books)),),
        setting=small(skip=1),
        found=Found.CONTENT,
    ),
    GroupBreak(
        name="sync-any-lineage",
        rule="93: states of an older lineage are nothing",
        patches=((sync, "entry_of", entered_with_any_lineage), (script_work, "entry_of", entered_with_any_lineage)),
        setting=small(restore=1, wished=True, has_head=True),
        found=Found.GIVEN_UP,
    ),
    GroupBreak(
        name="commit-any-lineage",
        rule="93: copies of an older lineage are refused",
        patches=((commits, "_problem", _refused_but_for("it is of lineage")),),
        setting=small(restore=1, wished=True, has_head=True),
        found=Found.GIVEN_UP,
    ),
    GroupBreak(
        name="plan-after-restore",
        rule="93: BROKEN follows a restore, and no plan",
        patches=tuple((module, "has_trouble", troubled_by_members_alone) for module in (generations, plans, reports)),
        setting=small(restore=1, wished=True, has_head=True, start=1),
        found=Found.STUCK,
        states=1_000,
    ),
    GroupBreak(
        name="skip-at-once",
        rule="94: a skip holds from the next record on",
        patches=((steps, "expected_share", skipped_as_soon_as_heard),),
        setting=small(skip=1),
        found=Found.CONTENT,
    ),
    GroupBreak(
        name="leave-at-end",
        rule="95: the last step is not the end",
        patches=((script_work, "next_work", left_at_the_end),),
        setting=small(),
        found=Found.DISTURBED,
    ),
    GroupBreak(
        name="end-on-report",
        rule="96: END once head holds the last step",
        patches=((GroupState, "is_complete", property(lambda state: 0 < state.steps == state.newest)),),
        setting=small(),
        found=Found.END,
    ),
    GroupBreak(
        name="end-before-hook",
        rule="96: END once the final hook has run",
        patches=((ending, "owes_final_save", never),),
        setting=small(has_hook=True),
        found=Found.END,
    ),
)
