"""Shares of the cluster by owner: the largest by name, and of a thousand others what they have together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.views.cluster.cluster_picture import OF_JOBS, Holding
from autoscaler.views.cluster.pod_view import NodeUnit, Use

MOST_OWNERS: Final = 40
"""Owners of one unit that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerShare:
    """All that one owner has of the cluster, in thousandths of `unit`: its minimum and what it has above that.

    `core` is all of web's, of what is idle, and of what is free.  `owners` above 1: of so many together.
    """

    unit: NodeUnit
    owner: str
    use: Use  # CORE for a job
    core: int
    surplus: int
    pods: int
    colour: int | None = None
    owners: int = 1

    @property
    def amount(self) -> int:
        """Both together."""
        return self.core + self.surplus


def largest_holdings(holdings: Sequence[Holding], *, most: int = MOST_OWNERS) -> tuple[Holding, ...]:
    """Return the holdings of the `most` largest owners of each unit, and what is free.

    Those of all others are one for each use, after those of the same kind, so that every sum stays whole.
    """
    totals: dict[_Owner, int] = {}
    for one in holdings:
        if one.use not in _NOBODYS:
            totals[_owner(one)] = totals.get(_owner(one), 0) + one.amount
    if len(totals) <= most:
        return tuple(holdings)
    named = set[_Owner]()
    for unit in NodeUnit:
        own = sorted((key for key in totals if key[0] is unit), key=lambda key: -totals[key])
        named.update(own[:most])
    found: list[Holding] = []
    for kind in dict.fromkeys((one.unit, _kind(one.use)) for one in holdings):
        of_kind = [one for one in holdings if (one.unit, _kind(one.use)) == kind]
        found += [one for one in of_kind if one.use in _NOBODYS or _owner(one) in named]
        others = [one for one in of_kind if one.use not in _NOBODYS and _owner(one) not in named]
        found += _together(others)
    return tuple(found)


def shares_of(holdings: Iterable[Holding]) -> tuple[OwnerShare, ...]:
    """Return the holdings with those of one owner together."""
    found: dict[tuple[_Owner, bool], list[Holding]] = {}
    for one in holdings:
        found.setdefault((_owner(one), one.owners > 1), []).append(one)
    return tuple(_share(own) for own in found.values())


def _owner(one: Holding) -> _Owner:
    return one.unit, one.owner, _kind(one.use)


def _kind(use: Use) -> Use:
    return Use.CORE if use in OF_JOBS else use


def _together(others: Sequence[Holding]) -> Iterable[Holding]:
    owners = len({one.owner for one in others})
    if owners == 1:
        yield from others
        return
    for use in dict.fromkeys(one.use for one in others):
        own = [one for one in others if one.use is use]
        amount, pods = sum(one.amount for one in own), sum(one.pods for one in own)
        yield Holding(unit=own[0].unit, owner="", use=use, amount=amount, pods=pods, owners=owners)


def _share(own: Sequence[Holding]) -> OwnerShare:
    first = own[0]
    surplus = sum(one.amount for one in own if one.use is Use.SURPLUS)
    return OwnerShare(
        unit=first.unit,
        owner=first.owner,
        use=_kind(first.use),
        core=sum(one.amount for one in own) - surplus,
        surplus=surplus,
        pods=sum(one.pods for one in own),
        colour=first.colour,
        owners=first.owners,
    )


_Owner = tuple[NodeUnit, str, Use]
_NOBODYS: Final = frozenset({Use.FREE, Use.HIDDEN})
