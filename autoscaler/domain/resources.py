"""Amounts of cpu, memory, GPUs and whatever else a node can offer, in whole numbers.

Why whole numbers: sums of floats depend on their order, and a plan must not (A5).  Text such as `500m` or `8Gi` is
parsed at the edge (`autoscaler.quantities`), never here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """A vector of amounts.  Absent is zero; a difference may be negative (an over-committed node).

    `extended` holds everything else by its Kubernetes name, sorted and without zeros (`pods`: the node's pod limit,
    which every pod requests once, where the adapter counts it).
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_count: int = 0
    extended: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        """Bring `extended` into its one canonical form, so that equal amounts are equal values."""
        if len(self.extended) > 1 or any(not amount for _, amount in self.extended):
            kept = tuple(sorted((name, amount) for name, amount in self.extended if amount))
            object.__setattr__(self, "extended", kept)

    def __add__(self, other: Resources) -> Resources:
        return self.plus(other, times=1)

    def __sub__(self, other: Resources) -> Resources:
        return self.plus(other, times=-1)

    def plus(self, other: Resources, *, times: int) -> Resources:
        """Return self + times * other."""
        extended = self.extended
        if other.extended:
            sums = dict(extended)
            for name, amount in other.extended:
                sums[name] = sums.get(name, 0) + times * amount
            extended = tuple(sums.items())
        return Resources(
            cpu_milli=self.cpu_milli + times * other.cpu_milli,
            memory_bytes=self.memory_bytes + times * other.memory_bytes,
            gpu_count=self.gpu_count + times * other.gpu_count,
            extended=extended,
        )

    def amounts(self) -> Iterator[tuple[str, int]]:
        """Yield (name, amount) of every resource that is not zero, built-in ones first."""
        if self.cpu_milli:
            yield "cpu", self.cpu_milli
        if self.memory_bytes:
            yield "memory", self.memory_bytes
        if self.gpu_count:
            yield "gpu", self.gpu_count
        yield from self.extended

    def amount(self, name: str) -> int:
        """Return one amount by the name that `amounts` gives it; 0 where absent."""
        match name:
            case "cpu":
                return self.cpu_milli
            case "memory":
                return self.memory_bytes
            case "gpu":
                return self.gpu_count
            case _:
                return next((amount for known, amount in self.extended if known == name), 0)

    def fits_into(self, room: Resources) -> bool:
        """True if `room` holds at least this much of everything that is asked for.  A zero request fits anywhere."""
        if (
            (self.cpu_milli > 0 and self.cpu_milli > room.cpu_milli)
            or (self.memory_bytes > 0 and self.memory_bytes > room.memory_bytes)
            or (self.gpu_count > 0 and self.gpu_count > room.gpu_count)
        ):
            return False
        if not self.extended:
            return True
        offered = dict(room.extended)
        return all(amount <= offered.get(name, 0) for name, amount in self.extended if amount > 0)

    def is_negative(self) -> bool:
        """True if any amount is below zero."""
        return any(amount < 0 for _, amount in self.amounts())


NOTHING = Resources()
