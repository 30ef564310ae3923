"""A NumPy archive in a checkpoint storage, read array by array: what is not asked for takes no memory.

`group.array_files` reads a whole file, as a trainer needs it.  A checkpoint of Adam holds three times the model
that is exported.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import numpy as np

from master.api.checkpoints.storage import Storage
from master.api.messages.checkpoint_files import FileRecord
from trainer_sdk.errors import CheckpointError
from trainer_sdk.group.port import HostArray

_SUFFIX: Final = ".npy"
_HEAD_BYTES: Final = 64 << 10  # one request to an object store for what is said of an array
_PIECE_BYTES: Final = 8 << 20  # ... and for its numbers


class ArrayArchive(Mapping[str, HostArray]):
    """Arrays by name, of the names that begin with `prefix`; each access reads the array.

    The members' own checksums are verified as they are read.  Raises CheckpointError, StorageError.
    """

    def __init__(self, storage: Storage, file: FileRecord, *, prefix: str = "") -> None:
        self._file = file
        with self._errors():
            raw = io.BufferedReader(_StoredFile(storage, file), _HEAD_BYTES)
            self._archive = zipfile.ZipFile(raw)
        names = (name.removesuffix(_SUFFIX) for name in self._archive.namelist())
        self._members = {name.removeprefix(prefix): f"{name}{_SUFFIX}" for name in names if name.startswith(prefix)}

    def __getitem__(self, name: str) -> HostArray:
        with self._errors(), self._archive.open(self._members[name]) as member:
            pieces: Any = io.BufferedReader(cast("io.RawIOBase", member), _PIECE_BYTES)
            array: HostArray = np.lib.format.read_array(pieces, allow_pickle=False)
            return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def describe(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Dtype and shape, without the numbers."""
        with self._errors(), self._archive.open(self._members[name]) as member:
            match np.lib.format.read_magic(member):
                case (1, 0):
                    shape, _, dtype = np.lib.format.read_array_header_1_0(member)
                case _:
                    shape, _, dtype = np.lib.format.read_array_header_2_0(member)
            return dtype, shape

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, zipfile.BadZipFile, EOFError) as error:
            raise CheckpointError(self._file.name, f"is no NumPy archive ({error})") from error


class _StoredFile(io.RawIOBase):
    """A file of a storage as Python's libraries read files."""

    def __init__(self, storage: Storage, file: FileRecord) -> None:
        super().__init__()
        self._storage, self._record, self._at = storage, file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._record.size_bytes}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), max(0, self._record.size_bytes - self._at))
        if length:
            buffer[:length] = self._storage.read(self._record.name, offset=self._at, length_bytes=length)
            self._at += length
        return length
