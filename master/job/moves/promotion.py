"""Promotion: backups become the owners of a lost server's buckets, at no loss (rules 61, 62; ADR 0318).

PROMOTE and ALONE each end a version by one change of the table.  Messages of the lost server carry an ended version
and are refused, so it need not be dead.  Nothing is copied and no server is asked first.  The bucket has one copy
until a move gives it another (`rebalancing`).

Not here: who is lost (`servers.server_handlers`), both copies lost (`recovery.rollback`), who is told
(`server_commands`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from master.job.domain.durable_records import BucketTable, MemberKey
from master.job.domain.frozen_map import FrozenMap
from master.job.placement.owner_placement import NO_SERVER
from master.job.state import bucket_table
from master.job.state.job_state import MasterState
from master.job.state.protocol_state import RecoveryStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """The number of buckets of a lost server promoted at another server; `ordinal` is that server's."""

    lost: MemberKey
    new_owner: MemberKey
    ordinal: int
    buckets: int


def promote_lost(state: MasterState, now: BucketTable) -> BucketTable:
    """The table in which no bucket waits for a server that is no member, if another one has its copy.

    It also drops second copies on a leaving server if no other server can take them, and on a backup that the owner
    cannot reach.  The latter requires that the owner is connected and stays, since its copy becomes the only one.
    """
    if now.backups is None:
        return now
    holders, unreachable_backups = bucket_table.copy_holders(now), state.moves.unreachable_backups
    missing = holders - {one.key for one in state.members.servers.values() if one.lineage == state.number}
    going = holders & _last_leavers(state)
    usable = {one.key for one in state.members.servers.values() if one.is_connected}
    firm = usable - going
    promoted: list[int] = []
    unpaired: list[int] = []
    for bucket in range(len(now.route.owner)) if missing or going or unreachable_backups else ():
        owner, backup = bucket_table.owner_of(now.route, bucket), bucket_table.backup_of(now, bucket)
        if backup is None or (backup in missing and owner in missing):
            continue
        if owner in missing:
            promoted.append(bucket)
        elif (
            backup in missing
            or (backup in going and owner in firm)
            or (bucket in unreachable_backups and owner in usable)
        ):
            unpaired.append(bucket)
    return bucket_table.left_alone(bucket_table.promoted(now, *promoted), *unpaired)


def counted(state: MasterState, old: BucketTable, new: BucketTable) -> FrozenMap[int, int]:
    """Buckets of lost servers that each server has taken over in this term, with those of this change."""
    found = state.promotions
    for one in promotions(state, old, new):
        found = found.put(one.ordinal, (found.get(one.ordinal) or 0) + one.buckets)
    return found


def promotions(state: MasterState, old: BucketTable, new: BucketTable) -> tuple[Promotion, ...]:
    """The buckets that this change of the table gives from lost servers to their backups."""
    found: Counter[tuple[MemberKey, MemberKey]] = Counter()
    for bucket in bucket_table.changed(old, new) if old.backups else ():
        lost, new_owner = bucket_table.owner_of(old.route, bucket), bucket_table.owner_of(new.route, bucket)
        if new_owner == bucket_table.backup_of(old, bucket) != lost and not state.members.try_server(lost):
            found[lost, new_owner] += 1
    known = {key: state.members.try_server(key) for _, key in found}
    return tuple(
        Promotion(lost=lost, new_owner=new_owner, ordinal=server.ordinal, buckets=count)
        for (lost, new_owner), count in found.items()
        if (server := known[new_owner])
    )


def _last_leavers(state: MasterState) -> frozenset[MemberKey]:
    """Servers that have to leave and leave fewer than two behind."""
    servers = state.members.servers.values()
    going = frozenset(one.key for one in servers if state.has_to_leave(one))
    return going if len(servers) - len(going) == 1 else frozenset()


def _is_here(state: MasterState, key: MemberKey) -> bool:
    """True if the process is a member with the model of this lineage."""
    server = state.members.try_server(key)
    return server is not None and server.lineage == state.number


def is_whole(state: MasterState, now: BucketTable) -> bool:
    """True if every process with a copy is a member."""
    return all(_is_here(state, holder) for holder in bucket_table.copy_holders(now))


def has_live_backup(state: MasterState, now: BucketTable, bucket: int) -> bool:
    """True if the bucket's backup is a member with the model of this lineage."""
    backup = bucket_table.backup_of(now, bucket)
    return backup is not None and _is_here(state, backup)


def is_spare(state: MasterState, key: MemberKey) -> bool:
    """True if every bucket of this process has another copy on a connected server; False while the model
    is restored.
    """
    now = state.table
    if now is None or state.recovery.must_raise or state.stage in (RecoveryStage.RAISING, RecoveryStage.RESTORING):
        return False
    here = {one.key for one in state.members.servers.values() if one.is_connected and one.lineage == state.number}
    return all((pair - {key}) & here for pair in _pairs(now) if key in pair)


def is_lost_with(state: MasterState, key: MemberKey) -> bool:
    """True if some bucket's only copy that may still come was on this process, while a new master waits."""
    now = state.table
    may_come = {one.key for one in state.members.servers.values() if one.lineage == state.number}
    if now is not None and not state.recovery.promotes_backups:
        places = (one for one in now.route.servers if one.ordinal not in state.members.servers)
        may_come |= {bucket_table.key_of(place) for place in places}
    return now is None or any(not (pair - {key}) & may_come for pair in _pairs(now) if key in pair)


def _pairs(now: BucketTable) -> frozenset[frozenset[MemberKey]]:
    """The processes with a copy of each bucket; few pairs are different."""
    known = [bucket_table.key_of(place) for place in now.route.servers]
    holder = now.backups.backup if now.backups else now.route.owner
    places = {(owner, owner if at == NO_SERVER else at) for owner, at in zip(now.route.owner, holder, strict=True)}
    return frozenset(frozenset((known[owner], known[at])) for owner, at in places)


def is_model_here(state: MasterState, now: BucketTable) -> bool:
    """True if for every bucket the owner or its backup is connected with the current lineage."""
    here = {one.key for one in state.members.servers.values() if one.is_connected and one.lineage == state.number}
    return all(
        bucket_table.owner_of(now.route, bucket) in here or bucket_table.backup_of(now, bucket) in here
        for bucket in range(len(now.route.owner))
    )
