"""The arrays of a group's checkpoint, read one by one from its shards: what is not asked for takes no memory.

`group.replica_files` reads a whole checkpoint, as a trainer needs it.  One of Adam holds three times the model that is
exported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from master.api.checkpoints.storage import Storage
from master.api.messages.checkpoint_files import FileRecord
from trainer_sdk.group.array_files import StoredArray, read_header
from trainer_sdk.group.port import ArrayShape, HostArray
from trainer_sdk.group.replica_files import (
    LoadedState,
    ShardDescription,
    check_rows,
    check_shards,
    describe_shard,
    loaded_state,
    take_piece,
)


class StoredArrays(Mapping[str, HostArray]):
    """Arrays by name; each access reads the array.  Raises CheckpointError, StorageError."""

    def __init__(self, storage: Storage, files: Sequence[FileRecord]) -> None:
        self._storage = storage
        self._shards: list[tuple[str, ShardDescription]] = []
        self._places: list[Mapping[str, StoredArray]] = []
        for file in files:
            header = read_header(storage, file)
            self._shards.append((file.name, describe_shard(file.name, header)))
            self._places.append(header.arrays)
        check_shards(self._shards, len(files))
        check_rows(self._shards)
        self.shapes: Mapping[str, ArrayShape] = self._shards[0][1].arrays

    def loaded(self) -> LoadedState:
        """The replica, whose arrays are these."""
        return loaded_state(self._shards, self)

    def __getitem__(self, name: str) -> HostArray:
        whole = self.shapes[name]
        array: HostArray = np.empty(whole.shape, dtype=whole.dtype)
        for (file, one), places in zip(self._shards, self._places, strict=True):
            if (rows := one.rows.get(name)) is not None:
                place = places[name]
                length = place.end - place.begin
                take_piece(array, rows, self._storage.read(file, offset=place.begin, length_bytes=length))
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes
