"""A lost server costs a promotion where its buckets have a second copy (rules 61, 62).

PROMOTE and ALONE are each the end of a version, by one change of the table (`table`): what the lost one passes on, or
confirms, is of a version that nobody takes any more, so it need not be dead.  Nothing is copied and no server is asked
first.  The bucket has one copy until it gets another by a move (`resizing`, `moves`).

Not here: who is lost (`servers`), both lost (`rollback`), who is told (`orders`).  ADR 0318.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from master.job.domain import BucketTable, MemberKey
from master.job.domain.frozen_map import FrozenMap
from master.job.placement.owner_placement import NOBODY
from master.job.state import bucket_table
from master.job.state.job_state import MasterState
from master.job.state.protocol_state import RecoveryStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """So many buckets of a lost server go on on its heir, whose number is `ordinal`."""

    lost: MemberKey
    heir: MemberKey
    ordinal: int
    buckets: int


def promote_lost(state: MasterState, now: BucketTable) -> BucketTable:
    """No bucket waits for a server that is no member any more, if another one has a copy of it.

    Nor for one that has to go, where nobody else is left to take a second copy, nor for one that it does not reach; but
    then its owner is heard and stays: the copy of one that may be lost, or has yet to move, is given up by nobody.
    """
    if now.backups is None:
        return now
    holders, unreachable_backups = bucket_table.holders(now), state.moves.unreachable_backups
    missing = holders - {one.key for one in state.members.servers.values() if one.lineage == state.number}
    going = holders & _who_go_last(state)
    heard = {one.key for one in state.members.servers.values() if one.is_connected}
    firm = heard - going
    promoted: list[int] = []
    alone: list[int] = []
    for bucket in range(len(now.route.owner)) if missing or going or unreachable_backups else ():
        owner, backup = bucket_table.owner_of(now.route, bucket), bucket_table.backup_of(now, bucket)
        if backup is None or (backup in missing and owner in missing):
            continue
        if owner in missing:
            promoted.append(bucket)
        elif (
            backup in missing
            or (backup in going and owner in firm)
            or (bucket in unreachable_backups and owner in heard)
        ):
            alone.append(bucket)
    return bucket_table.left_alone(bucket_table.promoted(now, *promoted), *alone)


def counted(state: MasterState, old: BucketTable, new: BucketTable) -> FrozenMap[int, int]:
    """How many buckets of lost servers each server has taken over in this term, with those of this change."""
    found = state.promotions
    for one in promotions(state, old, new):
        found = found.put(one.ordinal, (found.get(one.ordinal) or 0) + one.buckets)
    return found


def promotions(state: MasterState, old: BucketTable, new: BucketTable) -> tuple[Promotion, ...]:
    """What servers that are no members any more have lost to their heirs by this change of the table."""
    found: Counter[tuple[MemberKey, MemberKey]] = Counter()
    for bucket in bucket_table.changed(old, new) if old.backups else ():
        lost, heir = bucket_table.owner_of(old.route, bucket), bucket_table.owner_of(new.route, bucket)
        if heir == bucket_table.backup_of(old, bucket) != lost and not state.members.try_server(lost):
            found[lost, heir] += 1
    known = {key: state.members.try_server(key) for _, key in found}
    return tuple(
        Promotion(lost=lost, heir=heir, ordinal=server.ordinal, buckets=count)
        for (lost, heir), count in found.items()
        if (server := known[heir])
    )


def _who_go_last(state: MasterState) -> frozenset[MemberKey]:
    """Servers that have to go and leave fewer than two behind."""
    servers = state.members.servers.values()
    going = frozenset(one.key for one in servers if state.has_to_leave(one))
    return going if len(servers) - len(going) == 1 else frozenset()


def _is_here(state: MasterState, key: MemberKey) -> bool:
    """A member, with the model of this lineage."""
    server = state.members.try_server(key)
    return server is not None and server.lineage == state.number


def is_whole(state: MasterState, now: BucketTable) -> bool:
    """Everybody who has a copy is a member."""
    return all(_is_here(state, holder) for holder in bucket_table.holders(now))


def has_successor(state: MasterState, now: BucketTable, bucket: int) -> bool:
    """Its backup is a member, with the model of this lineage."""
    backup = bucket_table.backup_of(now, bucket)
    return backup is not None and _is_here(state, backup)


def is_spare(state: MasterState, key: MemberKey) -> bool:
    """Of all that it has a copy of, another one is on a server that is heard; not while the model is restored."""
    now = state.table
    if now is None or state.recovery.must_raise or state.stage in (RecoveryStage.RAISING, RecoveryStage.RESTORING):
        return False
    here = {one.key for one in state.members.servers.values() if one.is_connected and one.lineage == state.number}
    return all((pair - {key}) & here for pair in _pairs(now) if key in pair)


def is_lost_with(state: MasterState, key: MemberKey) -> bool:
    """Of some bucket it had the only copy that may still come, while a new master waits for those that have them."""
    now = state.table
    may_come = {one.key for one in state.members.servers.values() if one.lineage == state.number}
    if now is not None and not state.recovery.promotes_backups:
        places = (one for one in now.route.servers if one.ordinal not in state.members.servers)
        may_come |= {bucket_table.key_of(place) for place in places}
    return now is None or any(not (pair - {key}) & may_come for pair in _pairs(now) if key in pair)


def _pairs(now: BucketTable) -> frozenset[frozenset[MemberKey]]:
    """Of each bucket those that have a copy; few are different."""
    known = [bucket_table.key_of(place) for place in now.route.servers]
    holder = now.backups.holder if now.backups else now.route.owner
    places = {(owner, owner if at == NOBODY else at) for owner, at in zip(now.route.owner, holder, strict=True)}
    return frozenset(frozenset((known[owner], known[at])) for owner, at in places)


def is_model_here(state: MasterState, now: BucketTable) -> bool:
    """Of every bucket the owner, or else its backup, is connected and holds the current lineage."""
    here = {one.key for one in state.members.servers.values() if one.is_connected and one.lineage == state.number}
    return all(
        bucket_table.owner_of(now.route, bucket) in here or bucket_table.backup_of(now, bucket) in here
        for bucket in range(len(now.route.owner))
    )
