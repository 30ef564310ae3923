"""A captured replica as pieces of a stream and as one checkpoint file, and back, without pickles (rules 71, 85, 90).

The stream begins with a JSON text: names, dtypes and shapes, then the digest of all bytes, by which the receiver knows
that it has the whole state before it touches its replica.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from master.api.checkpoints.storage import Storage
from master.api.group_shares import copy_marks
from master.api.identities import DatasetSpec, Lineage
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.generations import StateId
from master.api.positions import PositionSet
from trainer_sdk.errors import CheckpointError, UsageError, WireError
from trainer_sdk.group.array_files import read_arrays, write_arrays
from trainer_sdk.group.port import CapturedState, HostArray

MAX_HEADER_BYTES: Final = 64 << 20
MAX_STATE_BYTES: Final = 1 << 40
ARRAY_PREFIX: Final = "array/"  # before each name in a file
REST_NAME: Final = "replica.json"


def check_captured(captured: CapturedState) -> CapturedState:
    """The same state, its arrays contiguous.  Raises UsageError for an array that holds no numbers."""
    arrays = {name: np.asarray(array, order="C") for name, array in captured.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise UsageError(f"replica: {name!r} is an array of {array.dtype}; capture() gives numbers alone")
    return replace(captured, arrays=arrays)


# ---- as a stream ----------------------------------------------------------------------------------------------------


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
            yield _bytes(array)


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
        return _bytes(self._waiting.pop(0))

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


# ---- as a file ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedState:
    """What a checkpoint file holds: a replica, and its data position (rule 90)."""

    captured: CapturedState
    state: StateId
    skipped: PositionSet


def write_copy(
    storage: Storage, name: str, captured: CapturedState, *, dataset: DatasetSpec, state: StateId, skipped: PositionSet
) -> FileRecord:
    """Writes the copy as one NumPy archive.  Raises CheckpointError, UsageError."""
    captured = check_captured(captured)
    rest = {
        "meta": captured.meta,
        "dtypes": dict(captured.dtypes),
        "state": [state.lineage, state.generation, state.step],
        "skipped": list(skipped.bounds),
    }
    arrays = {ARRAY_PREFIX + key: array for key, array in captured.arrays.items()}
    arrays[REST_NAME] = np.frombuffer(json.dumps(rest).encode(), dtype=np.uint8)
    written = write_arrays(storage, name, arrays)
    return FileRecord(
        name=name,
        size_bytes=written.size_bytes,
        digest=written.digest,
        lineage=state.lineage,
        marks=copy_marks(dataset, state.step, skipped, 0),
    )


def read_copy(storage: Storage, file: FileRecord) -> LoadedState:
    """Raises CheckpointError unless the file is the one that was committed, and holds a replica."""
    held = read_arrays(storage, file)
    rest = held.pop(REST_NAME, np.empty(0))
    return parse_copy(file.name, rest, {name.removeprefix(ARRAY_PREFIX): array for name, array in held.items()})


def parse_copy(file: str, rest: HostArray, arrays: Mapping[str, HostArray]) -> LoadedState:
    """The replica of these arrays, not one of which is read; `rest` is REST_NAME's.  Raises CheckpointError."""
    try:
        fields = json.loads(rest.tobytes())
        lineage, generation, step = (int(number) for number in fields["state"])
        bounds = [int(bound) for bound in fields["skipped"]]
        return LoadedState(
            captured=CapturedState(arrays=arrays, meta=str(fields["meta"]), dtypes=_texts(fields["dtypes"])),
            state=StateId(lineage=Lineage(lineage), generation=generation, step=step),
            skipped=PositionSet.from_ranges(zip(bounds[::2], bounds[1::2], strict=True)),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(file, f"holds no replica of a group ({error!r})") from error


def digest_arrays(arrays: Mapping[str, HostArray]) -> str:
    """SHA-256 of names, dtypes, shapes and numbers; equal for replicas that are the same bit for bit."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        if array.nbytes:
            digest.update(_bytes(array))
    return digest.hexdigest()


def _texts(value: Mapping[str, str]) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()}


def _bytes(array: HostArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
