"""Views of objects that have not changed, kept from one page to the next: of 20,000 pods few change in a second.

Objects are never changed in place (`api_port`), so that an object is known again by its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from autoscaler.clusters.kubernetes.objects.fields import Raw

T = TypeVar("T")

SLACK: Final = 1_000
"""More views than twice those of the last listing are kept before what is gone is forgotten."""


class ViewMemo:
    """Views by the object that they were made of.  Two threads may use one; at worst a view is made twice."""

    def __init__(self) -> None:
        self._kept: dict[Callable[[Raw], Any], dict[int, tuple[Raw, Any]]] = {}
        self._forgets = True

    def of_part(self) -> ViewMemo:
        """Return a memo with the same views, for a part of the objects: it forgets none that others need."""
        found = ViewMemo()
        found._kept, found._forgets = self._kept, False
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
