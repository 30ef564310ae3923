"""Names in a state: leases, cuts and manifests.  They are compared for equality or order and mean nothing else.

So a state may be told under other names; which ones, `canonical` says.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum, auto
from functools import cache
from typing import Any, Final

from master.api.identities import CutId, DatasetSpec, Incarnation, LeaseToken, TableSpec, Term
from master.api.positions import PositionSet
from master.job.domain.frozen_map import FrozenMap
from master.job.domain.job_config import JobConfig

_MANIFEST: Final = re.compile(r"\d{6}-\d{10}-\d{6}|m\d+")
_LEAVES: Final = (int, float, bool, type(None), PositionSet, DatasetSpec, TableSpec, JobConfig)

Numbered = tuple[Term, int]


@dataclass(frozen=True, slots=True)
class Names:
    """What is named in a value."""

    leases: frozenset[Numbered] = frozenset()
    cuts: frozenset[Numbered] = frozenset()
    manifests: frozenset[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(self.leases | other.leases, self.cuts | other.cuts, self.manifests | other.manifests)


@dataclass(frozen=True, slots=True)
class Renaming:
    """Old name to new name, for those that change, in a form that hashes."""

    leases: tuple[tuple[Numbered, int], ...] = ()
    cuts: tuple[tuple[Numbered, int], ...] = ()
    manifests: tuple[tuple[str, str], ...] = ()
    requests: tuple[tuple[Incarnation, int], ...] = ()  # of living trainers: their newest request


class Make(Enum):
    """What a value is to those that look for names."""

    LEAF = auto()
    TEXT = auto()
    LEASE = auto()
    CUT = auto()
    RECORD = auto()
    MAPPING = auto()
    ITEMS = auto()


@cache
def _make_of(kind: type) -> Make:
    """By its type, asked once for each: millions of values are looked at.  Raises TypeError."""
    if issubclass(kind, (*_LEAVES, Enum)):
        return Make.LEAF
    for base, make in ((str, Make.TEXT), (LeaseToken, Make.LEASE), (CutId, Make.CUT)):
        if issubclass(kind, base):
            return make
    if is_dataclass(kind):
        return Make.RECORD
    if issubclass(kind, Mapping):
        return Make.MAPPING
    if issubclass(kind, Iterable):
        return Make.ITEMS
    raise TypeError(f"{kind} in a state")


@cache
def _names_of_parts(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


@cache
def _reader_of_parts(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    names = _names_of_parts(kind)
    return operator.attrgetter(*names) if len(names) > 1 else lambda one: tuple(getattr(one, name) for name in names)


def names_in(value: Any) -> Names:
    leases: set[Numbered] = set()
    cuts: set[Numbered] = set()
    manifests: set[str] = set()
    rest = [value]
    while rest:
        one = rest.pop()
        make = _make_of(type(one))
        if make is Make.LEAF:
            continue
        if make is Make.RECORD:
            rest += _reader_of_parts(type(one))(one)
        elif make is Make.TEXT:
            if _MANIFEST.fullmatch(one):
                manifests.add(one)
        elif make is Make.ITEMS:
            rest += one
        elif make is Make.MAPPING:
            rest += one.keys()
            rest += one.values()
        elif make is Make.LEASE:
            leases.add((one.term, one.number))
        else:
            cuts.add((one.term, one.sequence))
    return Names(frozenset(leases), frozenset(cuts), frozenset(manifests))


class Renamer:
    """Applies a renaming to a value of any make."""

    def __init__(self, renaming: Renaming) -> None:
        self.leases, self.cuts = dict(renaming.leases), dict(renaming.cuts)
        self.manifests = dict(renaming.manifests)

    def __call__(self, one: Any) -> Any:
        make = _make_of(type(one))
        if make is Make.LEAF:
            return one
        if make is Make.RECORD:
            found = _reader_of_parts(type(one))(one)
            new = [self(value) for value in found]
            if all(map(operator.is_, found, new)):
                return one
            return type(one)(**dict(zip(_names_of_parts(type(one)), new, strict=True)))
        if make is Make.TEXT:
            return self.manifests.get(one, one)
        if make is Make.LEASE:
            return replace(one, number=self.leases.get((one.term, one.number), one.number))
        if make is Make.CUT:
            return replace(one, sequence=self.cuts.get((one.term, one.sequence), one.sequence))
        if isinstance(one, FrozenMap):
            return FrozenMap({self(key): self(value) for key, value in one.items()})
        if isinstance(one, tuple):
            new_items = tuple(self(item) for item in one)
            return one if all(map(operator.is_, one, new_items)) else new_items
        if isinstance(one, frozenset):
            return frozenset(self(item) for item in one)
        raise TypeError(f"{type(one)} in a state")


def renamed(value: Any, renaming: Renaming, names: Names) -> Any:
    """The value, whose names these are, under new ones; itself when all stay."""
    stays = (
        all(new == old[1] for old, new in renaming.leases if old in names.leases)
        and all(new == old[1] for old, new in renaming.cuts if old in names.cuts)
        and all(new == old for old, new in renaming.manifests if old in names.manifests)
    )
    return value if stays else Renamer(renaming)(value)
