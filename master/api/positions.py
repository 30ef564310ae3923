"""Position sets: the data positions of leases, marks and checkpoints, used throughout the protocol.

A position is a single integer, `epoch * size + index`, so a whole job is the range [0, epochs * size) and a finished
epoch collapses into the leading range by itself.  Batches, leases, acks, marks, data states and quarantines are all
`PositionSet`s.  Sets stay small because training is nearly in order: a leading range and a few holes behind it.

Pure.  The permutation from positions to records is the trainer's business (`trainer_sdk.record_order`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import lt
from struct import pack, unpack_from
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FORMAT: Final = b"P1"
_BOUND_BYTES: Final = 8
_FEW_BOUNDS: Final = 32  # splicing copies the whole set for each range: beyond this one pass over both is cheaper
MAX_POSITION: Final = 2**62


class PositionsError(ValueError):
    """These bytes or ranges are no set of positions; the message says which and why."""


@dataclass(frozen=True, slots=True)
class PositionSet:
    """Integers in [0, 2**62) as sorted, disjoint, non-touching half-open ranges.

    `bounds` is (start, stop, start, stop, ...), strictly increasing: one set has exactly one form, so equality and
    hashing are those of the set.  Build one with `span`, `of`, `EMPTY` or `decode`; the operators never fail.
    """

    bounds: tuple[int, ...] = ()

    @classmethod
    def span(cls, start: int, stop: int) -> PositionSet:
        """The positions start, ..., stop - 1; empty when stop <= start.  Raises PositionsError outside [0, 2**62]."""
        if stop <= start:
            return EMPTY
        _check_within(start, stop)
        return cls((start, stop))

    @classmethod
    def of(cls, *positions: int) -> PositionSet:
        """Exactly these positions, in any order, repeats allowed."""
        return cls.from_ranges((p, p + 1) for p in positions)

    @classmethod
    def from_ranges(cls, ranges: Iterable[tuple[int, int]]) -> PositionSet:
        """The union of these half-open ranges, in any order, overlapping or not."""
        bounds: list[int] = []
        for start, stop in sorted(ranges):
            if stop <= start:
                continue
            _check_within(start, stop)
            if bounds and start <= bounds[-1]:
                bounds[-1] = max(bounds[-1], stop)
            else:
                bounds += (start, stop)
        return cls(tuple(bounds))

    # ---- queries ----------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.bounds)

    def __len__(self) -> int:
        """Number of positions (not ranges)."""
        if len(self.bounds) == 2:
            return self.bounds[1] - self.bounds[0]
        return sum(self.bounds[1::2]) - sum(self.bounds[::2])

    def __contains__(self, position: int) -> bool:
        return bisect_right(self.bounds, position) % 2 == 1

    def __iter__(self) -> Iterator[int]:
        """Every position in order; for small sets such as a batch."""
        for start, stop in self.ranges():
            yield from range(start, stop)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The maximal half-open ranges, in order."""
        return zip(self.bounds[::2], self.bounds[1::2], strict=True)

    def isdisjoint(self, other: PositionSet) -> bool:
        return not self & other

    def __le__(self, other: PositionSet) -> bool:
        return not self - other

    # ---- operations -------------------------------------------------------------------------------------------------

    def __or__(self, other: PositionSet) -> PositionSet:
        if len(other.bounds) == 2 and self.bounds and other.bounds[0] == self.bounds[-1]:  # the next batch
            return PositionSet((*self.bounds[:-1], other.bounds[1]))
        small, large = (self, other) if len(self.bounds) <= len(other.bounds) else (other, self)
        if len(small.bounds) > _FEW_BOUNDS:
            return (self.complement() & other.complement()).complement()
        bounds = large.bounds
        for start, stop in small.ranges():  # each piece replaces what it touches: O(log n) to find, one copy to splice
            left, right = bisect_left(bounds, start), bisect_right(bounds, stop)
            inner = ((start,) if left % 2 == 0 else ()) + ((stop,) if right % 2 == 0 else ())
            bounds = bounds[:left] + inner + bounds[right:]
        return PositionSet(bounds)

    def __sub__(self, other: PositionSet) -> PositionSet:
        bounds, theirs = self.bounds, other.bounds
        if not bounds or not theirs or bounds[0] >= theirs[-1] or theirs[0] >= bounds[-1]:  # one lies behind the other
            return self
        if bounds == theirs:
            return EMPTY
        if len(theirs) == 2 and theirs[0] <= bounds[0] and theirs[1] < bounds[1]:  # the front: a lease, a batch
            return PositionSet((theirs[1], *bounds[1:]))
        if len(theirs) > min(len(bounds), _FEW_BOUNDS):
            return self & other.complement()
        for start, stop in other.ranges():
            left, right = bisect_left(bounds, start), bisect_right(bounds, stop)
            inner = ((start,) if left % 2 == 1 else ()) + ((stop,) if right % 2 == 1 else ())
            bounds = bounds[:left] + inner + bounds[right:]
        return PositionSet(bounds)

    def __and__(self, other: PositionSet) -> PositionSet:
        mine, theirs = self.bounds, other.bounds
        if not mine or not theirs or mine[0] >= theirs[-1] or theirs[0] >= mine[-1]:  # one lies behind the other
            return EMPTY
        if mine == theirs:
            return self
        small, large = (mine, theirs) if len(mine) <= len(theirs) else (theirs, mine)
        out: list[int] = []
        for start, stop in zip(small[::2], small[1::2], strict=True):
            left, right = bisect_right(large, start), bisect_left(large, stop)
            if left % 2 == 1:
                out.append(start)
            out += large[left:right]
            if right % 2 == 1:
                out.append(stop)
        return PositionSet(tuple(out))

    def complement(self) -> PositionSet:
        """All positions that are not in it, up to 2**62."""
        inner = self.bounds[1:] if self.bounds[:1] == (0,) else (0, *self.bounds)
        return PositionSet(inner[:-1] if inner[-1:] == (MAX_POSITION,) else (*inner, MAX_POSITION))

    def first(self, count: int) -> PositionSet:
        """The `count` lowest positions, or all when there are fewer."""
        if self.bounds and 0 < count <= self.bounds[1] - self.bounds[0]:
            return PositionSet((self.bounds[0], self.bounds[0] + count))
        out: list[int] = []
        for start, stop in self.ranges():
            if count <= 0:
                break
            out += (start, min(stop, start + count))
            count -= stop - start
        return PositionSet(tuple(out))

    # ---- the wire form ----------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Two bytes of format, then each bound as a little-endian 64-bit integer: 16 bytes a range."""
        return _FORMAT + pack(f"<{len(self.bounds)}q", *self.bounds)

    @classmethod
    def decode(cls, data: bytes) -> PositionSet:
        """The inverse of `encode`.  Raises PositionsError on anything that `encode` cannot have written."""
        if not data:
            return EMPTY
        if data[: len(_FORMAT)] != _FORMAT:
            raise PositionsError(
                f"positions begin with {data[:2]!r}, not {_FORMAT!r}: written by another version of EDL?"
            )
        size = len(data) - len(_FORMAT)
        if size % (2 * _BOUND_BYTES):
            raise PositionsError(f"positions are truncated: {size} bytes is not a multiple of a 16-byte range")
        bounds = unpack_from(f"<{size // _BOUND_BYTES}q", data, len(_FORMAT))
        if bounds and (bounds[0] < 0 or bounds[-1] > MAX_POSITION or not all(map(lt, bounds, bounds[1:]))):
            raise PositionsError("positions are not sorted, disjoint ranges in [0, 2**62): the bytes were altered")
        return cls(bounds)

    def __str__(self) -> str:
        """For logs and messages: `0-99,120` (inclusive ends, as people count)."""
        return ",".join(str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in self.ranges()) or "none"


EMPTY: Final = PositionSet()


def _check_within(start: int, stop: int) -> None:
    if start < 0 or stop > MAX_POSITION:
        raise PositionsError(f"positions [{start}, {stop}) are outside [0, 2**62)")


def union(sets: Iterable[PositionSet]) -> PositionSet:
    """The positions that are in any of the sets."""
    some = [one for one in sets if one.bounds]
    if len(some) < 2:
        return some[0] if some else EMPTY
    return PositionSet.from_ranges(r for s in some for r in s.ranges())


def common(sets: Iterable[PositionSet]) -> PositionSet:
    """The positions that are in all of the sets; of no sets, none."""
    result: PositionSet | None = None
    for s in sets:
        result = s if result is None else result & s
    return result or EMPTY
