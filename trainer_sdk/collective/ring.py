"""All-reduce of a large array around a ring: each member sends to the next rank and receives from the one before.

The array has one segment a rank.  In the first size - 1 parts each member adds what arrives to its own elements and
passes the sum on; then the finished segments go around.  What is sent as part i + 1 is what was received as part i, so
both directions are one stream each, and a member sends the first elements of a part while the last ones arrive.  The
order of additions of an element is fixed by its segment, and its sum is made at one member: all have the same bits.

An element is overwritten by its finished sum only after this member's own contribution to it was sent, since the sum
contains it.
"""

from __future__ import annotations

import select
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from trainer_sdk.collective.flows import Link, take_frame
from trainer_sdk.collective.sums import ElementArray, ElementType, bytes_of, narrow
from trainer_sdk.errors import UsageError, WireError
from trainer_sdk.transport.frames import FrameKind

_REDUCE: Final = struct.Struct("<QQB")
_NUMBER_BYTES: Final = 8
_PIECE_BYTES: Final = 256 * 1024  # received, added and passed on at once: it stays in the cache of one core
_SEND_BYTES: Final = 1024 * 1024  # handed to the system in one call


@dataclass(frozen=True, slots=True)
class _Part:
    """One segment on its way: `at` its elements; `is_sum`: partial sums, which the receiver adds to its own."""

    at: slice
    is_sum: bool


class Ring:
    """One all-reduce of this member."""

    def __init__(self, kind: ElementType, stored: ElementArray, summed: ElementArray, rank: int, size: int) -> None:
        """`summed` holds the elements in the type of their sum; it may be `stored` itself."""
        self.kind, self.stored, self.summed = kind, stored, summed
        bounds = [stored.size * number // size for number in range(size + 1)]
        segments = [slice(*pair) for pair in pairwise(bounds)]
        steps = range(size - 1)
        self.sent = [_Part(segments[(rank - step) % size], True) for step in steps]
        self.sent += [_Part(segments[(rank + 1 - step) % size], False) for step in steps]
        self.received = [_Part(segments[(rank - 1 - step) % size], True) for step in steps]
        self.received += [_Part(segments[(rank - step) % size], False) for step in steps]
        self.last_sum = size - 2  # index of the part after which a segment is finished here
        self.ready = _length(segments[rank])  # elements of the stream of `sent` that may be sent

    def view(self, part: _Part) -> memoryview:
        """The bytes of a part where they are sent from and, unless they are added, received into."""
        return bytes_of((self.summed if part.is_sum else self.stored)[part.at])

    def stream_bytes(self, parts: list[_Part]) -> int:
        widths = {True: self.kind.summed.itemsize, False: self.kind.stored.itemsize}
        return sum(_length(part.at) * widths[part.is_sum] for part in parts)

    def add(self, index: int, at: slice, arrived: ElementArray) -> None:
        """Adds partial sums to the elements `at`, and finishes those of the last such part."""
        own = self.summed[at]
        np.add(own, arrived, out=own)
        if index == self.last_sum and self.kind.is_widened:
            narrow(self.kind, own, self.stored[at])


class RingSend:
    """Sends the stream to the next rank, as far as it is ready."""

    def __init__(self, link: Link, ring: Ring, header: bytes) -> None:
        self.link, self._ring = link, ring
        self.is_done = False
        self._header = header
        self._tried = -1  # `ready` of the ring at the last attempt
        self._index = self._before = self._at = 0  # part; elements before it; bytes of it that were sent
        self._view = ring.view(ring.sent[0])

    @property
    def events(self) -> int:
        return select.POLLOUT if self._sendable() or self._header else 0

    def step(self) -> bool:
        ready = self._sendable()
        if not (ready or self._header):
            return False
        if not self.link.channel.can_send and self._tried == self._ring.ready:
            return False  # with more received the system may have sent more, too
        self._tried = self._ring.ready
        piece = self._view[self._at : self._at + min(ready, _SEND_BYTES)]
        pieces = [part for part in (self._header, piece) if len(part)]
        if not (sent := self.link.channel.try_send(pieces)):
            return False
        from_header = min(sent, len(self._header))
        self._header = self._header[from_header:]
        self._at += sent - from_header
        while self._at == len(self._view) and not self.is_done:
            self._next_part()
        return True

    def _sendable(self) -> int:
        """Bytes of this part that are ready and not sent."""
        part = self._ring.sent[self._index]
        length = _length(part.at)
        if not length:
            return 0
        width = len(self._view) // length
        return min(length, self._ring.ready - self._before) * width - self._at

    def _next_part(self) -> None:
        if self._header:
            return
        self._before += _length(self._ring.sent[self._index].at)
        self._index += 1
        self._at = 0
        self.is_done = self._index == len(self._ring.sent)
        if not self.is_done:
            self._view = self._ring.view(self._ring.sent[self._index])


class RingReceive:
    """Receives the stream of the rank before, adds or stores it, and makes it ready for the next rank."""

    events = select.POLLIN

    def __init__(self, link: Link, ring: Ring, head: bytes) -> None:
        self.link, self._ring, self._head = link, ring, head
        self.is_done = False
        self._has_begun = False
        self._index = self._at = 0  # part; bytes of it that are added or stored
        self._view = ring.view(ring.received[0])
        self._piece = np.empty(_PIECE_BYTES, dtype=np.uint8)
        self._piece_view = self._piece.data
        self._filled = 0  # bytes of `_piece` that have arrived

    def step(self) -> bool:
        if not self._has_begun:
            return self._begin()
        part = self._ring.received[self._index]
        moved = self._step_sum(part) if part.is_sum else self._step_finished()
        while self._at == len(self._view) and not self.is_done:
            self._next_part()
        return moved

    def _begin(self) -> bool:
        frame = take_frame(self.link, FrameKind.GROUP_REDUCE)
        if frame is None:
            return False
        check_same_sum(frame.head, self._head)
        expected = self._ring.stream_bytes(self._ring.received)
        if frame.body_bytes != expected:
            raise WireError(f"its all-reduce has {frame.body_bytes:,} bytes, not {expected:,}")
        self._has_begun = True
        return True

    def _step_sum(self, part: _Part) -> bool:
        wanted = min(_PIECE_BYTES, len(self._view) - self._at)
        got = self.link.channel.try_receive_into(self._piece_view[self._filled : wanted])
        self._filled += got
        if self._filled < wanted:
            return got > 0
        arrived = self._piece[:wanted].view(self._ring.kind.summed)
        begin = part.at.start + self._at // arrived.itemsize
        self._ring.add(self._index, slice(begin, begin + arrived.size), arrived)
        self._ring.ready += arrived.size
        self._at += wanted
        self._filled = 0
        return True

    def _step_finished(self) -> bool:
        got = self.link.channel.try_receive_into(self._view[self._at : self._at + _PIECE_BYTES])
        width = self._ring.kind.stored.itemsize
        self._ring.ready += (self._at + got) // width - self._at // width
        self._at += got
        return got > 0

    def _next_part(self) -> None:
        self._index += 1
        self._at = 0
        self.is_done = self._index == len(self._ring.received)
        if not self.is_done:
            self._view = self._ring.view(self._ring.received[self._index])


def reduce_head(number: int, elements: int, kind: ElementType) -> bytes:
    """Head of an all-reduce's frames: number of the operation, elements, code of their type."""
    return _REDUCE.pack(number, elements, kind.code)


def check_same_sum(theirs: bytes, own: bytes) -> None:
    """Raises UsageError for another array in the same operation, which comes again with each redo; else WireError."""
    if theirs == own:
        return
    if len(theirs) == len(own) and theirs[:_NUMBER_BYTES] == own[:_NUMBER_BYTES]:
        (_, elements, code), (_, own_elements, own_code) = _REDUCE.unpack(theirs), _REDUCE.unpack(own)
        types = "" if code == own_code else ", of another type"
        raise UsageError(
            f"all_reduce: another trainer sums {elements:,} elements{types} where this one sums {own_elements:,}; all "
            "trainers must sum the same arrays in the same order, whatever their share of the records is"
        )
    raise WireError(f"its all-reduce is another one ({theirs.hex()}, not {own.hex()}): number, elements, type")


def _length(at: slice) -> int:
    return int(at.stop - at.start)
