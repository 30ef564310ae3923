"""Rules left out of the real cores, one at a time: each must be found, or the checker proves nothing.

A break is a patch that replaces one decision of a core while a model of it is explored; the product has no switch for
any.  The names are those of the holes that the protocol's reference models list.  The cores' own checks are off and
marks are not compared with ledgers before a checkpoint: what finds a break is I1 to I4, or that END is out of reach.

Holes of those models that have no place here: those of the older commit in which trainers flush (`resume-early`,
`wait-for-dead`, `wait-for-drained`, `zombie-push`), of copies and windows that this commit does not have
(`second-copy`, `window-both`), and of replicas in a group (`own-models`, `no-sync`).  Tried and not found, because
something else stands in front: `mixed-pull` (no grant before all servers serve), `repeated-restore`, `second-hold` and
`cut-unchecked` (a stream keeps its order and a member has one), `ack-early` and `stale-ack` (a cut forgets what it does
not see), `commit-old-world` (only the owner is heard).  `shared-marks` and
`straddle-marked` need larger jobs than were explored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest.mock import patch

from master.api.positions import EMPTY, PositionSet
from master.job import cuts, dispatch, ownership, recovery, skipping
from master.job.domain import RaiseLineage, SwapHead
from master.job.state import JobState, Turn
from tests.protocol import masters
from tests.protocol.explore import Limits, Report, Verdict
from tests.protocol.haste import explore_job
from tests.protocol.world import Faults, Setting
from trainer_sdk.protocol import batches, leases
from trainer_sdk.protocol import core as protocol_core
from trainer_sdk.protocol import values as said_by_trainers
from trainer_sdk.pserver import bucket, fork, restoring
from trainer_sdk.pserver import messages as server_messages
from trainer_sdk.pserver.state import Phase as CutPhase
from trainer_sdk.pserver.state import fork_marks

Patches = tuple[tuple[object, str, object], ...]


@dataclass(frozen=True, kw_only=True)
class Break:
    """`rule`: what is left out.  `patches`: (module or class, name, replacement)."""

    name: str
    rule: str
    patches: Patches
    setting: Setting
    limits: Limits = field(default_factory=lambda: Limits(states=150_000, seconds=600))
    has_commits: bool = True  # False: none is ever begun, a smaller world, in which only a violation counts
    is_long: bool = False  # minutes: for `python -m tests.protocol --breaks`, not for every test run

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            never = () if self.has_commits else ((cuts, "advance", lambda turn: None),)
            for where, name, replacement in (*never, *self.patches):
                stack.enter_context(patch.object(where, name, replacement))
            yield

    def explore(self) -> Report:
        setting = replace(self.setting, is_pruned=False, is_strict=False)
        with self.applied():
            report = explore_job(setting, self.limits)
        is_over = self.has_commits or report.verdict is not Verdict.STUCK  # without commits no job comes to its END
        return report if is_over else replace(report, verdict=Verdict.CUT_OFF)


def is_found(report: Report) -> bool:
    return report.verdict in (Verdict.VIOLATED, Verdict.STUCK)


# ---- parameter servers -------------------------------------------------------------------------------------------

_push, _judge = bucket.push, bucket.judge
_judge_group = bucket._Judged._judge
_marked, _hold, _cut, _file_written = fork.marked, fork.hold, fork.cut, fork.file_written
_group = restoring._group
Judged = Any


def any_lineage(state: Any, event: Any) -> Any:
    return _push(state, replace(event, lineage=state.lineage))


def first_position_decides(group: Any, positions: PositionSet, *, is_holding: bool) -> Any:
    if positions and positions.first(1) <= group.applied:
        return server_messages.Verdict.REPEAT, EMPTY
    return _judge(replace(group, applied=EMPTY), positions, is_holding=is_holding)


def all_below_is_applied(judged: Judged, group: Any, buckets: PositionSet) -> Any:
    after = _judge_group(judged, group, buckets)
    top = max((b for b in after.applied.bounds), default=0)
    return replace(after, applied=PositionSet.span(0, top))


def applied_while_held(group: Any, positions: PositionSet, *, is_holding: bool) -> Any:
    return _judge(group, positions, is_holding=False)


def wanted_goes_to_live_alone(judged: Judged, group: Any, buckets: PositionSet) -> Any:
    return replace(_judge_group(judged, replace(group, fork=None), buckets), fork=group.fork)


def others_go_to_the_fork_too(judged: Judged, group: Any, buckets: PositionSet) -> Any:
    before = judged.live
    after = _judge_group(judged, group, buckets)
    if group.fork is not None and judged.live != before:
        judged.live, judged.both = before, judged.both | buckets
    return after


def never_split(group: Any, positions: PositionSet, *, is_holding: bool) -> Any:
    verdict, named = _judge(group, positions, is_holding=is_holding)
    if verdict is server_messages.Verdict.SPLIT:
        return server_messages.Verdict.APPLIED, EMPTY
    return verdict, named


def straddling_goes_to_live_alone(judged: Judged, group: Any, buckets: PositionSet) -> Any:
    inside = group.fork.wanted & judged._positions if group.fork else EMPTY
    if inside and inside != judged._positions:
        return wanted_goes_to_live_alone(judged, group, buckets)
    return _judge_group(judged, group, buckets)


def copied_at_hold(state: Any, event: Any, now_s: float) -> Any:
    step = _hold(state, event, now_s)
    if step.state.cut is None or step.state.cut.phase is not CutPhase.HELD or step.state is state:
        return step
    groups = tuple(fork._forked_group(group, group.applied) for group in step.state.groups)
    sealed = replace(step.state, groups=groups, cut=replace(step.state.cut, phase=CutPhase.SEALED, deadline_s=None))
    writes = (
        server_messages.OpenFork(cut=event.cut, buckets=step.state.active),
        server_messages.WriteFork(cut=event.cut, marks=fork_marks(groups)),
    )
    return replace(step, state=sealed, effects=(*step.effects, *writes))


def hold_of_any_lineage(state: Any, event: Any, now_s: float) -> Any:
    if not state.is_ready or event.cut.lineage == state.lineage:
        return _hold(state, event, now_s)
    step = _hold(replace(state, lineage=event.cut.lineage), event, now_s)
    return replace(step, state=replace(step.state, lineage=state.lineage))


def marks_dropped_once_written(state: Any, event: Any) -> Any:
    step = _file_written(state, event)
    if step.state is state:
        return step
    written = EMPTY
    for marks in event.file.marks:
        written |= marks.applied
    groups = tuple(replace(group, applied=group.applied - written) for group in step.state.groups)
    return replace(step, state=replace(step.state, groups=groups))


def restored_without_marks(order: Any, buckets: PositionSet, applied: PositionSet, skipped: PositionSet) -> Any:
    return _group(order, buckets, EMPTY, skipped)


# ---- trainers ----------------------------------------------------------------------------------------------------

_trainer_push = batches.push


def pushed_under_the_newest_lineage(state: Any, number: int) -> Any:
    return _trainer_push(replace(state, pulled=state.lineage), number)


def nothing_forgotten_but_leases(state: Any) -> Any:
    discards = tuple(said_by_trainers.Discard(flight=f.number) for f in state.flights)
    return replace(state, holdings=(), parts=(), flights=(), is_asking=False), discards


def pushed_where_it_touches(state: Any, number: int) -> Any:
    """Position p touches bucket 0 always, bucket 1 only when p is odd."""
    flight = batches._find(state, number)
    if flight is not None and not flight.buckets and all(p % 2 == 0 for p in flight.positions):
        state = batches._with(state, replace(flight, buckets=PositionSet.of(0)))
    return _trainer_push(state, number)


# ---- the master --------------------------------------------------------------------------------------------------

_record, _compare, _held_handler = cuts._record, cuts.compare, cuts.handle_held
_ack, _opened, _raise = dispatch.ack, dispatch.opened, recovery.raise_lineage
_lose_model, _skip_answer, _skip_begin = recovery.lose_model, skipping.handle_answer, skipping.begin
_marks, _is_complete = recovery.handle_marks, JobState.is_complete


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


def commit_goes_on(turn: Turn, problem: str) -> None:
    with patch.object(recovery, "give_up", lambda *_: None):
        _lose_model(turn, problem)


def marks_not_asked(turn: Turn, server: Any, said: Any) -> None:
    with patch.object(recovery, "gain", lambda books, _: books):
        _marks(turn, server, said)


def quarantined_unasked(turn: Turn, positions: PositionSet) -> None:
    asking = patch.object(skipping, "ask_again", lambda *_: None)
    with asking:
        _skip_begin(turn, positions)
    skipping._record(turn)


def torn_skip_recorded(turn: Turn, server: Any, said: Any) -> bool:
    if _skip_answer(turn, server, said):
        turn.recover(quarantine=EMPTY)
        skipping._record(turn)
    return False


def adopted_whatever(turn: Turn, found: Any) -> bool:
    return True


def swapped_from_any_parent(turn: Turn, write: Any) -> None:
    if isinstance(write, SwapHead):
        write = replace(write, parent=turn.state.head_id)
    Turn_write(turn, write)


Turn_write = Turn.write


def everything_may_be_adopted(storage: Any, search: Any) -> Any:
    return storage


# ---- jobs without servers ----------------------------------------------------------------------------------------

_offer_problem, _void, _take, _forget = cuts._offer_problem, dispatch.void, leases.take, dispatch.forget


def older_than_head_is_welcome(turn: Turn, sender: Any, said: Any) -> str:
    problem = _offer_problem(turn, sender, said)
    return "" if problem.startswith("it lacks") else problem


def acks_stay(books: Any) -> Any:
    after = _void(books)
    return replace(after, done=books.done, todo=after.todo - books.done)


def started_from_nothing(**_: Any) -> Any:
    return ownership._NOTHING


def started_without_marks(file: Any = None, data: Any = None) -> Any:
    return _StartFrom(file=file, data=EMPTY)


_StartFrom = ownership.StartFrom


def done_again(state: Any, message: Any) -> Any:
    return _take(replace(state, applied=EMPTY), message).__class__(
        replace(_take(replace(state, applied=EMPTY), message).state, applied=state.applied),
        _take(replace(state, applied=EMPTY), message).effects,
    )


ALONE: Final = Setting(servers=0, trainers=1, own_model=True, faults=Faults(trainer_crash=1))

ONE: Final = {"trainers": 1, "servers": 1, "buckets": 1}
CRASH: Final = Faults(server_crash=1)
SMALL: Final = Setting()

BREAKS: Final = (
    Break(
        name="no-generation",
        rule="6: a push of another lineage is STALE_LINEAGE",
        patches=((bucket, "push", any_lineage),),
        setting=Setting(faults=CRASH),
    ),
    Break(
        name="retry-across-rollback",
        rule="9: a push carries the lineage of its pull",
        patches=(
            (batches, "push", pushed_under_the_newest_lineage),
            (leases, "_drop_all", nothing_forgotten_but_leases),
        ),
        setting=Setting(is_slow=True, trainers=1, faults=CRASH),
    ),
    Break(
        name="batch-identity",
        rule="1: work is named by positions, not by the first of them",
        patches=((bucket, "judge", first_position_decides),),
        setting=Setting(servers=1, buckets=1, batches=(2, 1), pipeline=2, faults=Faults(pause=1)),
    ),
    Break(
        name="high-water",
        rule="8: a set, never one number",
        patches=((bucket._Judged, "_judge", all_below_is_applied),),
        setting=Setting(trainers=1, pipeline=2),
    ),
    Break(
        name="forget-closed",
        rule="8: marks are kept",
        patches=((fork, "file_written", marks_dropped_once_written),),
        setting=Setting(),
    ),
    Break(
        name="sparse-silent",
        rule="7: every batch goes to every bucket",
        patches=((batches, "push", pushed_where_it_touches),),
        setting=Setting(trainers=1),
    ),
    Break(
        name="marks-not-restored",
        rule="27: marks come from the base",
        patches=((restoring, "_group", restored_without_marks),),
        setting=Setting(**ONE, faults=CRASH),
    ),
    Break(
        name="same-generation-restore",
        rule="26: lineage + 1 at each loss",
        patches=((recovery, "raise_lineage", raised_to_the_same),),
        setting=Setting(trainers=1, faults=CRASH),
    ),
    Break(
        name="copy-at-once",
        rule="19, 20: the fork is taken at CUT, when D is known",
        patches=((fork, "hold", copied_at_hold), (cuts, "compare", compared_as_equal)),
        setting=SMALL,
    ),
    Break(
        name="commit-from-acks",
        rule="22: the data state is what the files say",
        patches=((cuts, "_record", recorded_as_acked),),
        setting=Setting(faults=Faults(loss=1)),
    ),
    Break(
        name="rebuild-from-trainers",
        rule="17, 22: a new master asks the servers for their marks; files say the data state",
        patches=((cuts, "_record", recorded_as_acked), (recovery, "handle_marks", marks_not_asked)),
        setting=Setting(trainers=1, faults=Faults(take_over=1)),
    ),
    Break(
        name="want-intersection",
        rule="20: D is the union of the marks",
        patches=((cuts, "compare", common_taken_for_union), (fork, "_can_fork", lambda group, data: True)),
        setting=SMALL,
    ),
    Break(
        name="no-hold",
        rule="19, 20: no push between HELD and CUT, and marks inside D",
        patches=(
            (bucket, "judge", applied_while_held),
            (fork, "_can_fork", lambda group, data: True),
            (cuts, "compare", compared_as_equal),
        ),
        setting=SMALL,
    ),
    Break(
        name="wanted-live-only",
        rule="21: wanted positions go to the fork too",
        patches=((bucket._Judged, "_judge", wanted_goes_to_live_alone),),
        setting=SMALL,
    ),
    Break(
        name="shared-parameters",
        rule="21: other positions go to the live bucket alone",
        patches=((bucket._Judged, "_judge", others_go_to_the_fork_too),),
        setting=SMALL,
    ),
    Break(
        name="straddle-live-only",
        rule="21: SPLIT",
        patches=((bucket, "judge", never_split), (bucket._Judged, "_judge", straddling_goes_to_live_alone)),
        setting=Setting(positions=3, batches=(1, 2), faults=Faults(trainer_crash=1)),
        limits=Limits(states=200_000, seconds=900),
        is_long=True,
    ),
    Break(
        name="done-from-union",
        rule="20: D is no ground for DONE",
        patches=((cuts, "compare", union_taken_for_common),),
        setting=Setting(faults=Faults(trainer_crash=1, loss=1)),
        limits=Limits(states=60_000),
    ),
    Break(
        name="hold-any-lineage",
        rule="19, 26: HOLD of the current lineage only; a roll-back aborts the commit",
        patches=(
            (fork, "hold", hold_of_any_lineage),
            (recovery, "lose_model", commit_goes_on),
            (cuts, "lose_model", commit_goes_on),
        ),
        setting=Setting(positions=1, trainers=1, faults=CRASH),
    ),
    Break(
        name="commit-survives-rollback",
        rule="26: a roll-back aborts the commit",
        patches=((recovery, "lose_model", commit_goes_on), (cuts, "lose_model", commit_goes_on)),
        setting=Setting(positions=1, trainers=1, faults=CRASH),
    ),
    Break(
        name="adopt-any-generation",
        rule="24: adoption of the current lineage only",
        patches=(
            (recovery, "_is_adoptable", adopted_whatever),
            (masters, "adoptable", everything_may_be_adopted),
        ),
        setting=Setting(**ONE, positions=1, keeps_orphans=True, faults=Faults(server_crash=1, take_over=1)),
    ),
    Break(
        name="adopt-any-parent",
        rule="24: adoption only when parent = head",
        patches=(
            (recovery, "_is_adoptable", adopted_whatever),
            (masters, "adoptable", everything_may_be_adopted),
            (Turn, "write", swapped_from_any_parent),
        ),
        setting=Setting(**ONE, keeps_orphans=True, faults=Faults(take_over=2)),
    ),
    Break(
        name="hwm-skip",
        rule="18: the high-water mark skips nothing",
        patches=(
            (dispatch, "opened", below_high_water_is_done),
            (masters.job.declaring, "opened", below_high_water_is_done),
        ),
        setting=Setting(**ONE, faults=Faults(take_over=1)),
    ),
    Break(
        name="end-before-commit",
        rule="32: END only when head covers everything",
        patches=((JobState, "is_complete", property(lambda state: state.dispatch.is_exhausted)),),
        setting=SMALL,
    ),
    Break(
        name="quarantine-unmarked",
        rule="31: every bucket is asked to SKIP",
        patches=((skipping, "begin", quarantined_unasked),),
        setting=Setting(**ONE, quarantine_after=1, faults=Faults(raising=1)),
    ),
    Break(
        name="quarantine-torn",
        rule="31: a skip that some had applied is rolled back",
        patches=((masters.job.servers.skipping, "handle_answer", torn_skip_recorded),),
        setting=Setting(trainers=1, quarantine_after=1, faults=Faults(raising=1)),
    ),
    Break(
        name="data-from-acks",
        rule="35: the data state is the model's own marks",
        patches=((cuts, "_record", recorded_as_acked),),
        setting=ALONE,
    ),
    Break(
        name="acks-survive",
        rule="34: no ack outlives the replica",
        patches=((dispatch, "void", acks_stay), (recovery, "void", acks_stay), (ownership, "void", acks_stay)),
        setting=ALONE,
    ),
    Break(
        name="head-not-considered",
        rule="34: the model starts from head at least",
        patches=((ownership, "StartFrom", started_from_nothing),),
        setting=ALONE,
    ),
    Break(
        name="head-back",
        rule="35: a file must contain head's data",
        patches=(
            (ownership, "StartFrom", started_from_nothing),
            (cuts, "_offer_problem", older_than_head_is_welcome),
        ),
        setting=ALONE,
    ),
    Break(
        name="join-without-marks",
        rule="34: model and marks come together",
        patches=((ownership, "StartFrom", started_without_marks),),
        setting=ALONE,
    ),
    Break(
        name="no-dedupe",
        rule="33: only what the model has not marked is trained",
        patches=(
            (leases, "take", done_again),
            (protocol_core.leases, "take", done_again),
            (ownership, "gain", lambda books, _: books),
        ),
        setting=replace(ALONE, faults=Faults(take_over=1)),
    ),
)
