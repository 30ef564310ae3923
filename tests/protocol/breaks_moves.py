"""Rules of moves left out of the real cores, one at a time (37 to 60), as in `breaks`; found by I1 to I9 or as stuck.

The names are those of the holes of the reference models `model_moves` and `model_cut_moves`.  `ALSO` are holes that
those do not list.  Holes of theirs that have no place here: replicas (61, 62, not built) and other rule sets
(`literal`, `revision`).  Not found, because something else stands in front: `second-hold` (a member has one stream,
which keeps its order), `copy-old-route` (a frozen copy in a cut that names each bucket once holds what its owner
holds), `intent-volatile` (what is frozen is not among the marks that a new master asks for: it rolls back).
`skips-once` puts END out of reach in a region larger than was explored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.messages import Activate, Forget, Installed
from master.api.positions import EMPTY, PositionSet
from master.job import cuts, lateness, machine, moves, recovery, servers, table
from master.job.domain import MovesExpired, Table
from master.job.state import Moves, Phase, Skipping, Turn
from tests.protocol import masters
from tests.protocol import servers as shell
from tests.protocol.breaks import Break
from tests.protocol.explore import Limits
from tests.protocol.moves import Change, JobModel, Label
from tests.protocol.world import Faults, Setting
from trainer_sdk.protocol import batches
from trainer_sdk.pserver import bucket, fork, moving
from trainer_sdk.pserver.messages import SendCopy, Verdict
from trainer_sdk.pserver.staged import Moving, with_staged, without_staged
from trainer_sdk.pserver.state import Group, ServerState, Step, merged

# ---- parameter servers -----------------------------------------------------------------------------------------------

_judge, _try_pieces, _freeze = bucket.judge, batches._try_pieces, moving.freeze
_sent, _copy_arrived, _activated = moving._sent, moving.copy_arrived, moving._activated
_forget, _restore = moving.forget, bucket.restore
_forked, _skip = fork._forked, bucket.skip
_of_moves = JobModel._of_moves


def frozen_takes_pushes(group: Group, positions: PositionSet, *, is_holding: bool) -> Any:
    return _judge(replace(group, is_frozen=False), positions, is_holding=is_holding)


def moved_is_done(positions: PositionSet, ruling: Any) -> Any:
    return () if ruling.verdict is Verdict.MOVED else _try_pieces(positions, ruling)


def handed_over_unfrozen(state: ServerState, event: Any) -> Step:
    step = _freeze(state, event)
    return Step(state, tuple(effect for effect in step.effects if isinstance(effect, SendCopy)))


def frozen_whatever_version(state: ServerState, event: Any) -> Step:
    group = moving._try_live(state, event.bucket)
    return _freeze(state, replace(event, version=group.version) if group else event)


def thaws_some_time(model: JobModel, world: Any) -> Any:
    yield from _of_moves(model, world)
    for s, number in enumerate(world.servers):
        process = model.cast.servers[number].process
        if any(group.is_frozen for group in process.state.groups):
            thawed = merged(replace(group, is_frozen=False) for group in process.state.groups)
            after = replace(process, state=replace(process.state, groups=thawed))

            def thaw(draft: Any, s: int = s, after: Any = after) -> None:
                draft.put_server(s, replace(draft.server(s), process=after))

            yield Change(Label("s{} has waited long enough and THAWS", (s,)), thaw, "nothing may depend on it")


def installed_when_warm(state: ServerState, staged: Any) -> Any:
    return moving_installed(state, replace(staged, is_final=True))


moving_installed = moving._installed


def any_staged_serves(staged: Any, version: Any) -> bool:
    return staged is not None and staged.version == version


def any_base_will_do(state: ServerState, event: Any) -> Step:
    return _copy_arrived(state, replace(event, head=replace(event.head, base="")))


def sent_without_marks(*args: Any, **parts: Any) -> SendCopy:
    return replace(_sent(*args, **parts), applied=EMPTY)


def sent_without_skips(*args: Any, **parts: Any) -> SendCopy:
    return replace(_sent(*args, **parts), skipped=EMPTY)


def served_on_arrival(state: ServerState, event: Any) -> Step:
    step = _copy_arrived(state, event)
    head = event.head
    if not head.is_final or step.state is state:
        return step
    order = Activate(lineage=head.lineage, buckets=PositionSet.of(head.bucket), version=head.version)
    served = moving.activate(step.state, order)
    return Step(served.state, (*step.effects, *served.effects))


def same_version_thaws(state: ServerState, number: Any, version: Any) -> Any:
    groups = merged(
        replace(group, is_frozen=False) if number in group.buckets and group.version == version else group
        for group in state.groups
    )
    return _activated(replace(state, groups=groups), number, version)


def forgets_whatever_version(state: ServerState, event: Any) -> Step:
    live = [group.version for group in state.groups if group.buckets & event.buckets]
    return _forget(state, replace(event, version=max([event.version, *(v + 1 for v in live)])))


def forgets_what_is_staged(state: ServerState, event: Any) -> Step:
    step = _forget(state, event)
    return Step(replace(step.state, moving=without_staged(step.state.moving, event.buckets)), step.effects)


def staged_of_any_lineage(state: ServerState, event: Any) -> Step:
    return _copy_arrived(state, replace(event, head=replace(event.head, lineage=state.lineage)))


def restored_with_what_was_staged(state: ServerState, event: Any) -> Step:
    step = _restore(state, event)
    return Step(replace(step.state, moving=state.moving), step.effects)


def loaded_beside_what_was_staged(process: Any, restore: Any, positions: int) -> Any:
    return replace(_loaded(process, restore, positions), staged=process.staged)


_loaded = shell._loaded


def forks_what_is_here(state: ServerState, known: Any, data: PositionSet, now_s: float) -> Step:
    everything = PositionSet.of(*(b for group in state.groups for b in group.buckets))
    return _forked(state, replace(known, listed=everything), data, now_s)


def forks_what_is_left(state: ServerState, known: Any, data: PositionSet) -> bool:
    return True


def fork_takes_what_the_frozen_lacks(judged: Any, group: Group, buckets: PositionSet) -> Group:
    if group.is_frozen and group.fork is not None and judged._positions <= group.fork.wanted:
        judged._rule(buckets, Verdict.APPLIED)
        judged.both = judged.both | buckets
        marks = fork.marked(group.fork, judged._positions)
        return replace(group, buckets=buckets, applied=group.applied | judged._positions, fork=marks)
    return _judge_group(judged, group, buckets)


_judge_group = bucket._Judged._judge


def keeps_the_fork(state: ServerState, group: Group) -> Any:
    return state, ()


def frozen_skips_too(state: ServerState, event: Any) -> Step:
    """What is frozen takes the SKIP, after it was handed over."""
    frozen = PositionSet.of(*(b for group in state.groups if group.is_frozen for b in group.buckets))
    thawed = merged(replace(group, is_frozen=False) for group in state.groups)
    step = _skip(replace(state, groups=thawed), event)
    groups: list[Group] = []
    for group in step.state.groups:
        inside, outside = group.buckets & frozen, group.buckets - frozen
        groups += [
            replace(group, buckets=b, is_frozen=is_frozen) for b, is_frozen in ((inside, True), (outside, False)) if b
        ]
    return Step(replace(step.state, groups=merged(groups)), step.effects)


def staged_skips_too(state: ServerState, event: Any) -> Step:
    step = _skip(state, event)
    after, skipped = step.state, EMPTY
    if state.lineage == event.lineage:
        for one in state.moving.staged:
            if event.positions.isdisjoint(one.applied):
                skipped |= PositionSet.of(one.bucket)
                moved = with_staged(after.moving, replace(one, skipped=one.skipped | event.positions))
                after = replace(after, moving=moved)
    answer, *others = step.effects
    said = replace(answer, message=replace(answer.message, skipped=answer.message.skipped | skipped))
    return Step(after, (said, *others))


# ---- the master ------------------------------------------------------------------------------------------------------

_undone, _installed = table.undone, moves.handle_installed
_handle_raised, _try_write, _flipped = recovery.handle_raised, masters.try_write, table.flipped


def every_owner_comes_back(state: Any) -> bool:
    here = set(state.members.servers)
    owning = {state.route.servers[place].ordinal for place in state.route.owner} if state.route else set()
    return bool(here) and here >= (owning or set(range(state.scale.wanted)))


def undone_at_the_same_version(now: Table, intent: Any) -> Table:
    after = _undone(now, intent)
    return replace(after, route=replace(after.route, version=now.route.version))


def flipped_at_the_same_version(now: Table, intent: Any) -> Table:
    after = _flipped(now, intent)
    return replace(after, route=replace(after.route, version=now.route.version))


def forgotten_once_installed(turn: Turn, server: Any, said: Any) -> None:
    _installed(turn, server, said)
    for intent in turn.state.moves.intents:
        if intent.bucket == said.bucket:
            order = Forget(lineage=said.lineage, buckets=PositionSet.of(said.bucket), version=said.version)
            turn.send(intent.source, order)


def lost_in_the_first_lineage(turn: Turn, server: Any, said: Any) -> None:
    """Not the hole: a smaller world, in which INSTALLED is lost until a server has been lost too."""
    if said.lineage > 1:
        _installed(turn, server, said)


def activated_once_installed(turn: Turn, server: Any, said: Any) -> None:
    _installed(turn, server, said)
    order = Activate(lineage=said.lineage, buckets=PositionSet.of(said.bucket), version=said.version)
    turn.send(server.key, order)


def installed_of_any_version(turn: Turn, server: Any, said: Any) -> None:
    for intent in turn.state.moves.intents:
        if intent.bucket == said.bucket:
            said = replace(said, version=intent.version + 1)
    _installed(turn, server, said)


def flipped_when_late(turn: Turn, event: Any) -> None:
    late = frozenset(intent.bucket for intent in turn.state.moves.intents)
    if lateness.expires(turn.state) == event.deadline:
        turn.change(moves=replace(turn.state.moves, installed=late))


def intents_survive(turn: Turn, write: Any) -> None:
    kept = turn.state.moves.intents
    _handle_raised(turn, write)
    turn.change(moves=Moves(intents=kept))


def intents_stay_in_the_store(etcd: Any, term: Any, write: Any, storage: Any) -> Any:
    after = _try_write(etcd, term, write, storage)
    if after is None or not isinstance(write, masters.RaiseLineage):
        return after
    return replace(after, durable=replace(after.durable, intents=etcd.durable.intents))


def always(*_: Any, **__: Any) -> bool:
    return True


def on_installed(handler: Any) -> Any:
    """In place of what the master does with INSTALLED."""
    return (servers, "HANDLERS", {**servers.HANDLERS, Installed: handler})


SOON: Final = ((cuts, "file_problem", lambda *_: ""),)
"""The master believes what a file says of its buckets."""

ONE: Final = {"trainers": 1, "positions": 1, "buckets": 1}
MOVE: Final = Setting(**ONE, faults=Faults(move=1))
LATE: Final = Setting(**ONE, faults=Faults(move=1, deadline=1))
TWICE: Final = Setting(**ONE, faults=Faults(move=2))
SKIPPING: Final = Setting(**ONE, quarantine_after=1, faults=Faults(move=1, raising=1))
HASTY: Final = Setting(**ONE, is_hasty=True, faults=Faults(move=1))

LISTED: Final = (
    Break(
        name="frozen-accepts",
        rule="38, 50: a frozen copy takes no push",
        patches=((bucket, "judge", frozen_takes_pushes),),
        setting=MOVE,
    ),
    Break(
        name="moved-counts",
        rule="50, 51: MOVED confirms nothing",
        patches=((batches, "_try_pieces", moved_is_done),),
        setting=MOVE,
    ),
    Break(
        name="handover-before-freeze",
        rule="43: frozen first, then handed over",
        patches=((moving, "freeze", handed_over_unfrozen),),
        setting=MOVE,
    ),
    Break(
        name="source-thaws",
        rule="38: a frozen version never thaws",
        patches=((JobModel, "_of_moves", thaws_some_time),),
        setting=MOVE,
    ),
    Break(
        name="flip-on-warm",
        rule="44, 47: only a final copy is installed and served",
        patches=((moving, "_installed", installed_when_warm), (moving, "_may_serve", any_staged_serves)),
        setting=Setting(**ONE, faults=Faults(move=1, warm=1)),
    ),
    Break(
        name="delta-any-base",
        rule="42: another base: NEED_FULL",
        patches=((moving, "copy_arrived", any_base_will_do),),
        setting=Setting(trainers=1, positions=2, buckets=1, faults=Faults(move=1, warm=1)),
    ),
    Break(
        name="marks-stay-behind",
        rule="6, 43: marks go where parameters go",
        patches=((moving, "_sent", sent_without_marks),),
        setting=MOVE,
    ),
    Break(
        name="activate-early",
        rule="44: staged, not served",
        patches=((moving, "copy_arrived", served_on_arrival),),
        setting=LATE,
    ),
    Break(
        name="undo-keeps-version",
        rule="38, 46: every end of a move raises the version",
        patches=((table, "undone", undone_at_the_same_version), (moving, "_activated", same_version_thaws)),
        setting=Setting(**ONE, faults=Faults(move=2, deadline=1)),
    ),
    Break(
        name="forget-early",
        rule="48: FORGET only after the table has changed",
        patches=(on_installed(forgotten_once_installed),),
        setting=LATE,
    ),
    Break(
        name="forget-any-version",
        rule="48: live copies below that version only",
        patches=((moving, "forget", forgets_whatever_version),),
        setting=Setting(**ONE, faults=Faults(move=2, overtake=1)),
    ),
    Break(
        name="no-floor",
        rule="39, 48: floors",
        patches=((Moving, "floor", lambda moving, bucket: 0),),
        setting=Setting(**ONE, faults=Faults(move=2, overtake=2, repeat=1)),
        has_commits=False,
    ),
    Break(
        name="intent-before-active",
        rule="41: only when the source has reported itself live at that version",
        patches=((moves, "_is_settled", always),),
        setting=Setting(**ONE, faults=Faults(move=2, deadline=2)),
    ),
    Break(
        name="intent-survives-rollback",
        rule="56: a roll-back deletes all intents",
        patches=((recovery, "handle_raised", intents_survive), (masters, "try_write", intents_stay_in_the_store)),
        setting=Setting(**ONE, faults=Faults(move=1, server_crash=1)),
    ),
    Break(
        name="handover-any-lineage",
        rule="44: only of the own lineage",
        patches=((moving, "copy_arrived", staged_of_any_lineage),),
        setting=Setting(**ONE, faults=Faults(move=2, server_crash=1)),
        has_commits=False,
    ),
    Break(
        name="restore-keeps-staged",
        rule="49: RESTORE drops staged copies and floors",
        patches=(
            (bucket, "restore", restored_with_what_was_staged),
            (shell, "_loaded", loaded_beside_what_was_staged),
            on_installed(lost_in_the_first_lineage),
        ),
        setting=Setting(**ONE, faults=Faults(move=2, server_crash=1)),
        has_commits=False,
        limits=Limits(states=300_000, seconds=900),
        is_long=True,
    ),
    Break(
        name="owner-by-name",
        rule="37, 54: another process at the same name is not the owner",
        patches=((moves, "is_safe", always),),
        setting=Setting(**ONE, faults=Faults(server_crash=1, move=1)),
        limits=Limits(states=30_000),
    ),
    Break(
        name="evict-keeps-lineage",
        rule="53: a source that does not confirm: UNDO, never FLIP",
        patches=((machine, "HANDLERS", {**machine.HANDLERS, MovesExpired: flipped_when_late}),),
        setting=LATE,
    ),
    Break(
        name="fork-every",
        rule="58: CUT forks what was listed and nothing else",
        patches=((fork, "_forked", forks_what_is_here), *SOON),
        setting=replace(HASTY, buckets=2, moves_in=Phase.HOLDING, faults=Faults(move=1, overtake=1)),
    ),
    Break(
        name="once-unchecked",
        rule="58: CUT only if all HELD name every bucket once",
        patches=((cuts, "lists_exactly", always), *SOON),
        setting=Setting(trainers=1, positions=1, buckets=2, is_hasty=True, faults=Faults(move=1)),
    ),
    Break(
        name="freeze-keeps-fork",
        rule="59: FREEZE ends a fork that wants something of the bucket",
        patches=((moving, "_let_go", keeps_the_fork),),
        setting=replace(HASTY, positions=2, buckets=2, moves_in=Phase.WRITING),
        limits=Limits(states=250_000, seconds=900),
        is_long=True,
    ),
    Break(
        name="fork-after-freeze",
        rule="59: nor does a fork of a frozen copy take a push",
        patches=((moving, "_let_go", keeps_the_fork), (bucket._Judged, "_judge", fork_takes_what_the_frozen_lacks)),
        setting=replace(HASTY, positions=2, buckets=2, moves_in=Phase.WRITING),
    ),
    Break(
        name="skip-on-frozen",
        rule="60: SKIP is taken by an active copy only",
        patches=((bucket, "skip", frozen_skips_too),),
        setting=SKIPPING,
    ),
    Break(
        name="skip-on-staged",
        rule="60: SKIP is taken by an active copy only",
        patches=((bucket, "skip", staged_skips_too),),
        setting=replace(SKIPPING, buckets=2, faults=Faults(move=1, raising=1, deadline=1)),
    ),
    Break(
        name="skipped-stay-behind",
        rule="60: skips go where marks go",
        patches=((moving, "_sent", sent_without_skips),),
        setting=SKIPPING,
    ),
)

ALSO: Final = (
    Break(
        name="freeze-any-version",
        rule="43: only if live at exactly that version",
        patches=((moving, "freeze", frozen_whatever_version),),
        setting=Setting(**ONE, faults=Faults(move=1, deadline=1, overtake=1)),
        limits=Limits(states=30_000),
    ),
    Break(
        name="installed-any-version",
        rule="44, 45: INSTALLED of this very move",
        patches=(on_installed(installed_of_any_version),),
        setting=Setting(**ONE, faults=Faults(move=2, deadline=1)),
    ),
    Break(
        name="cut-what-is-gone",
        rule="58: a listed bucket that is no longer here: GONE",
        patches=((fork, "_can_fork_all", forks_what_is_left), *SOON),
        setting=replace(HASTY, buckets=2, moves_in=Phase.HOLDING),
    ),
    Break(
        name="told-before-durable",
        rule="45, 47: ACTIVATE is derived from the table",
        patches=(on_installed(activated_once_installed),),
        setting=LATE,
    ),
    Break(
        name="flip-keeps-version",
        rule="38: a finished move raises the version",
        patches=((table, "flipped", flipped_at_the_same_version),),
        setting=MOVE,
    ),
    Break(
        name="skip-by-server",
        rule="60: every bucket is asked, whoever owns it",
        patches=((Skipping, "answered", property(lambda skip: PositionSet.span(0, 9 if skip.skipped else 0))),),
        setting=replace(SKIPPING, buckets=2),
    ),
    Break(
        name="unwanted-is-waited-for",
        rule="49: after a loss nobody waits for a server that is not wanted (ADR 315)",
        patches=((recovery, "_are_enough_here", every_owner_comes_back),),
        setting=Setting(trainers=1, positions=1, faults=Faults(wish=1, server_crash=1)),
        limits=Limits(states=12_000),
    ),
    Break(
        name="forget-any-staged",
        rule="48: staged copies up to that version only",
        patches=((moving, "forget", forgets_what_is_staged),),
        setting=Setting(**ONE, faults=Faults(move=2, deadline=1, overtake=1)),
    ),
)

BREAKS: Final = (*LISTED, *ALSO)
