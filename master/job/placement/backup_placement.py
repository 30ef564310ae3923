"""Placement of second copies: never beside the first, even, and with the fewest moves that evenness allows (rule 61).

A second copy costs a server what the first one costs it in pushes and nothing in pulls, so copies are spread by
number.  The placement is a flow: every bucket sits on some server; an edge leads from one server to another where a
bucket may be moved (not to its owner), and costs 1 where that takes it from the server that has its copy.  A surplus
of one server goes straight to those that have too few; only if owners prevent it, longer paths are used, cheapest
first.  At the end there is no negative cycle, so no placement that is as even moves fewer.

With two servers each is the other's backup, whatever the evenness.  Owners: `owner_placement`.  ADR 0318.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeAlias

from master.job.placement.owner_placement import NO_SERVER

_FAR: Final = 1 << 30

_Way: TypeAlias = tuple[tuple[int, int], ...]
"""From server to server; a bucket goes over each edge."""


def place_backups(owner: Sequence[int], servers: int, previous: Sequence[int]) -> tuple[int, ...]:
    """The server (0 to servers - 1) of each bucket's second copy; NO_SERVER for all where there is one server.

    `owner`: of each bucket.  `previous`: the server with its second copy now; any other number, and its owner, is
    nobody.
    """
    if servers < 2:
        return (NO_SERVER,) * len(owner)
    homes = [
        home if 0 <= home < servers and home != owner_ else NO_SERVER
        for home, owner_ in zip(previous, owner, strict=True)
    ]
    flow = _Flow(owner=owner, homes=homes, servers=servers)
    flow.place_homeless()
    flow.spread()
    flow.reduce_moves()
    flow.even_out()
    flow.reduce_moves()
    return tuple(flow.at)


class _Flow:
    """`at`: the server of each copy so far.  `held[s]`: the copies on server s."""

    def __init__(self, *, owner: Sequence[int], homes: Sequence[int], servers: int) -> None:
        self._owner, self._homes = owner, homes
        self._least, extra = divmod(len(owner), servers)
        self._most = self._least + (extra > 0)
        self.at = list(homes)
        self._held: list[set[int]] = [set() for _ in range(servers)]
        self._moves: list[list[tuple[int, int]] | None] = [None] * servers
        for bucket, home in enumerate(homes):
            if home != NO_SERVER:
                self._held[home].add(bucket)

    def place_homeless(self) -> None:
        """Every copy is on some server, beside as many others of its owner as possible."""
        for bucket, at in enumerate(self.at):
            if at == NO_SERVER:
                self._put(bucket, self._partner(self._owner[bucket]))

    def _partner(self, owner: int) -> int:
        """The next server after the owner that has room: then most pushes are passed on whole, to one server."""
        for limit in (self._least, self._most):
            for other in range(owner + 1, owner + len(self._held)):
                if len(self._held[other % len(self._held)]) < limit:
                    return other % len(self._held)
        return (owner + 1) % len(self._held)

    def spread(self) -> None:
        """Surplus copies go straight to servers with too few, as far as owners are not in the way."""
        for leaves, fills in ((self._most, self._least), (self._least, self._least), (self._most, self._most)):
            short = [server for server, held in enumerate(self._held) if len(held) < fills]
            for source, held in enumerate(self._held):
                surplus = sorted(held, key=lambda b: (self._homes[b] == source, b)) if len(held) > leaves else ()
                for bucket in surplus:
                    if len(held) <= leaves or not short:
                        break
                    target = next((one for one in short if one not in (self._owner[bucket], source)), NO_SERVER)
                    if target != NO_SERVER:
                        self._put(bucket, target)
                        if len(self._held[target]) >= fills:
                            short.remove(target)

    def even_out(self) -> None:
        """No server has fewer than its share that could get a copy from a server with more."""
        while way := self._cheapest_way():
            self._apply_round(way)

    def reduce_moves(self) -> None:
        """No round trip over servers that may have one copy more or less moves fewer copies."""
        while way := self._cheaper_round():
            self._apply_round(way)

    def _put(self, bucket: int, server: int) -> None:
        if self.at[bucket] != NO_SERVER:
            self._held[self.at[bucket]].discard(bucket)
            self._moves[self.at[bucket]] = None
        self._held[server].add(bucket)
        self._moves[server] = None
        self.at[bucket] = server

    def _apply_round(self, way: _Way) -> None:
        """All buckets are chosen before any is moved: each server gives one that it had."""
        taken = [(self._moves_from(source)[target][1], target) for source, target in way]
        for bucket, target in taken:
            self._put(bucket, target)

    # ---- the cheapest ways ------------------------------------------------------------------------------------------

    def _cheapest_way(self) -> _Way:
        """The edges from a server with too many copies to one with too few; empty: there is none."""
        counts = [len(held) for held in self._held]
        full = [server for server, count in enumerate(counts) if count > self._most]
        short = frozenset(server for server, count in enumerate(counts) if count < self._least)
        if not full and not short:
            return ()
        if full:
            others = frozenset(server for server, count in enumerate(counts) if count < self._most)
            return self._way(full, short) or self._way(full, others)
        return self._way([server for server, count in enumerate(counts) if count > self._least], short)

    def _way(self, sources: Sequence[int], targets: Collection[int]) -> _Way:
        cost = dict.fromkeys(sources, 0)
        came: dict[int, int] = {}
        while self._relax(cost, came):
            pass
        reached = [server for server in targets if server in came]
        return tuple(_back(came, min(reached, key=lambda one: (cost[one], one)))) if reached else ()

    def _cheaper_round(self) -> _Way:
        """A round trip of negative cost; it may pass X, where one server has one more and another one less."""
        if not any(price < 0 for source in range(len(self._held)) for price, _ in self._moves_from(source)):
            return ()
        cost = dict.fromkeys(range(len(self._held) + 1), 0)
        came: dict[int, int] = {}
        while self._relax(cost, came) | self._relax_x(cost, came):
            if found := _round_in(came):
                x = len(self._held)
                return tuple((source, target) for source, target in found if x not in (source, target))
        return ()

    def _relax(self, cost: dict[int, int], came: dict[int, int]) -> bool:
        """One round of Bellman and Ford; servers are few."""
        is_better = False
        for source in range(len(self._held)):
            if source not in cost:
                continue
            for target, (price, _) in enumerate(self._moves_from(source)):
                if price < _FAR and cost[source] + price < cost.get(target, _FAR):
                    cost[target], came[target], is_better = cost[source] + price, source, True
        return is_better

    def _relax_x(self, cost: dict[int, int], came: dict[int, int]) -> bool:
        x, is_better = len(self._held), False
        for server, held in enumerate(self._held):
            if len(held) < self._most and cost[server] < cost[x]:
                cost[x], came[x], is_better = cost[server], server, True
            if len(held) > self._least and cost[x] < cost[server]:
                cost[server], came[server], is_better = cost[x], x, True
        return is_better

    def _moves_from(self, source: int) -> list[tuple[int, int]]:
        """By target (cost, bucket) of the cheapest move there; _FAR: there is none."""
        known = self._moves[source]
        if known is None:
            known = self._moves[source] = self._cheapest_moves(source)
        return known

    def _cheapest_moves(self, source: int) -> list[tuple[int, int]]:
        ranked = sorted((self._homes[bucket] == source, bucket) for bucket in self._held[source])
        none = (_FAR, NO_SERVER)
        first = (int(ranked[0][0]), ranked[0][1]) if ranked else none
        moves = [first] * len(self._held)
        if ranked:
            owner = self._owner[first[1]]
            moves[owner] = next(((int(price), b) for price, b in ranked if self._owner[b] != owner), none)
        for is_home, bucket in reversed(ranked):
            if not is_home and self._homes[bucket] != NO_SERVER:
                moves[self._homes[bucket]] = (-1, bucket)
        moves[source] = none
        return moves


def _back(came: dict[int, int], at: int) -> Iterator[tuple[int, int]]:
    while at in came:
        yield came[at], at
        at = came[at]


def _round_in(came: dict[int, int]) -> list[tuple[int, int]]:
    """The edges of a cycle in it, backwards; empty: there is none."""
    seen: set[int] = set()
    for start in came:
        trail: dict[int, None] = {}
        at = start
        while at in came and at not in seen:
            trail[at] = None
            seen.add(at)
            at = came[at]
        if at in trail:
            begin = at
            found = [(came[at], at)]
            while (at := came[at]) != begin:
                found.append((came[at], at))
            return found
    return []
