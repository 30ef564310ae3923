"""Left out of what an owner, its backup and the master do for each other (rules 61, 62; ADR 0318)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from master.api.positions import EMPTY, PositionSet
from master.job.dispatch import skip_agreement
from master.job.domain.durable_records import BucketTable
from master.job.state import bucket_table
from tests.protocol import servers as shell
from tests.protocol.breaks.copies import handed_over_unfrozen
from tests.protocol.breaks.left_out import ONE, Break
from tests.protocol.explore import Limits
from tests.protocol.settings import Faults, Setting
from tests.protocol.steps import moves as move_steps
from tests.protocol.steps import relays
from tests.protocol.steps.change import Change, Label
from trainer_sdk.pserver.core import bucket_moves, fork, pushes
from trainer_sdk.pserver.core.messages import PushVerdict
from trainer_sdk.pserver.core.server_state import BucketGroup, ServerState, _marks, joined, merge_groups

_passed_on = relays.passed_on
_of_moves = move_steps.of_moves
_push_as_backup = pushes.handle_backup_push
_promoted = bucket_table.promoted
_ask_again = skip_agreement.resend_skip


def applied_as_it_is_passed_on(cast: Any, world: Any, process: Any, parcel: Any, passes: Any) -> Any:
    """Answered once the backup has it, but pulled before."""
    for change in _passed_on(cast, world, process, parcel, passes):

        def make(draft: Any, change: Any = change) -> None:
            change.make(draft)
            state = draft.server(parcel.server).process.state
            alone = replace(state, groups=merge_groups(replace(g, backup=None) for g in state.groups))
            before = replace(draft.server(parcel.server).process, state=alone)
            step = shell.pushed(before, parcel.push, parcel.computed_on)
            backup = next(g.backup for g in state.groups if g.backup)
            groups = merge_groups(replace(g, backup=backup) for g in step.process.state.groups)
            after = replace(step.process, state=replace(step.process.state, groups=groups))
            draft.put_server(parcel.server, replace(draft.server(parcel.server), process=after))

        yield replace(change, make=make)


def confirmed_unasked(evaluation: Any, group: BucketGroup, backup: Any, buckets: PositionSet) -> PositionSet:
    return buckets


def confirmed_by_anybody(evaluation: Any, group: BucketGroup, backup: Any, buckets: PositionSet) -> PositionSet:
    known = evaluation._backup_answers
    if known is not None:
        evaluation._backup_answers = tuple(replace(s, backup=backup.incarnation, version=group.version) for s in known)
    try:
        return _confirmed(evaluation, group, backup, buckets)
    finally:
        evaluation._backup_answers = known


_confirmed = pushes._PushEvaluation._collect_confirmed


def overlap_is_told(evaluation: Any, group: BucketGroup, backup: Any, buckets: PositionSet) -> PositionSet:
    for said in evaluation._backup_answers or ():
        if said.backup == backup.incarnation and said.ruling.verdict is PushVerdict.OVERLAP:
            evaluation._add_ruling(buckets, PushVerdict.OVERLAP, said.ruling.positions)
            return EMPTY
    return _confirmed(evaluation, group, backup, buckets)


def any_said(cast: Any, world: Any, process: Any, parcel: Any, passes: Any) -> Any:
    """Whoever it was passed on to."""
    found = [relay.said for relay in relays._of(cast, world, process, parcel) if relay.said]
    return found[0] if found else None


def goes_on_alone(cast: Any, world: Any) -> Any:
    yield from _of_moves(cast, world)
    for s, number in enumerate(world.servers):
        process = cast.servers[number].process
        if any(group.backup for group in process.state.groups):
            alone = merge_groups(replace(group, backup=None) for group in process.state.groups)
            after = replace(process, state=replace(process.state, groups=alone))

            def drop(draft: Any, s: int = s, after: Any = after) -> None:
                draft.put_server(s, replace(draft.server(s), process=after))

            yield Change(Label("s{} has waited long enough and goes on ALONE", (s,)), drop, "nothing may depend on it")


def promoted_takes_what_is_passed_on(state: ServerState, event: Any) -> Any:
    addressed = joined(*[target.buckets for target in event.targets])
    live = [g for g in state.groups if g.buckets & addressed]
    mine = [replace(g, is_backup=True, backup=None, fork=None) for g in live]
    if not live or live[0].is_backup:
        return _push_as_backup(state, event)
    rest = [g for g in state.groups if not g.buckets & addressed]
    targets = tuple(replace(target, version=live[0].version) for target in event.targets)
    step = _push_as_backup(replace(state, groups=merge_groups((*rest, *mine))), replace(event, targets=targets))
    back = [replace(g, is_backup=False) if g.buckets & addressed else g for g in step.state.groups]
    return replace(step, state=replace(step.state, groups=merge_groups(back)))


def promoted_at_the_same_version(now: BucketTable, *numbers: int) -> BucketTable:
    after = _promoted(now, *numbers)
    return replace(after, route=replace(after.route, version=now.route.version))


def backups_are_listed(state: ServerState) -> Any:
    return _marks((g.buckets, g.applied, g.skipped) for g in state.groups if not g.is_frozen)


def backups_are_pulled(state: ServerState) -> PositionSet:
    return joined(*[group.buckets for group in state.groups])


def only_from_the_version_before(live: BucketGroup, order: Any) -> bool:
    return live.version == order.version - 1


def backups_are_asked_at_once(turn: Any, server: Any) -> None:
    skip = turn.state.skip
    if skip is None or turn.state.route is None:
        return
    everything = PositionSet.span(0, len(turn.state.route.owner))
    turn.change(skip=replace(skip, skipped=everything))
    _ask_again(turn, server)
    turn.change(skip=skip)
    _ask_again(turn, server)


PAIR: Final = {**ONE, "copies": 2}
CALM: Final = Setting(**PAIR)
LOST: Final = Setting(**PAIR, faults=Faults(server_crash=1))

BREAKS: Final = (
    Break(
        name="primary-first",
        rule="61: the backup applies first",
        patches=((relays, "passed_on", applied_as_it_is_passed_on),),
        setting=CALM,
    ),
    Break(
        name="answer-first",
        rule="61: an owner applies and answers what its backup has confirmed",
        patches=((pushes._PushEvaluation, "_collect_confirmed", confirmed_unasked),),
        setting=CALM,
    ),
    Break(
        name="alone-on-timeout",
        rule="62: an owner never drops its backup by itself",
        patches=((move_steps, "of_moves", goes_on_alone),),
        setting=CALM,
    ),
    Break(
        name="recruit-unfrozen",
        rule="43, 62: a new backup gets what the owner has frozen",
        patches=((bucket_moves, "handle_freeze", handed_over_unfrozen),),
        setting=replace(LOST, servers=3),
    ),
    Break(
        name="promote-keeps-version",
        rule="62: PROMOTE is the end of a version",
        patches=((bucket_table, "promoted", promoted_at_the_same_version),),
        setting=LOST,
        limits=Limits(states=20_000),  # it is stuck: more states say no more
    ),
    Break(
        name="cut-lists-backups",
        rule="58, 61: HELD lists what is owned",
        patches=((fork, "live_marks", backups_are_listed),),
        setting=replace(CALM, buckets=2),
    ),
    Break(
        name="backup-pulled",
        rule="61: only the owner is pulled from",
        patches=((ServerState, "buckets", property(backups_are_pulled)),),
        setting=CALM,
    ),
    Break(
        name="overlap-is-told",
        rule="11, 61: what only the backup has is not complete",
        patches=((pushes._PushEvaluation, "_collect_confirmed", overlap_is_told),),
        setting=Setting(buckets=1, copies=2, batches=(1, 2), faults=Faults(trainer_crash=1)),
    ),
    Break(
        name="skip-owners-only",
        rule="60, 61: both copies skip",
        patches=((skip_agreement, "all_backed", lambda now: EMPTY),),
        setting=Setting(**PAIR, quarantine_after=1, faults=Faults(raising=1)),
    ),
)

LARGER: Final = (
    Break(
        name="no-since",
        rule="47, 62: a copy of any version since which the table has named its server",
        patches=((bucket_moves, "_is_own", only_from_the_version_before),),
        setting=Setting(**PAIR, servers=3, faults=Faults(move=1, deadline=1, server_crash=1)),
    ),
    Break(
        name="promoted-takes-passes",
        rule="62: a promoted backup refuses what is passed on at the version before",
        patches=((pushes, "handle_backup_push", promoted_takes_what_is_passed_on),),
        setting=Setting(**PAIR, servers=3, faults=Faults(break_=1, pause=1)),
    ),
    Break(
        name="said-by-anybody",
        rule="61: what the backup of this very version has confirmed",
        patches=((pushes._PushEvaluation, "_collect_confirmed", confirmed_by_anybody), (relays, "said", any_said)),
        setting=replace(LOST, servers=3),
    ),
    Break(
        name="skip-backups-at-once",
        rule="61: a backup skips nothing that its owner may still apply",
        patches=((skip_agreement, "resend_skip", backups_are_asked_at_once),),
        setting=Setting(**PAIR, quarantine_after=1, faults=Faults(raising=1, take_over=1)),
    ),
    Break(
        name="skip-answers-survive",
        rule="60, 62: whoever has the copies now is asked",
        patches=((skip_agreement, "forget_answers", lambda turn, old, new: None),),
        setting=Setting(**PAIR, quarantine_after=1, faults=Faults(raising=1, server_crash=1)),
        limits=Limits(states=60_000),
    ),
)
"""Not found in the first six thousand states of these jobs, or not tried: they need longer, or a smaller job."""
