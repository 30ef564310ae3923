"""Views of what has not changed, kept from one page to the next: of 20,000 pods few change in a second.

Objects are never changed in place (`api_port`), so that an object is known again by its identity, and so is a listing:
a source gives the same tuple while nothing of a kind has changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import is_
from typing import Any, Final, TypeVar, TypeVarTuple

from autoscaler.clusters.kubernetes.objects.fields import Raw

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
E = TypeVar("E")

SLACK: Final = 1_000
"""More views than twice those of the last listing are kept before what is gone is forgotten."""

MOST_PARTS: Final = 32
"""Parts of the objects, each as some viewers may read it; those not asked for longest are forgotten."""


class ViewMemo:
    """Views by what they were made of.  Two threads may use one; at worst a view is made twice."""

    def __init__(self) -> None:
        self._kept: dict[Callable[[Raw], Any], dict[int, tuple[Raw, Any]]] = {}
        self._rows: dict[Callable[..., Any], dict[int, tuple[Sequence[Any], Any]]] = {}
        self._whole: dict[tuple[Callable[..., Any], str], tuple[Sequence[Any], Any]] = {}
        self._last: dict[str, Any] = {}
        self._parts: OrderedDict[Hashable, ViewMemo] = OrderedDict()
        self._forgets = True

    def of_part(self, name: Hashable = None) -> ViewMemo:
        """Return the memo of a part of the objects: it has the same views of them, and forgets none that others need.

        It is the same one each time, for as long as it is kept.
        """
        found = self._parts.pop(name, None)
        if found is None:
            found = ViewMemo()
            found._kept, found._forgets = self._kept, False
        self._parts[name] = found
        while len(self._parts) > MOST_PARTS:
            self._parts.popitem(last=False)
        return found

    def each(self, make: Callable[[Raw], T], objects: Iterable[Raw]) -> list[T]:
        """Return `make` of each object, in order."""
        kept = self._kept.setdefault(make, {})
        found: list[tuple[Raw, T]] = []
        for raw in objects:
            known = kept.get(id(raw))
            if known is None or known[0] is not raw:
                known = kept[id(raw)] = (raw, make(raw))
            found.append(known)
        if self._forgets and len(kept) > 2 * len(found) + SLACK:
            self._kept[make] = {id(raw): (raw, view) for raw, view in found}
        return [view for _, view in found]

    def each_row(self, make: Callable[..., T], rows: Iterable[Sequence[Any]]) -> list[T]:
        """Return `make(*row)` of each row, in order; one of the same objects as last time is not made again.

        No two rows begin with the same object.
        """
        kept, found = self._rows.get(make, {}), dict[int, tuple[Sequence[Any], T]]()
        for row in rows:
            known = kept.get(id(row[0]))
            found[id(row[0])] = known if known is not None and are_same(known[0], row) else (row, make(*row))
        self._rows[make] = found
        return [view for _, view in found.values()]

    def once(self, make: Callable[[*Ts], T], *of: *Ts, name: str = "") -> T:
        """Return `make(*of)`, made anew when one of these is another object than last time.

        `name`: tells uses of one function apart.
        """
        known = self._whole.get((make, name))
        if known is None or not are_same(known[0], of):
            known = self._whole[make, name] = (of, make(*of))
        found: T = known[1]
        return found

    def same(self, name: str, value: T) -> T:
        """Return the last value of this name if it equals this one, so that what was made of it still counts."""
        last = self._last.get(name)
        if last != value:
            self._last[name] = last = value
        found: T = last
        return found

    def same_objects(self, name: str, objects: tuple[E, ...]) -> tuple[E, ...]:
        """Return the last tuple of this name if it has the same objects in the same order, else this one."""
        last: tuple[E, ...] | None = self._last.get(name)
        if last is None or not are_same(last, objects):
            self._last[name] = last = objects
        return last


def are_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """True if both have the same objects, each at its place."""
    return len(one) == len(other) and all(map(is_, one, other))
