"""A captured replica as pieces of a stream, and back, without pickles (rule 71); as files: `replica_files`.

The stream begins with a JSON text: names, dtypes and shapes.  Then come the arrays, in pieces of PIECE_BYTES, and last
their checksum, by which the receiver knows that it has the whole state before it touches its replica.  It finds
accidents: strangers are kept out by the connection, and replicas are compared in their first step (ADR 0290).  Both
sides sum a piece up while others are under way, since a group waits for the whole of it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from zlib import crc32

import numpy as np

from trainer_sdk.errors import UsageError, WireError
from trainer_sdk.group.array_files import bytes_of
from trainer_sdk.group.port import CapturedState, HostArray

MAX_HEADER_BYTES: Final = 64 << 20
MAX_STATE_BYTES: Final = 1 << 40
PIECE_BYTES: Final = 1 << 20
_CHECKSUM_BYTES: Final = 8  # CRC-32, hexadecimal: a third of the time of SHA-256


def check_captured(captured: CapturedState) -> CapturedState:
    """The same state, its arrays contiguous.  Raises UsageError for an array that holds no numbers."""
    arrays = {name: np.asarray(array, order="C") for name, array in captured.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise UsageError(f"replica: {name!r} is an array of {array.dtype}; capture() gives numbers alone")
    return replace(captured, arrays=arrays)


def stream_pieces(captured: CapturedState) -> Iterator[memoryview]:
    """The pieces to send: the header, those of each array, the checksum."""
    captured = check_captured(captured)
    fields = {
        "arrays": [[name, array.dtype.str, array.shape] for name, array in captured.arrays.items()],
        "meta": captured.meta,
        "dtypes": dict(captured.dtypes),
    }
    yield memoryview(json.dumps(fields).encode())
    checksum = 0
    for name, array in captured.arrays.items():
        checksum = crc32(_title(name, array), checksum)
        for piece in _pieces(array):
            checksum = crc32(piece, checksum)
            yield piece
    yield memoryview(_told(checksum))


class StateReceiver:
    """Second place for a state that is being received (rule 71); `place` gives the memory for each piece."""

    def __init__(self) -> None:
        self._header: bytearray | None = None
        self._arrays: dict[str, HostArray] = {}
        self._coming: Iterator[memoryview] = iter(())
        self._under_way = memoryview(b"")  # the piece whose memory was given last
        self._checksum = 0
        self._told_checksum: bytearray | None = None

    def place(self, size: int) -> memoryview:
        """The memory for the next piece; the one before has come.  Raises WireError if the header does not announce it.

        The bytes of a piece are summed up as the next one is asked for.
        """
        if self._header is None:
            if size > MAX_HEADER_BYTES:
                raise WireError(f"the header of a state has {size:,} bytes, more than {MAX_HEADER_BYTES:,}")
            self._header = bytearray(size)
            return memoryview(self._header)
        if self._told_checksum is not None:
            raise WireError(f"a piece of {size:,} bytes after the end of a state")
        piece = self._next_piece()
        if piece is None:
            self._told_checksum = bytearray(_CHECKSUM_BYTES)
            piece = memoryview(self._told_checksum)
        if len(piece) != size:
            raise WireError(f"a piece of state has {size:,} bytes, which its header does not announce")
        return piece

    def finish(self) -> CapturedState:
        """The whole state.  Raises WireError unless all of it has come, unaltered."""
        fields = self._fields()
        if self._told_checksum is None:
            raise WireError("the end of the state did not come")
        if self._told_checksum != _told(self._checksum):
            raise WireError("the state's bytes are not those that were sent")
        return CapturedState(arrays=self._arrays, meta=str(fields["meta"]), dtypes=_texts(fields["dtypes"]))

    def _next_piece(self) -> memoryview | None:
        """Memory for the next piece of an array; None: all have come."""
        self._checksum = crc32(self._under_way, self._checksum)
        if not self._arrays:
            self._allocate()
            self._coming = self._pieces()
        self._under_way = next(self._coming, memoryview(b""))
        return self._under_way or None

    def _pieces(self) -> Iterator[memoryview]:
        for name, array in self._arrays.items():
            self._checksum = crc32(_title(name, array), self._checksum)
            yield from _pieces(array)

    def _fields(self) -> dict[str, Any]:
        try:
            fields: Any = json.loads(self._header if self._header is not None else b"")
        except ValueError as error:
            raise WireError(f"the header of a state is no JSON ({error})") from error
        if not isinstance(fields, dict) or set(fields) != {"arrays", "meta", "dtypes"}:
            raise WireError("the header of a state has other fields: run one release of EDL")
        return fields

    def _allocate(self) -> None:
        try:
            shapes = [(str(name), np.dtype(kind), tuple(shape)) for name, kind, shape in self._fields()["arrays"]]
            total = sum(kind.itemsize * math.prod(shape) for _, kind, shape in shapes)
            if total > MAX_STATE_BYTES or any(kind.kind not in "biufc" for _, kind, _ in shapes):
                raise WireError(f"a state of {total:,} bytes is refused")
            self._arrays = {name: np.empty(shape, dtype=kind) for name, kind, shape in shapes}
        except (ValueError, TypeError) as error:
            raise WireError(f"the header of a state names an array that cannot be ({error})") from error


def digest_arrays(arrays: Mapping[str, HostArray]) -> str:
    """SHA-256 of names, dtypes, shapes and numbers; equal for replicas that are the same bit for bit."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(_title(name, array))
        if array.nbytes:
            digest.update(bytes_of(array))
    return digest.hexdigest()


def _told(checksum: int) -> bytes:
    return f"{checksum:08x}".encode()


def _title(name: str, array: HostArray) -> bytes:
    return f"{name} {array.dtype.str} {array.shape}\n".encode()


def _pieces(array: HostArray) -> Iterator[memoryview]:
    """The array's bytes; none for an empty array."""
    if array.nbytes:
        whole = bytes_of(array)
        for begin in range(0, len(whole), PIECE_BYTES):
            yield whole[begin : begin + PIECE_BYTES]


def _texts(value: Mapping[str, str]) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()}
