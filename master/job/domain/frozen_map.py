"""Immutable values of the core: a mapping that never changes, and cheap copies of frozen dataclasses.

The core's state is compared, hashed and shared, so a dict will not do.  `put` and `without` copy the whole map; for
the hundred entries that a job has, that is cheaper than any tree.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenMap(Mapping[K, V]):
    """Keys in the order in which they were put; equality and hash ignore it."""

    __slots__ = ("_entries", "_hash")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._entries: dict[K, V] = dict(entries) if entries else {}
        self._hash: int | None = None

    def put(self, key: K, value: V) -> FrozenMap[K, V]:
        """This map with the entry, in the place of the one that it replaces."""
        entries = self._entries.copy()
        entries[key] = value
        return FrozenMap._around(entries)

    def put_all(self, entries: Mapping[K, V]) -> FrozenMap[K, V]:
        """With all of these."""
        return FrozenMap._around({**self._entries, **entries})

    def without(self, key: K) -> FrozenMap[K, V]:
        """This map without the key; the same map when there is no such key."""
        if key not in self._entries:
            return self
        entries = self._entries.copy()
        del entries[key]
        return FrozenMap._around(entries)

    @classmethod
    def _around(cls, entries: dict[K, V]) -> FrozenMap[K, V]:
        made: FrozenMap[K, V] = cls.__new__(cls)
        made._entries, made._hash = entries, None
        return made

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]  # one form is enough
        return self._entries.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> ValuesView[V]:
        return self._entries.values()

    def items(self) -> ItemsView[K, V]:
        return self._entries.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenMap) and self._entries == other._entries

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._entries.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"FrozenMap({self._entries!r})"


T = TypeVar("T")


def copy_with(value: T, /, **parts: Any) -> T:
    """The same frozen dataclass value but for these fields, all of which it has.

    `dataclasses.replace` reads each field and runs `__init__`, which costs a frozen class 0.2 us a field: of the 25
    fields of `MasterState` that was a third of the core's time.  This copies the instance dict at once, so the
    classes that change with every event have no slots and no `__post_init__`.
    """
    before = value.__dict__
    after = before | parts
    assert len(after) == len(before), f"{type(value).__name__} has no {sorted(parts.keys() - before.keys())}"
    made = object.__new__(type(value))
    object.__setattr__(made, "__dict__", after)
    return made
