"""Values by number, and functions of values remembered by number.

A world is a product of few different masters, trainers, servers and messages, so each of them is kept once and a state
of the world is a tuple of small integers: quick to hash, quick to compare.  The cores are pure, so what a core answers
to an event is asked for once and remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from typing import Any, Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)
Result = TypeVar("Result")


def hashed_once(self: Any) -> int:
    """`__hash__` of a frozen dataclass without slots that is deep and hashed often: the hash is kept."""
    known: dict[str, Any] = self.__dict__
    if "_hash" not in known:
        known["_hash"] = hash(tuple(getattr(self, f.name) for f in fields(self)))
    return int(known["_hash"])


class Interned(Generic[Value]):
    """Numbers for values: equal values, one number; numbers count from 0."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}
        self._values: list[Value] = []

    def number(self, value: Value) -> int:
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number

    def same(self, value: Value) -> Value:
        """The one object that stands for all equal ones: comparing it with itself is quick."""
        return self._values[self.number(value)]

    def __getitem__(self, number: int) -> Value:
        return self._values[number]

    def __len__(self) -> int:
        return len(self._values)


class Unique(Generic[Value]):
    """One object for all equal values, which is then told apart by its identity: a deep value is hashed once."""

    def __init__(self) -> None:
        self._interned: Interned[Value] = Interned()
        self._kept: dict[int, Value] = {}

    def same(self, value: Value) -> Value:
        if self._kept.get(id(value)) is value:
            return value
        one = self._interned.same(value)
        self._kept[id(one)] = one
        return one

    def forget(self) -> None:
        self._interned = Interned()
        self._kept.clear()


class RememberedOf(Generic[Result]):
    """A pure function of a `Unique` value, and of hashable ones beside it, whose answers are kept."""

    def __init__(self, function: Callable[..., Result]) -> None:
        self._function = function
        self._known: dict[tuple[Hashable, ...], tuple[object, Result]] = {}

    def __call__(self, value: object, *more: Hashable) -> Result:
        found = self._known.get((id(value), *more))
        if found is None or found[0] is not value:  # it is kept here: nothing else gets its identity
            found = self._known[id(value), *more] = value, self._function(value, *more)
        return found[1]

    def forget(self) -> None:
        self._known.clear()


class Remembered(Generic[Result]):
    """A pure function whose answers are kept.  Called with hashable arguments only."""

    def __init__(self, function: Callable[..., Result]) -> None:
        self._function = function
        self._known: dict[tuple[Hashable, ...], Result] = {}

    def __call__(self, *arguments: Hashable) -> Result:
        try:
            return self._known[arguments]
        except KeyError:
            result = self._known[arguments] = self._function(*arguments)
            return result
