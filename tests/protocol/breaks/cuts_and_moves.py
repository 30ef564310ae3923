"""Left out where cuts and skips meet buckets that move (rules 58 to 60)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.messages.from_members import CutRefusal
from master.api.messages.to_members import Hold
from master.api.positions import EMPTY, PositionSet
from master.job.commit import commit_protocol
from master.job.state.protocol_state import CommitPhase, SkipState
from tests.protocol.breaks.left_out import ONE, Break, always
from tests.protocol.explore import Limits
from tests.protocol.settings import Faults, Setting
from tests.protocol.steps import masters as master_steps
from tests.protocol.steps import servers as server_steps
from tests.protocol.steps.change import UNNEEDED, Change, Label
from trainer_sdk.pserver.core import bucket_moves, event_table, fork, pushes
from trainer_sdk.pserver.core.messages import PushVerdict
from trainer_sdk.pserver.core.server_events import NotifyMaster, SendCopy
from trainer_sdk.pserver.core.server_state import BucketGroup, CutPhase, ServerState, ServerStep, merge_groups
from trainer_sdk.pserver.core.staged import with_staged

_sent = bucket_moves._copy_order
_forked = fork._forked
_skip = event_table.handle_skip
_freeze = bucket_moves.handle_freeze
_hold = fork.handle_hold
_hold_expired = fork.handle_hold_timed_out
_of_servers = server_steps.of_servers
_take_over = master_steps.take_over
_mark = pushes._PushEvaluation._mark


def sent_without_skips(*args: Any, **parts: Any) -> SendCopy:
    return replace(_sent(*args, **parts), skipped=EMPTY)


def forks_what_is_here(state: ServerState, known: Any, data: PositionSet, now_s: float) -> ServerStep:
    everything = PositionSet.of(*(b for group in state.groups for b in group.buckets))
    return _forked(state, replace(known, listed=everything), data, now_s)


def forks_what_is_left(state: ServerState, known: Any, data: PositionSet) -> bool:
    return True


def fork_takes_what_the_frozen_lacks(evaluation: Any, group: BucketGroup, buckets: PositionSet) -> BucketGroup:
    if group.is_frozen and group.fork is not None and evaluation._positions <= group.fork.wanted:
        evaluation._add_ruling(buckets, PushVerdict.APPLIED)
        evaluation.both = evaluation.both | buckets
        marks = fork.mark_fork(group.fork, evaluation._positions)
        return replace(group, buckets=buckets, applied=group.applied | evaluation._positions, fork=marks)
    return _mark(evaluation, group, buckets)


def keeps_the_fork(state: ServerState, group: BucketGroup) -> Any:
    return state, ()


def frozen_skips_too(state: ServerState, event: Any) -> ServerStep:
    """What is frozen takes the SKIP, after it was handed over."""
    frozen = PositionSet.of(*(b for group in state.groups if group.is_frozen for b in group.buckets))
    thawed = merge_groups(replace(group, is_frozen=False) for group in state.groups)
    step = _skip(replace(state, groups=thawed), event)
    groups: list[BucketGroup] = []
    for group in step.state.groups:
        inside, outside = group.buckets & frozen, group.buckets - frozen
        groups += [
            replace(group, buckets=b, is_frozen=is_frozen) for b, is_frozen in ((inside, True), (outside, False)) if b
        ]
    return ServerStep(replace(step.state, groups=merge_groups(groups)), step.effects)


def staged_skips_too(state: ServerState, event: Any) -> ServerStep:
    step = _skip(state, event)
    after, skipped = step.state, EMPTY
    if state.lineage == event.lineage:
        for one in state.moves.staged:
            if event.positions.isdisjoint(one.applied):
                skipped |= PositionSet.of(one.bucket)
                moved = with_staged(after.moves, replace(one, skipped=one.skipped | event.positions))
                after = replace(after, moves=moved)
    answer, *others = step.effects
    said = replace(answer, message=replace(answer.message, skipped=answer.message.skipped | skipped))
    return ServerStep(after, (said, *others))


def freeze_refused_while_cut(state: ServerState, event: Any) -> ServerStep:
    is_open = state.cut is not None and state.cut.phase in (CutPhase.HELD, CutPhase.OPEN, CutPhase.SEALED)
    return ServerStep(state) if is_open else _freeze(state, event)


def hold_refused_while_moving(state: ServerState, event: Any, now_s: float) -> ServerStep:
    is_busy = bool(state.moves.staged) or state.active != state.buckets
    return fork._refuse(state, event.cut, CutRefusal.NOT_READY) if is_busy else _hold(state, event, now_s)


def held_again(state: ServerState, event: Any, now_s: float) -> ServerStep:
    is_gone = state.cut is not None and state.cut.cut == event.cut and state.cut.phase is CutPhase.GONE
    return _hold(replace(state, cut=None) if is_gone else state, event, now_s)


def let_go_untold(state: ServerState, event: Any) -> ServerStep:
    """Not the hole: what a server says when its hold is over is lost."""
    step = _hold_expired(state, event)
    return ServerStep(step.state, tuple(effect for effect in step.effects if not isinstance(effect, NotifyMaster)))


def hold_is_repeated(cast: Any, world: Any) -> Any:
    """Not the hole: a stream never repeats HOLD, but no rule may rest on that."""
    yield from _of_servers(cast, world)
    cut = cast.masters[world.leader].state.commit.cut
    for s, number in enumerate(world.servers):
        known = cast.servers[number].process.state.cut
        if known is not None and known.phase is CutPhase.GONE and known.cut == cut:
            again = Hold(cut=cut)
            yield Change(
                Label("{} reaches s{} once more", (again, s)),
                lambda d, s=s, again=again: d.server_takes(s, again),
                UNNEEDED,
            )


def taken_over_in_a_skip(draft: Any) -> None:
    """Not the hole: a smaller world, in which no master is deposed at another time."""
    assert draft.cast.masters[draft.leader].state.skip
    _take_over(draft)


BUSY: Final = (
    (bucket_moves, "handle_freeze", freeze_refused_while_cut),
    (fork, "handle_hold", hold_refused_while_moving),
)
"""Cuts and moves wait for each other (against 59)."""

SOON: Final = ((commit_protocol, "file_problem", lambda *_: ""),)
"""The master believes what a file says of its buckets."""

SKIPPING: Final = Setting(**ONE, quarantine_after=1, faults=Faults(move=1, raising=1))

HASTY: Final = Setting(**ONE, is_hasty=True, faults=Faults(move=1))

BREAKS: Final = (
    Break(
        name="fork-every",
        rule="58: CUT forks what was listed and nothing else",
        patches=((fork, "_forked", forks_what_is_here), *SOON),
        setting=replace(HASTY, buckets=2, moves_in=CommitPhase.HOLDING, faults=Faults(move=1, overtake=1)),
    ),
    Break(
        name="once-unchecked",
        rule="58: CUT only if all HELD name every bucket once",
        patches=((commit_protocol, "lists_exactly", always), *SOON),
        setting=Setting(trainers=1, positions=1, buckets=2, is_hasty=True, faults=Faults(move=1)),
    ),
    Break(
        name="freeze-keeps-fork",
        rule="59: FREEZE ends a fork that wants something of the bucket",
        patches=((bucket_moves, "_end_fork_that_wants", keeps_the_fork),),
        setting=replace(HASTY, positions=2, buckets=2, moves_in=CommitPhase.WRITING),
        limits=Limits(states=250_000, seconds=1800),
        is_long=True,
    ),
    Break(
        name="fork-after-freeze",
        rule="59: nor does a fork of a frozen copy take a push",
        patches=(
            (bucket_moves, "_end_fork_that_wants", keeps_the_fork),
            (pushes._PushEvaluation, "_mark", fork_takes_what_the_frozen_lacks),
        ),
        setting=replace(HASTY, positions=2, buckets=2, moves_in=CommitPhase.WRITING),
    ),
    Break(
        name="skip-on-frozen",
        rule="60: SKIP is taken by an active copy only",
        patches=((event_table, "handle_skip", frozen_skips_too),),
        setting=SKIPPING,
    ),
    Break(
        name="skip-on-staged",
        rule="60: SKIP is taken by an active copy only",
        patches=((event_table, "handle_skip", staged_skips_too),),
        setting=replace(SKIPPING, buckets=2, faults=Faults(move=1, raising=1, deadline=1)),
    ),
    Break(
        name="skipped-stay-behind",
        rule="60: skips go where marks go",
        patches=((bucket_moves, "_copy_order", sent_without_skips),),
        setting=SKIPPING,
    ),
    Break(
        name="cut-what-is-gone",
        rule="58: a listed bucket that is no longer here: GONE",
        patches=((fork, "_can_fork_all", forks_what_is_left), *SOON),
        setting=replace(HASTY, buckets=2, moves_in=CommitPhase.HOLDING),
    ),
    Break(
        name="skip-by-server",
        rule="60: every bucket is asked, whoever owns it",
        patches=((SkipState, "answered", property(lambda skip: PositionSet.span(0, 9 if skip.skipped else 0))),),
        setting=replace(SKIPPING, buckets=2),
    ),
    Break(
        name="literal",
        rule="58, 59: CUT forks what was listed, and moves do not wait for cuts",
        patches=(*BUSY, (fork, "_forked", forks_what_is_here), *SOON),
        setting=replace(HASTY, buckets=2, moves_in=CommitPhase.WRITING, faults=Faults(move=1, overtake=1)),
    ),
    Break(
        name="second-hold",
        rule="19: the id of a cut that was given up is never taken again",
        patches=(
            (fork, "handle_hold", held_again),
            (fork, "handle_hold_timed_out", let_go_untold),
            (server_steps, "of_servers", hold_is_repeated),
            *SOON,
        ),
        setting=replace(HASTY, buckets=2, moves_in=CommitPhase.HOLDING, faults=Faults(move=1, deadline=1)),
    ),
    Break(
        name="skips-once",
        rule="31, 60: a skip that some bucket has, seen in any HELD or file, is asked of all",
        patches=((commit_protocol, "finish_skip", lambda *_: False), (master_steps, "take_over", taken_over_in_a_skip)),
        setting=Setting(trainers=1, positions=1, quarantine_after=1, faults=Faults(raising=1, take_over=1, late=1)),
        limits=Limits(states=60_000, seconds=1800),
        is_long=True,
    ),
)
