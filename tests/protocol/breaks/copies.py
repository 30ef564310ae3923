"""Left out of what servers do with copies of a bucket: freeze, hand over, stage, serve, forget (rules 38 to 50)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.messages.to_members import Activate
from master.api.positions import EMPTY, PositionSet
from master.job.moves import move_lifecycle
from master.job.state.job_state import Turn
from tests.protocol import servers as shell
from tests.protocol.breaks.left_out import LATE, MOVE, ONE, Break, on_installed
from tests.protocol.explore import Limits
from tests.protocol.settings import Faults, Setting
from tests.protocol.steps import moves as move_steps
from tests.protocol.steps.change import Change, Label
from trainer_sdk.protocol import batches
from trainer_sdk.pserver.core import bucket_moves, event_table, pushes
from trainer_sdk.pserver.core.messages import PushVerdict
from trainer_sdk.pserver.core.server_events import SendCopy
from trainer_sdk.pserver.core.server_state import BucketGroup, ServerState, ServerStep, merge_groups
from trainer_sdk.pserver.core.staged import MoveState, without_staged

_verdict_of = pushes.verdict_of
_try_pieces = batches._try_pieces
_freeze = bucket_moves.handle_freeze
_sent = bucket_moves._copy_order
_copy_arrived = bucket_moves.handle_copy_arrived
_forget = bucket_moves.handle_forget
_restore = event_table.handle_restore
_of_moves = move_steps.of_moves
_left = shell._left
_installed = move_lifecycle.handle_installed


def frozen_takes_pushes(group: BucketGroup, positions: PositionSet, *, is_holding: bool) -> Any:
    return _verdict_of(replace(group, is_frozen=False), positions, is_holding=is_holding)


def moved_is_done(positions: PositionSet, ruling: Any) -> Any:
    return () if ruling.verdict is PushVerdict.MOVED else _try_pieces(positions, ruling)


def handed_over_unfrozen(state: ServerState, event: Any) -> ServerStep:
    step = _freeze(state, event)
    return ServerStep(state, tuple(effect for effect in step.effects if isinstance(effect, SendCopy)))


def frozen_whatever_version(state: ServerState, event: Any) -> ServerStep:
    group = bucket_moves._try_live(state, event.bucket)
    return _freeze(state, replace(event, version=group.version) if group else event)


def thaws_some_time(cast: Any, world: Any) -> Any:
    yield from _of_moves(cast, world)
    for s, number in enumerate(world.servers):
        process = cast.servers[number].process
        if any(group.is_frozen for group in process.state.groups):
            thawed = merge_groups(replace(group, is_frozen=False) for group in process.state.groups)
            after = replace(process, state=replace(process.state, groups=thawed))

            def thaw(draft: Any, s: int = s, after: Any = after) -> None:
                draft.put_server(s, replace(draft.server(s), process=after))

            yield Change(Label("s{} has waited long enough and THAWS", (s,)), thaw, "nothing may depend on it")


def installed_when_warm(state: ServerState, staged: Any) -> Any:
    return moving_installed(state, replace(staged, is_final=True))


moving_installed = bucket_moves._installed


def any_staged_serves(staged: Any, order: Any) -> bool:
    return staged is not None and staged.version == order.version


def any_base_will_do(state: ServerState, event: Any) -> ServerStep:
    return _copy_arrived(state, replace(event, head=replace(event.head, base="")))


def sent_without_marks(*args: Any, **parts: Any) -> SendCopy:
    return replace(_sent(*args, **parts), applied=EMPTY)


def served_on_arrival(state: ServerState, event: Any) -> ServerStep:
    step = _copy_arrived(state, event)
    head = event.head
    if not head.is_final or step.state is state:
        return step
    order = Activate(
        lineage=head.lineage, buckets=PositionSet.of(head.bucket), version=head.version, since=head.version
    )
    served = bucket_moves.handle_activate(step.state, order)
    return ServerStep(served.state, (*step.effects, *served.effects))


def forgets_whatever_version(state: ServerState, event: Any) -> ServerStep:
    live = [group.version for group in state.groups if group.buckets & event.buckets]
    return _forget(state, replace(event, version=max([event.version, *(v + 1 for v in live)])))


def forgets_what_is_staged(state: ServerState, event: Any) -> ServerStep:
    step = _forget(state, event)
    return ServerStep(replace(step.state, moves=without_staged(step.state.moves, event.buckets)), step.effects)


def staged_of_any_lineage(state: ServerState, event: Any) -> ServerStep:
    return _copy_arrived(state, replace(event, head=replace(event.head, lineage=state.lineage)))


def restored_with_what_was_staged(state: ServerState, event: Any) -> ServerStep:
    step = _restore(state, event)
    return ServerStep(replace(step.state, moves=state.moves), step.effects)


def left_with_what_was_staged(process: Any, order: Any) -> Any:
    return replace(_left(process, order), staged=process.staged)


def lost_in_the_first_lineage(turn: Turn, server: Any, said: Any) -> None:
    """Not the hole: a smaller world, in which INSTALLED is lost until a server has been lost too."""
    if said.lineage > 1:
        _installed(turn, server, said)


BREAKS: Final = (
    Break(
        name="frozen-accepts",
        rule="38, 50: a frozen copy takes no push",
        patches=((pushes, "verdict_of", frozen_takes_pushes),),
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
        patches=((bucket_moves, "handle_freeze", handed_over_unfrozen),),
        setting=MOVE,
    ),
    Break(
        name="source-thaws",
        rule="38: a frozen version never thaws",
        patches=((move_steps, "of_moves", thaws_some_time),),
        setting=MOVE,
    ),
    Break(
        name="flip-on-warm",
        rule="44, 47: only a final copy is installed and served",
        patches=((bucket_moves, "_installed", installed_when_warm), (bucket_moves, "_may_serve", any_staged_serves)),
        setting=Setting(**ONE, faults=Faults(move=1, warm=1)),
    ),
    Break(
        name="delta-any-base",
        rule="42: another base: NEED_FULL",
        patches=((bucket_moves, "handle_copy_arrived", any_base_will_do),),
        setting=Setting(trainers=1, positions=2, buckets=1, faults=Faults(move=1, warm=1)),
    ),
    Break(
        name="marks-stay-behind",
        rule="6, 43: marks go where parameters go",
        patches=((bucket_moves, "_copy_order", sent_without_marks),),
        setting=MOVE,
    ),
    Break(
        name="activate-early",
        rule="44: staged, not served",
        patches=((bucket_moves, "handle_copy_arrived", served_on_arrival),),
        setting=LATE,
    ),
    Break(
        name="forget-any-version",
        rule="48: live copies below that version only",
        patches=((bucket_moves, "handle_forget", forgets_whatever_version),),
        setting=Setting(**ONE, faults=Faults(move=2, overtake=1)),
    ),
    Break(
        name="no-floor",
        rule="39, 48: floors",
        patches=((MoveState, "floor", lambda bucket_moves, bucket: 0),),
        setting=Setting(**ONE, faults=Faults(move=2, overtake=2, repeat=1)),
        has_commits=False,
    ),
    Break(
        name="handover-any-lineage",
        rule="44: only of the own lineage",
        patches=((bucket_moves, "handle_copy_arrived", staged_of_any_lineage),),
        setting=Setting(**ONE, faults=Faults(move=2, server_crash=1)),
        has_commits=False,
    ),
    Break(
        name="restore-keeps-staged",
        rule="49: RESTORE drops staged copies and floors",
        patches=(
            (event_table, "handle_restore", restored_with_what_was_staged),
            (shell, "_left", left_with_what_was_staged),
            on_installed(lost_in_the_first_lineage),
        ),
        setting=Setting(**ONE, faults=Faults(move=2, server_crash=1)),
        has_commits=False,
        limits=Limits(states=300_000, seconds=1800),
        is_long=True,
    ),
    Break(
        name="freeze-any-version",
        rule="43: only if live at exactly that version",
        patches=((bucket_moves, "handle_freeze", frozen_whatever_version),),
        setting=Setting(**ONE, faults=Faults(move=1, deadline=1, overtake=1)),
        limits=Limits(states=18_000),
    ),
    Break(
        name="forget-any-staged",
        rule="48: staged copies up to that version only",
        patches=((bucket_moves, "handle_forget", forgets_what_is_staged),),
        setting=Setting(**ONE, faults=Faults(move=2, deadline=1, overtake=1)),
    ),
)
