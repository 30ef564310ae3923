"""Staged bucket contents, and the memory in which they arrived.

A bucket is received into memory of its own and stays there until it is served.  Fresh pages cost more than the copy
into them, so that memory is used again while buckets come one after another.  `core.bucket_moves` decides what is
staged.  Not thread-safe: the shell's lock guards it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from master.api.identities import BucketId
from trainer_sdk.pserver.tables.bucket_codec import BucketContents
from trainer_sdk.pserver.tables.layout import Array

_SMALL_BYTES: Final = 1 << 18  # smaller buffers are not kept
_SPARE_BYTES: Final = 32 << 20  # kept for the next buckets


class _Layer(NamedTuple):
    contents: BucketContents  # views of `body`
    body: memoryview


class StagingArea:
    """Staged contents of one server."""

    def __init__(self) -> None:
        self._layers: dict[BucketId, tuple[_Layer, ...]] = {}
        self._spare: list[Array] = []  # of bytes

    def take_spare(self, size_bytes: int) -> memoryview | None:
        """Spare memory for a copy that is about to be received; None: use `new_buffer`."""
        for number, held in enumerate(self._spare):
            if len(held) >= size_bytes > _SMALL_BYTES:
                return self._spare.pop(number).data[:size_bytes]
        return None

    def put(self, bucket: BucketId, contents: BucketContents, body: memoryview, *, is_difference: bool) -> None:
        """Stages `contents`, views of `body`; a difference is laid over what is staged, else it replaces that."""
        below = self._layers[bucket] if is_difference else ()
        if not is_difference:
            self.drop(bucket)
        self._layers[bucket] = (*below, _Layer(contents, body))

    def pop_layers(self, bucket: BucketId) -> Iterator[BucketContents]:
        """Removes and yields the layers of this bucket, lowest first; each is valid until the next one."""
        for layer in self._layers.pop(bucket):
            yield layer.contents
            self._recycle(layer.body)

    def drop(self, bucket: BucketId) -> None:
        for layer in self._layers.pop(bucket, ()):
            self._recycle(layer.body)

    def clear(self) -> None:
        self._layers.clear()
        self._spare.clear()

    def row_counts(self) -> Iterator[tuple[str, int]]:
        """Table and number of rows, for all staged contents."""
        for layers in self._layers.values():
            for layer in layers:
                yield from row_counts_of(layer.contents)

    def _recycle(self, body: memoryview) -> None:
        memory, spare_bytes = body.obj, sum(map(len, self._spare))
        if isinstance(memory, np.ndarray) and _SMALL_BYTES < len(memory) <= _SPARE_BYTES - spare_bytes:
            self._spare.append(memory)


def new_buffer(size_bytes: int) -> memoryview:
    """Uninitialised memory for a copy: its pages are touched as bytes arrive, not under a lock."""
    slack = size_bytes // 8 if size_bytes > _SMALL_BYTES else 0  # the next bucket may be a little larger
    return np.empty(size_bytes + slack, dtype=np.uint8).data[:size_bytes]


def row_counts_of(contents: BucketContents) -> Iterator[tuple[str, int]]:
    """Table and number of rows, for each sparse table."""
    return ((name, len(arrays["ids"])) for name, arrays in contents.items() if "ids" in arrays)
