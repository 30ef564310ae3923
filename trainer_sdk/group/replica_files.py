"""A copy of a replica as the files of a checkpoint, one a shard, and back at any size of the group (rules 84 to 90).

A file says of itself which shard of which state it is, what the whole replica consists of, and which rows of each array
it has.  Its layout is that of safetensors; the first rows stand where torch's distributed checkpoints have them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from master.api.checkpoints.storage import Storage
from master.api.group_shares import copy_marks
from master.api.identities import DatasetSpec, Lineage
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.generations import StateId
from master.api.positions import PositionSet
from trainer_sdk.errors import CheckpointError, UsageError
from trainer_sdk.group.array_cuts import contents_digest
from trainer_sdk.group.array_files import ArrayHeader, StoredArray, read_arrays, write_arrays
from trainer_sdk.group.port import ArrayShape, CapturedShard, CapturedState, HostArray, Rows

ABOUT: Final = "edl"  # what a file says of itself, in its header
TORCH_OFFSETS: Final = (
    "DCP_SHARDING_INFO"  # where torch's distributed checkpoints have them, in files of several shards
)
_KINDS: Final = "biufc"  # of numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedState:
    """State that a checkpoint holds: a replica, and its data position (rule 90)."""

    captured: CapturedState
    state: StateId
    skipped: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDescription:
    """Description of a shard and of the whole replica, in the shard's file."""

    state: StateId
    skipped: PositionSet
    shard: int
    shards: int
    arrays: Mapping[str, ArrayShape]  # all of the replica's
    dtypes: Mapping[str, str]
    meta: str  # in the first shard alone
    rows: Mapping[str, Rows]  # of the arrays that it has a part of


def write_shard(
    storage: Storage, name: str, part: CapturedShard, *, dataset: DatasetSpec, state: StateId, skipped: PositionSet
) -> tuple[FileRecord, str]:
    """Writes the file; its record, and the digest of what the whole replica consists of.

    Raises CheckpointError, and UsageError for an array that holds no numbers.
    """
    for key, one in part.arrays.items():
        if np.dtype(one.dtype).kind not in _KINDS:
            raise UsageError(f"replica: {key!r} is an array of {one.dtype}; capture() gives numbers alone")
    fields = {
        "version": 1,
        "state": [state.lineage, state.generation, state.step, state.is_stopped],
        "skipped": list(skipped.bounds),
        "shard": [part.shard, part.shards],
        "arrays": [[key, one.dtype, one.shape] for key, one in part.arrays.items()],
        "dtypes": dict(part.dtypes),
        "meta": part.meta,
        "rows": dict(part.rows),
    }
    about = {"format": "pt", ABOUT: json.dumps(fields)}
    if part.shards > 1:
        about[TORCH_OFFSETS] = json.dumps({key: {"saved_offsets": _offsets(part, key)} for key in part.pieces})
    written = write_arrays(storage, name, part.pieces, about=about, dtypes=part.dtypes)
    record = FileRecord(
        name=name,
        size_bytes=written.size_bytes,
        digest=written.digest,
        lineage=state.lineage,
        marks=copy_marks(dataset, state.step, skipped, part.shard),
    )
    return record, contents_digest(part.arrays, part.dtypes)


def _offsets(part: CapturedShard, name: str) -> list[int]:
    shape = part.pieces[name].shape
    return [part.rows[name].begin, *(0 for _ in shape[1:])] if shape else []


def read_copy(storage: Storage, files: Sequence[FileRecord]) -> LoadedState:
    """The whole replica, file by file.  Raises CheckpointError unless they are those that were committed, and fit."""
    described: list[tuple[str, ShardDescription]] = []
    arrays: dict[str, HostArray] = {}
    for file in files:
        header, content = read_arrays(storage, file)
        one = describe_shard(file.name, header)
        described.append((file.name, one))
        check_shards(described, len(files))
        arrays = arrays or {key: np.empty(whole.shape, dtype=whole.dtype) for key, whole in one.arrays.items()}
        for key, stored in header.arrays.items():
            take_piece(arrays[key], one.rows[key], content[stored.begin : stored.end])
    check_rows(described)
    return loaded_state(described, arrays)


def take_piece(array: HostArray, rows: Rows, content: bytes | memoryview) -> None:
    """These rows of the array are the stored ones afterwards."""
    piece = np.frombuffer(content, dtype=array.dtype.newbyteorder("<"))
    target = array[rows.begin : rows.end] if array.shape else array
    target[...] = piece.reshape(target.shape)


def loaded_state(described: Sequence[tuple[str, ShardDescription]], arrays: Mapping[str, HostArray]) -> LoadedState:
    """The replica of these arrays, not one of which is read here."""
    first = next(one for _, one in described if one.shard == 0)
    captured = CapturedState(arrays=arrays, meta=first.meta, dtypes=first.dtypes)
    return LoadedState(captured=captured, state=first.state, skipped=first.skipped)


def describe_shard(file: str, header: ArrayHeader) -> ShardDescription:
    """Description in the file.  Raises CheckpointError unless it says all, and of each array that it has."""
    try:
        fields: dict[str, Any] = json.loads(header.about[ABOUT])
        lineage, generation, step, is_stopped = (int(number) for number in fields["state"])
        bounds = [int(bound) for bound in fields["skipped"]]
        described = ShardDescription(
            state=StateId(lineage=Lineage(lineage), generation=generation, step=step, is_stopped=bool(is_stopped)),
            skipped=PositionSet.from_ranges(zip(bounds[::2], bounds[1::2], strict=True)),
            shard=int(fields["shard"][0]),
            shards=int(fields["shard"][1]),
            arrays=dict(_shapes(fields["arrays"])),
            dtypes={str(key): str(text) for key, text in fields["dtypes"].items()},
            meta=str(fields["meta"]),
            rows={key: Rows(int(begin), int(end)) for key, (begin, end) in fields["rows"].items()},
        )
        _check_pieces(described, header.arrays)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(file, f"holds no replica of a group ({error!r})") from error
    return described


def _check_pieces(described: ShardDescription, stored: Mapping[str, StoredArray]) -> None:
    if described.rows.keys() != stored.keys():
        raise ValueError("other arrays than it says")
    for name, rows in described.rows.items():
        size, place = described.arrays[name].cut(rows).nbytes, stored[name]
        if place.end - place.begin != size:
            raise ValueError(f"{name!r} has {place.end - place.begin:,} bytes, not {size:,}")


def _shapes(listed: Iterable[Any]) -> Iterator[tuple[str, ArrayShape]]:
    for name, dtype, shape in listed:
        if np.dtype(dtype).kind not in _KINDS:
            raise ValueError(f"{name!r} is an array of {dtype}")
        yield str(name), ArrayShape(dtype=str(dtype), shape=tuple(int(number) for number in shape))


def check_shards(described: Sequence[tuple[str, ShardDescription]], shards: int) -> None:
    """Raises CheckpointError unless these are shards of one state, in order, of the same arrays (rule 88)."""
    for place, (file, one) in enumerate(described):
        first = described[0][1]
        if (one.shard, one.shards) != (place, shards):
            raise CheckpointError(file, f"is shard {one.shard} of {one.shards}, not {place} of {shards}")
        if (one.state, one.skipped) != (first.state, first.skipped) or one.arrays != first.arrays:
            raise CheckpointError(file, f"is a shard of another state or of other arrays than {described[0][0]}")


def check_rows(described: Sequence[tuple[str, ShardDescription]]) -> None:
    """Raises CheckpointError unless each row of each array is in one of the shards."""
    file, first = described[0]
    for name, whole in first.arrays.items():
        parts = sorted(one.rows[name] for _, one in described if name in one.rows)
        ends = [0, *(end for _, end in parts)]
        if [begin for begin, _ in parts] != ends[:-1] or not parts or ends[-1] != whole.rows:
            raise CheckpointError(file, f"{name!r}: its rows are not each in one shard")
