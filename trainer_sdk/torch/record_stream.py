"""The records of an IterableDataset by position: a reader goes through the stream, and gives those that are asked for.

The order of the stream is the order of the epoch.  Each reader, a trainer or a worker process of its loader, reads the
stream for itself and passes over what others train; a data set with `iterate_from(place)` reads none of that.  Which
workers there are decides nothing, so within the data set torch names no worker.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.utils.data import default_collate

from trainer_sdk.errors import UsageError
from trainer_sdk.specs import whole_number
from trainer_sdk.torch.record_source import RecordKey, length_of
from trainer_sdk.torch.seeds import READING, seed_generators

_NOWHERE: Final = -1
_END: Final = object()


class StreamSource:
    """The records of `dataset`, which gives `size` of them an epoch."""

    def __init__(
        self, dataset: Any, seed: int, collate_fn: Callable[[Any], Any] | None, *, size: int, kept: int
    ) -> None:
        """`kept`: records that are remembered, for steps that come again; at least 1."""
        self._dataset, self._seed, self._size = dataset, seed, size
        self._most_kept: Final = kept
        self._collate: Final = collate_fn or default_collate
        self._is_changeable: Final = collate_fn is not None  # torch's own copies what the script then may change
        self._iterator: Iterator[Any] = iter(())
        self._position = _NOWHERE  # of the record that the iterator gives next
        self._kept: dict[int, Any] = {}  # by position, in the order in which they were read

    def __getitems__(self, keys: Sequence[RecordKey]) -> Any:
        """The micro-batch of these records; as of `RecordSource`.  Raises UsageError for a stream of another size."""
        with _as_only_reader():
            records = [self._record(position) for position, _ in keys]
        return self._collate(records)

    def _record(self, position: int) -> Any:
        if position not in self._kept:
            self._go_to(position)
            while position not in self._kept:
                self._read()
        record = self._kept[position]
        return copy.deepcopy(record) if self._is_changeable else record

    def _go_to(self, position: int) -> None:
        """The iterator is at this position, or before it."""
        epoch, place = divmod(position, self._size)
        can_seek = callable(getattr(self._dataset, "iterate_from", None))
        is_ahead = epoch * self._size <= self._position <= position
        if position == self._position or (is_ahead and not can_seek):
            return
        if callable(getattr(self._dataset, "set_epoch", None)):
            self._dataset.set_epoch(epoch)
        if can_seek:
            self._position, self._iterator = position, iter(self._dataset.iterate_from(place))
        else:
            self._position, self._iterator = epoch * self._size, iter(self._dataset)

    def _read(self) -> None:
        """The next record, with the random numbers of its position whoever reads it (rule 66)."""
        position, self._position = self._position, _NOWHERE  # should anything raise
        seed_generators(self._seed, position, READING)
        epoch, place = divmod(position, self._size)
        record = next(self._iterator, _END)
        if record is _END:
            raise UsageError(self._problem(f"ended after {place} records of epoch {epoch}"))
        is_last = place == self._size - 1
        if is_last and next(self._iterator, _END) is not _END:
            raise UsageError(self._problem(f"goes on after {self._size} records of epoch {epoch}"))
        self._kept[position] = record
        if len(self._kept) > self._most_kept:
            del self._kept[next(iter(self._kept))]
        self._position = _NOWHERE if is_last else position + 1

    def _problem(self, what: str) -> str:
        return (
            f"dataset: {type(self._dataset).__name__} {what}, and size is {self._size}: give loader(size=...) the "
            "number of records that the stream has in each epoch"
        )


def stream_size(dataset: Any, size: Any) -> int:
    """Records of an epoch: `size`, or len() of the stream.  Raises UsageError when neither is known."""
    if size is None and (size := length_of(dataset)) is None:
        raise UsageError(
            f"size: {type(dataset).__name__} is a stream without len(); give loader(size=...) the number of records "
            "that it has in each epoch, for a group's steps are known before they are read"
        )
    return whole_number("size", size)


@contextmanager
def _as_only_reader() -> Iterator[None]:
    """A data set that shares its stream out among worker processes gives all of it."""
    worker = torch.utils.data._utils.worker  # noqa: SLF001  where torch looks
    info, worker._worker_info = worker._worker_info, None  # noqa: SLF001
    try:
        yield
    finally:
        worker._worker_info = info  # noqa: SLF001
