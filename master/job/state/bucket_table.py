"""The bucket table: which server owns each bucket, and INTENT, FLIP, UNDO, PROMOTE, ALONE as pure changes of it.

Each change makes the next revision, and each end of a move the bucket's next version.  A table that was once replaced
never comes back, so comparing the whole table in the store compares owner, version, lineage and intent at once.

Not here: when a bucket moves and what servers are sent (`job.moves`), where buckets belong (`job.placement`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from master.api.identities import Incarnation, Route, ServerPlace, Version
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import Backups, BucketTable, Intent, MemberKey
from master.job.placement.owner_placement import NO_SERVER

_T = TypeVar("_T")


def place_index(route: Route, incarnation: Incarnation) -> int | None:
    """The index of this process in the route; None: it has no place there."""
    return next((i for i, place in enumerate(route.servers) if place.incarnation == incarnation), None)


def owner_of(route: Route, bucket: int) -> MemberKey:
    """The owner of the bucket."""
    return key_of(route.servers[route.owner[bucket]])


def key_of(place: ServerPlace) -> MemberKey:
    return MemberKey(name=place.name, incarnation=place.incarnation)


def owned(route: Route, incarnation: Incarnation) -> PositionSet:
    """The buckets that this process owns."""
    place = place_index(route, incarnation)
    return PositionSet.from_ranges((bucket, bucket + 1) for bucket, owner in enumerate(route.owner) if owner == place)


def owners(route: Route) -> frozenset[MemberKey]:
    """The processes that own a bucket: the loss of one is a loss of the model (rule 49)."""
    return frozenset(key_of(route.servers[place]) for place in set(route.owner))


def by_version(route: Route, buckets: Iterable[int]) -> dict[Version, PositionSet]:
    """These buckets by their version."""
    found: dict[Version, list[int]] = {}
    for bucket in buckets:
        found.setdefault(route.version[bucket], []).append(bucket)
    return {version: PositionSet.of(*found[version]) for version in sorted(found)}


def backed(table: BucketTable, incarnation: Incarnation) -> PositionSet:
    """The buckets that this process is the backup of."""
    place = place_index(table.route, incarnation)
    if table.backups is None or place is None:
        return EMPTY
    found = ((bucket, bucket + 1) for bucket, backup in enumerate(table.backups.backup) if backup == place)
    return PositionSet.from_ranges(found)


def backup_of(table: BucketTable, bucket: int) -> MemberKey | None:
    """The process with the bucket's second copy; None: there is none."""
    place = backup_place(table, bucket)
    return key_of(place) if place else None


def backup_place(table: BucketTable, bucket: int) -> ServerPlace | None:
    backup = _backup_index(table, bucket)
    return None if backup == NO_SERVER else table.route.servers[backup]


def copy_holders(table: BucketTable) -> frozenset[MemberKey]:
    """The processes with a copy that counts: owners and backups."""
    found = set(table.backups.backup) - {NO_SERVER} if table.backups else set()
    return owners(table.route) | {key_of(table.route.servers[place]) for place in found}


def backed_of(table: BucketTable, buckets: PositionSet) -> PositionSet:
    """Those of these buckets that have a backup."""
    if table.backups is None:
        return EMPTY
    return PositionSet.of(*(bucket for bucket in buckets if table.backups.backup[bucket] != NO_SERVER))


def all_backed(table: BucketTable) -> PositionSet:
    """The buckets that have a backup."""
    return backed_of(table, PositionSet.span(0, len(table.route.owner)))


def single_copies(table: BucketTable) -> int:
    """The number of buckets with one copy where two are wanted: to lose such a server is to lose the
    model (rule 62).
    """
    return table.backups.backup.count(NO_SERVER) if table.backups else 0


def changed(old: BucketTable, new: BucketTable) -> PositionSet:
    """The buckets of which a version has ended, by a move or otherwise."""
    versions = enumerate(zip(old.route.version, new.route.version, strict=True))
    moved = (intent.bucket for intent in old.intents if intent not in new.intents)
    return PositionSet.of(*(bucket for bucket, (was, now) in versions if was != now), *moved)


def with_intents(
    table: BucketTable, intents: Collection[Intent], places: Iterable[ServerPlace], wanted: PositionSet = EMPTY
) -> BucketTable:
    """The table with these moves begun; `wanted`: buckets that get a backup; `places`: of the targets (rule 41)."""
    if not intents:
        return table
    known = {place.incarnation for place in table.route.servers}
    fresh = dict.fromkeys(place for place in places if place.incarnation not in known)
    route = replace(table.route, servers=(*table.route.servers, *fresh))
    ordered = sorted((*table.intents, *intents), key=lambda intent: intent.bucket)
    backups = replace(table.backups, wanted=table.backups.wanted | wanted) if table.backups else None
    return BucketTable(route=route, intents=tuple(ordered), backups=backups)


def flipped(table: BucketTable, intent: Intent, *, source_stays: bool = False) -> BucketTable:
    """FLIP: version v at the source becomes v + 1 at the target (rule 45).

    Where the move was for a new backup, the source stays the owner and the target becomes its backup (rule 62).
    `source_stays`: a bucket with one copy keeps the frozen one as its second, which equals what was handed over.
    """
    target = place_index(table.route, intent.target.incarnation)
    assert target is not None, f"{intent} has no place in the route"
    assert table.route.version[intent.bucket] == intent.version, f"{intent} is of another version"
    if table.backups and intent.bucket in table.backups.wanted:
        return _next_versions(table, {intent.bucket: (table.route.owner[intent.bucket], target)})
    backup = _backup_index(table, intent.bucket)
    if table.backups and backup == NO_SERVER and source_stays:
        backup = table.route.owner[intent.bucket]
    return _next_versions(table, {intent.bucket: (target, backup)})


def undone(table: BucketTable, intent: Intent) -> BucketTable:
    """UNDO: version v at the source becomes v + 1 there; what was meant for v + 1 elsewhere is void (rule 46)."""
    assert table.route.version[intent.bucket] == intent.version, f"{intent} is of another version"
    return _next_versions(
        table, {intent.bucket: (table.route.owner[intent.bucket], _backup_index(table, intent.bucket))}
    )


def promoted(table: BucketTable, *buckets: int) -> BucketTable:
    """PROMOTE: version v becomes v + 1 at the backup, which has no backup itself; moves of it end (rule 62)."""
    backups = {bucket: _backup_index(table, bucket) for bucket in buckets}
    assert NO_SERVER not in backups.values(), f"some of {buckets} have no backup"
    return _next_versions(table, {bucket: (backup, NO_SERVER) for bucket, backup in backups.items()})


def left_alone(table: BucketTable, *buckets: int) -> BucketTable:
    """ALONE: version v becomes v + 1 at the owner, which has no backup any more; moves of it end (rule 62)."""
    return _next_versions(table, {bucket: (table.route.owner[bucket], NO_SERVER) for bucket in buckets})


def _backup_index(table: BucketTable, bucket: int) -> int:
    return table.backups.backup[bucket] if table.backups else NO_SERVER


def _next_versions(table: BucketTable, ends: Mapping[int, tuple[int, int]]) -> BucketTable:
    """The table after these versions end.  `ends`: by bucket its owner and its backup from the next version on."""
    if not ends:
        return table
    route = table.route
    changed = replace(
        route,
        owner=_put(route.owner, {bucket: owner for bucket, (owner, _) in ends.items()}),
        version=_put(route.version, {bucket: Version(route.version[bucket] + 1) for bucket in ends}),
    )
    intents = tuple(one for one in table.intents if one.bucket not in ends)
    return BucketTable(route=changed, intents=intents, backups=_next_backups(table, ends))


def _next_backups(table: BucketTable, ends: Mapping[int, tuple[int, int]]) -> Backups | None:
    before = table.backups
    if before is None:
        return None
    owner_since: dict[int, Version] = {}
    backup_since: dict[int, Version] = {}
    for bucket, (owner, backup) in ends.items():
        known = {
            before.backup[bucket]: before.backup_since[bucket],
            table.route.owner[bucket]: before.owner_since[bucket],
        }
        fresh = Version(table.route.version[bucket] + 1)
        owner_since[bucket], backup_since[bucket] = known.get(owner, fresh), known.get(backup, fresh)
    return Backups(
        backup=_put(before.backup, {bucket: backup for bucket, (_, backup) in ends.items()}),
        owner_since=_put(before.owner_since, owner_since),
        backup_since=_put(before.backup_since, backup_since),
        wanted=before.wanted - PositionSet.of(*ends),
    )


def _put(values: tuple[_T, ...], changes: Mapping[int, _T]) -> tuple[_T, ...]:
    after = list(values)
    for at, value in changes.items():
        after[at] = value
    return tuple(after)


def owner_since(table: BucketTable, bucket: int) -> Version:
    """The version since which the table has named the bucket's owner without a break (rule 47).

    Without backups a version ends only when its owner has reported it, so only the one before may have been missed.
    """
    if table.backups is not None:
        return table.backups.owner_since[bucket]
    return Version(max(0, table.route.version[bucket] - 1))


def without_idle_places(table: BucketTable, staying: Collection[Incarnation]) -> BucketTable:
    """The table without places that have no copy and no move, except those of `staying`."""
    route, backups = table.route, table.backups
    used = set(route.owner) | (set(backups.backup) - {NO_SERVER} if backups else set())
    needed = {route.servers[place].incarnation for place in used}
    needed |= {intent.target.incarnation for intent in table.intents} | set(staying)
    kept = [i for i, place in enumerate(route.servers) if place.incarnation in needed]
    if len(kept) == len(route.servers):
        return table
    index = {old: new for new, old in enumerate(kept)} | {NO_SERVER: NO_SERVER}
    servers = tuple(route.servers[i] for i in kept)
    if backups:
        backups = replace(backups, backup=tuple(index[at] for at in backups.backup))
    moved = replace(route, servers=servers, owner=tuple(index[owner] for owner in route.owner))
    return replace(table, route=moved, backups=backups)


def next_revision(table: BucketTable) -> BucketTable:
    return replace(table, route=replace(table.route, revision=table.route.revision + 1))
