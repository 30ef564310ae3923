"""Named arrays as one file of a checkpoint folder, in the layout of safetensors, and back (ADR 0255).

Eight bytes of length, a JSON header with dtype, shape and place of each array, and the arrays' bytes, little-endian,
without holes.  What is written is hashed and written in large pieces straight from the arrays: neither a second copy in
memory nor work that holds Python's lock while a step is trained.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from master.api.checkpoints.storage import Storage
from master.api.checkpoints.storage_errors import WrittenFile
from master.api.errors import StorageError
from master.api.messages.checkpoint_files import FileRecord
from trainer_sdk.errors import CheckpointError, UsageError
from trainer_sdk.group.port import HostArray

METADATA: Final = "__metadata__"
MAX_HEADER_BYTES: Final = 100_000_000  # as other readers of the format have it
DTYPE_LABELS: Final[Mapping[str, str]] = {
    "bool": "BOOL",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    **{f"{kind}{8 * size}": f"{kind[0].upper()}{8 * size}" for kind in ("int", "uint") for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": f"F{8 * size}" for size in (2, 4, 8)},
}
"""Names of the format, by NumPy's and torch's."""

_ALIGNED_BYTES: Final = 8
_PIECE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """Place of an array in a file.  The caller knows its dtype: the format has no name for each."""

    begin: int
    end: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayHeader:
    """Header of a file: what it holds, and where."""

    about: Mapping[str, str]
    arrays: Mapping[str, StoredArray]


def encode_header(arrays: Mapping[str, tuple[str, tuple[int, ...], int]], about: Mapping[str, str]) -> bytes:
    """The beginning of a file of these (label, shape, bytes) in this order.  Raises UsageError for a name it keeps."""
    header: dict[str, object] = {METADATA: dict(about)}
    at = 0
    for name, (label, shape, size) in arrays.items():
        if name == METADATA:
            raise UsageError(f"{name}: is a name that the format keeps for itself; give this array another one")
        header[name] = {"dtype": label, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED_BYTES)
    return len(text).to_bytes(8, "little") + text


def write_arrays(
    storage: Storage,
    name: str,
    arrays: Mapping[str, HostArray],
    *,
    about: Mapping[str, str],
    dtypes: Mapping[str, str],
) -> WrittenFile:
    """Writes arrays of numbers.  `dtypes`: of those whose bits integers carry.  Raises CheckpointError, UsageError."""
    flat = {key: little_endian(array) for key, array in arrays.items()}
    ordered = sorted(flat, key=lambda key: (-flat[key].itemsize, key))  # aligned by this
    header = encode_header(
        {key: (*_as_labelled(flat[key], dtypes.get(key)), flat[key].nbytes) for key in ordered}, about
    )
    try:
        return storage.write_file(name, _pieces(header, (flat[key] for key in ordered)))
    except StorageError as error:
        raise CheckpointError(name, error.problem) from error


def _as_labelled(array: HostArray, carried: str | None) -> tuple[str, tuple[int, ...]]:
    """Label and shape; numbers that the format has no name for are their bytes."""
    label = DTYPE_LABELS.get(carried or array.dtype.name)
    return (label, array.shape) if label else ("U8", (*array.shape, array.itemsize))


def _pieces(header: bytes, arrays: Iterator[HostArray]) -> Iterator[bytes | memoryview]:
    yield header
    for array in arrays:
        content = bytes_of(array)
        for begin in range(0, array.nbytes, _PIECE_BYTES):
            yield content[begin : begin + _PIECE_BYTES]


def read_header(storage: Storage, file: FileRecord) -> ArrayHeader:
    """Header of the file, by two short reads.  Raises CheckpointError, StorageError."""
    length = int.from_bytes(storage.read(file.name, length_bytes=8), "little")
    if not 0 < length <= min(MAX_HEADER_BYTES, file.size_bytes - 8):
        raise CheckpointError(file.name, f"is no file of arrays: its header would have {length:,} bytes")
    return _parse_header(file, storage.read(file.name, offset=8, length_bytes=length))


def read_arrays(storage: Storage, file: FileRecord) -> tuple[ArrayHeader, memoryview]:
    """Header and content of a file.  Raises CheckpointError unless it is the one that was committed."""
    try:
        content = storage.read(file.name)
    except StorageError as error:
        raise CheckpointError(file.name, error.problem) from error
    if hashlib.sha256(content).hexdigest() != file.digest:
        raise CheckpointError(file.name, "its bytes are not those that were committed: restore an older checkpoint")
    length = int.from_bytes(content[:8], "little")
    return _parse_header(file, content[8 : 8 + length]), memoryview(content)


def _parse_header(file: FileRecord, text: bytes) -> ArrayHeader:
    try:
        fields: dict[str, Any] = json.loads(text)
        about = {str(key): str(value) for key, value in fields.pop(METADATA, {}).items()}
        arrays = {name: _place(len(text) + 8, one) for name, one in fields.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(file.name, f"is no file of arrays ({error!r})") from error
    if any(not 0 <= one.begin <= one.end <= file.size_bytes for one in arrays.values()):
        raise CheckpointError(file.name, "names places behind its end")
    return ArrayHeader(about=about, arrays=arrays)


def _place(base: int, fields: Mapping[str, Any]) -> StoredArray:
    begin, end = fields["data_offsets"]
    return StoredArray(begin=base + int(begin), end=base + int(end), shape=tuple(int(n) for n in fields["shape"]))


def little_endian(array: HostArray) -> HostArray:
    """The same numbers, contiguous and little-endian; the array itself where it is."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def bytes_of(array: HostArray) -> memoryview:
    """The bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data
