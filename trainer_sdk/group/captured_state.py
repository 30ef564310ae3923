"""A captured replica as pieces of a stream, and back, without pickles (rule 71); as files: `replica_files`.

The stream begins with a JSON text: names, dtypes and shapes, then the digest of all bytes, by which the receiver knows
that it has the whole state before it touches its replica.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from trainer_sdk.errors import UsageError, WireError
from trainer_sdk.group.array_files import bytes_of
from trainer_sdk.group.port import CapturedState, HostArray

MAX_HEADER_BYTES: Final = 64 << 20
MAX_STATE_BYTES: Final = 1 << 40


def check_captured(captured: CapturedState) -> CapturedState:
    """The same state, its arrays contiguous.  Raises UsageError for an array that holds no numbers."""
    arrays = {name: np.asarray(array, order="C") for name, array in captured.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise UsageError(f"replica: {name!r} is an array of {array.dtype}; capture() gives numbers alone")
    return replace(captured, arrays=arrays)


def stream_pieces(captured: CapturedState) -> Iterator[memoryview]:
    """The pieces to send: the header, then each array that is not empty."""
    captured = check_captured(captured)
    fields = {
        "arrays": [[name, array.dtype.str, array.shape] for name, array in captured.arrays.items()],
        "meta": captured.meta,
        "dtypes": dict(captured.dtypes),
        "digest": digest_arrays(captured.arrays),
    }
    yield memoryview(json.dumps(fields).encode())
    for array in captured.arrays.values():
        if array.nbytes:
            yield bytes_of(array)


class StateReceiver:
    """Second place for a state that is being received (rule 71); `place` gives the memory for each piece."""

    def __init__(self) -> None:
        self._header: bytearray | None = None
        self._arrays: dict[str, HostArray] = {}
        self._waiting: list[HostArray] = []

    def place(self, size: int) -> memoryview:
        """Raises WireError for a piece that the header does not announce."""
        if self._header is None:
            if size > MAX_HEADER_BYTES:
                raise WireError(f"the header of a state has {size:,} bytes, more than {MAX_HEADER_BYTES:,}")
            self._header = bytearray(size)
            return memoryview(self._header)
        if not self._arrays:
            self._allocate()
        if not self._waiting or self._waiting[0].nbytes != size:
            raise WireError(f"a piece of state has {size:,} bytes, which its header does not announce")
        return bytes_of(self._waiting.pop(0))

    def finish(self) -> CapturedState:
        """The whole state.  Raises WireError unless all of it has come, unaltered."""
        fields = self._fields()
        if not self._arrays:
            self._allocate()
        if self._waiting:
            raise WireError(f"{len(self._waiting)} arrays of the state did not come")
        if digest_arrays(self._arrays) != fields["digest"]:
            raise WireError("the state's bytes are not those that were sent")
        return CapturedState(arrays=self._arrays, meta=str(fields["meta"]), dtypes=_texts(fields["dtypes"]))

    def _fields(self) -> dict[str, Any]:
        try:
            fields: Any = json.loads(self._header if self._header is not None else b"")
        except ValueError as error:
            raise WireError(f"the header of a state is no JSON ({error})") from error
        if not isinstance(fields, dict) or not {"arrays", "meta", "dtypes", "digest"} <= set(fields):
            raise WireError("the header of a state lacks fields: run one release of EDL")
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
        self._waiting = [array for array in self._arrays.values() if array.nbytes]


def digest_arrays(arrays: Mapping[str, HostArray]) -> str:
    """SHA-256 of names, dtypes, shapes and numbers; equal for replicas that are the same bit for bit."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        if array.nbytes:
            digest.update(bytes_of(array))
    return digest.hexdigest()


def _texts(value: Mapping[str, str]) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()}
