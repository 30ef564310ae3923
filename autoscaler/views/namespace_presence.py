"""Which namespaces have ended: those in which nothing has stood for a while.

The problem: what is remembered of a namespace outlives it, and whoever gets its name next may read that name's history.
The page may not list namespaces themselves, so that it goes by what stands in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

NAMESPACE_KEPT_S: Final = 600.0
"""A namespace that is empty for less, between two jobs, keeps its history."""


class NamespacePresence:
    """Since when each namespace of which something is remembered is empty; bounded by what is remembered."""

    def __init__(self) -> None:
        self._empty_since_s: dict[str, float] = {}

    def ended(self, remembered: Iterable[str], present: AbstractSet[str], now_s: float) -> frozenset[str]:
        """Return those that are remembered and have had nothing for `NAMESPACE_KEPT_S`.

        `present`: namespaces with an object, at `now_s`.  A clock that went back begins the wait anew.
        """
        since = self._empty_since_s
        self._empty_since_s = {
            name: min(since.get(name, now_s), now_s) for name in remembered if name and name not in present
        }
        return frozenset(name for name, at_s in self._empty_since_s.items() if now_s - at_s >= NAMESPACE_KEPT_S)
