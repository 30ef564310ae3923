"""The table of owners and what may become of it: INTENT, FLIP, UNDO as pure changes of one value (rules 37 to 46).

Each change makes the next revision, and each end of a move the bucket's next version; so a table that was once replaced
never comes back, and comparing the whole of it in the store is comparing owner, version, lineage and intent at once.

Not here: when a bucket moves and who is told (`moves`), where to (`placement`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from master.api.identities import Incarnation, Route, ServerPlace, Version
from master.api.positions import PositionSet
from master.job.domain import Intent, MemberKey, Table


def place_of(route: Route, incarnation: Incarnation) -> int | None:
    """The index of this process in the route; None when it has no place there."""
    return next((i for i, place in enumerate(route.servers) if place.incarnation == incarnation), None)


def owner_of(route: Route, bucket: int) -> MemberKey:
    """Whose it is."""
    return key_of(route.servers[route.owner[bucket]])


def key_of(place: ServerPlace) -> MemberKey:
    return MemberKey(name=place.name, incarnation=place.incarnation)


def owned(route: Route, incarnation: Incarnation) -> PositionSet:
    """Numbers of the buckets that this process owns."""
    place = place_of(route, incarnation)
    return PositionSet.from_ranges((bucket, bucket + 1) for bucket, owner in enumerate(route.owner) if owner == place)


def owners(route: Route) -> frozenset[MemberKey]:
    """The processes that own a bucket: those whose loss is a loss (rule 49)."""
    return frozenset(key_of(route.servers[place]) for place in set(route.owner))


def by_version(route: Route, buckets: Iterable[int]) -> dict[Version, PositionSet]:
    """These buckets, by the version of their owner."""
    found: dict[Version, list[int]] = {}
    for bucket in buckets:
        found.setdefault(route.version[bucket], []).append(bucket)
    return {version: PositionSet.of(*found[version]) for version in sorted(found)}


def with_intents(table: Table, intents: Collection[Intent], places: Iterable[ServerPlace]) -> Table:
    """These buckets are to move; `places`: of the targets, added where they have none yet (rule 41)."""
    if not intents:
        return table
    known = {place.incarnation for place in table.route.servers}
    fresh = dict.fromkeys(place for place in places if place.incarnation not in known)
    route = replace(table.route, servers=(*table.route.servers, *fresh))
    ordered = sorted((*table.intents, *intents), key=lambda intent: intent.bucket)
    return Table(route=route, intents=tuple(ordered))


def flipped(table: Table, intent: Intent) -> Table:
    """Version v at the source becomes v + 1 at the target (rule 45)."""
    target = place_of(table.route, intent.target.incarnation)
    assert target is not None, f"{intent} has no place in the route"
    return _ended(table, intent, target)


def undone(table: Table, intent: Intent) -> Table:
    """Version v at the source becomes v + 1 there: what was meant for v + 1 elsewhere is void (rule 46)."""
    return _ended(table, intent, table.route.owner[intent.bucket])


def _ended(table: Table, intent: Intent, owner: int) -> Table:
    route, bucket = table.route, intent.bucket
    assert route.version[bucket] == intent.version, f"{intent} is of another version than {route.version[bucket]}"
    changed = replace(
        route,
        owner=(*route.owner[:bucket], owner, *route.owner[bucket + 1 :]),
        version=(*route.version[:bucket], Version(intent.version + 1), *route.version[bucket + 1 :]),
    )
    return Table(route=changed, intents=tuple(one for one in table.intents if one != intent))


def without_idle_places(table: Table, staying: Collection[Incarnation]) -> Table:
    """Places that own nothing and that nothing moves to go, but those of `staying`."""
    route = table.route
    needed = {route.servers[owner].incarnation for owner in set(route.owner)}
    needed |= {intent.target.incarnation for intent in table.intents} | set(staying)
    kept = [i for i, place in enumerate(route.servers) if place.incarnation in needed]
    if len(kept) == len(route.servers):
        return table
    index = {old: new for new, old in enumerate(kept)}
    servers = tuple(route.servers[i] for i in kept)
    return replace(table, route=replace(route, servers=servers, owner=tuple(index[owner] for owner in route.owner)))


def next_revision(table: Table) -> Table:
    return replace(table, route=replace(table.route, revision=table.route.revision + 1))
