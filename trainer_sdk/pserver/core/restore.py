"""RESTORE: the server drops its model and takes that of a newer lineage (rules 26 to 30).

Only the incarnation that the order names takes it, and only if the order's lineage is larger than any taken before: a
repeated order must not wipe newer work.  The shell reads the files (`LoadModel`); until then the server answers
NOT_READY.

An order may name buckets that stay (KEEP, rule 30).  The server keeps each of them that it still has as the order says:
of that lineage, active and at that version.  All other buckets come from the base, so an order may name too much and
never too little.  Marks and parameters stay; holds, forks, staged copies and floors end.  A kept bucket has no backup:
the backup would have the base's content (rule 61).  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from master.api.identities import NO_LINEAGE
from master.api.messages.from_members import Restored, RestoreFailed
from master.api.messages.to_members import Restore
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.pserver.core import fork
from trainer_sdk.pserver.core.server_events import LoadFailed, LoadModel, ModelLoaded, NotifyMaster
from trainer_sdk.pserver.core.server_state import BucketGroup, ServerState, ServerStep, merge_groups, split_groups
from trainer_sdk.pserver.core.staged import NO_MOVES


def handle_restore(state: ServerState, event: Restore) -> ServerStep:
    """Takes the order, reports Restored again if it has been carried out, or ignores it."""
    if event.incarnation != state.incarnation:
        return ServerStep(state)
    if event.lineage == state.lineage:
        return ServerStep(state, (NotifyMaster(message=Restored(lineage=event.lineage)),))
    is_failed = event.lineage == state.newest_restore and state.restoring is None
    if event.lineage <= state.newest_restore and not is_failed:
        return ServerStep(state)
    ended, effects = fork.end_cut(state)
    kept = state.kept if is_failed else merge_groups(_kept(ended, event))
    after = replace(
        ended, lineage=NO_LINEAGE, newest_restore=event.lineage, restoring=event, kept=kept, groups=(), moves=NO_MOVES
    )
    return ServerStep(after, (*effects, LoadModel(restore=event, kept=union(group.buckets for group in kept))))


def _kept(state: ServerState, order: Restore) -> Iterator[BucketGroup]:
    """The groups that stay, as they will be in the new lineage; those of an unfinished RESTORE are of its lineage."""
    lineage, groups = (state.lineage, state.groups) if state.is_ready else (state.newest_restore, state.kept)
    for named in order.kept:
        for group in split_groups(groups, named.buckets & order.buckets)[0] if named.lineage == lineage else ():
            if group.version == named.version and not (group.is_frozen or group.is_backup):
                yield _group(order, group.buckets, group.applied, group.skipped)


def handle_model_loaded(state: ServerState, event: ModelLoaded) -> ServerStep:
    """Serves from here on; a bucket that no file names is untrained, and all skip the quarantine (rule 27)."""
    order = state.restoring
    if order is None or order.lineage != event.lineage:
        return ServerStep(state)
    groups = list(state.kept)
    rest = (order.buckets | order.standby) - union(group.buckets for group in groups)
    for marks in event.marks:
        buckets = marks.buckets & rest
        if buckets:
            groups.append(_group(order, buckets, marks.applied, marks.skipped))
            rest -= buckets
    if rest:
        groups.append(_group(order, rest, EMPTY, EMPTY))
    groups = [*_with_backups(order, groups)]
    after = replace(state, lineage=order.lineage, restoring=None, kept=(), groups=merge_groups(groups))
    return ServerStep(after, (NotifyMaster(message=Restored(lineage=order.lineage)),))


def _with_backups(order: Restore, groups: Sequence[BucketGroup]) -> Iterator[BucketGroup]:
    """The groups with their roles: a backup, or an owner with its backup's place (rule 61)."""
    standby, rest = split_groups(groups, order.standby)
    yield from (replace(group, is_backup=True) for group in standby)
    for backed in order.backed:
        inside, rest = split_groups(rest, backed.buckets)
        yield from (replace(group, backup=backed.backup) for group in inside)
    yield from rest


def handle_load_failed(state: ServerState, event: LoadFailed) -> ServerStep:
    """Reports the failure; the same RESTORE may be retried, an older one is never taken."""
    if state.restoring is None or state.restoring.lineage != event.lineage:
        return ServerStep(state)
    after = replace(state, restoring=None)
    failure = RestoreFailed(lineage=event.lineage, message=event.message, is_damaged=event.is_damaged)
    return ServerStep(after, (NotifyMaster(message=failure),))


def _group(order: Restore, buckets: PositionSet, applied: PositionSet, skipped: PositionSet) -> BucketGroup:
    return BucketGroup(buckets=buckets, version=order.version, applied=applied, skipped=skipped | order.quarantine)
