"""Micro-batches of a script's data set, by position and record, with random numbers by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate

from trainer_sdk.errors import UsageError
from trainer_sdk.torch.seeds import READING, is_accelerator_in_use, numpy_and_python_states, seed_generators, seed_torch

RecordKey = tuple[int, int]  # position in the job's order, record number


class RecordSource:
    """The micro-batches of `dataset`, as `collate_fn` makes them of its records; None: as torch does."""

    def __init__(self, dataset: Any, seed: int, collate_fn: Callable[[Any], Any] | None) -> None:
        self._dataset, self._seed = dataset, seed
        self._collate: Final = collate_fn or default_collate
        # Without code of the script's there are no random numbers, and seeding would cost more than reading.
        self._is_plain: Final = type(dataset) is TensorDataset and collate_fn is None
        self._can_select: Final = self._is_plain and all(map(_is_plain, dataset.tensors))
        self._reads_at_once: Final = _reads_at_once(dataset)
        self._draws = False  # True once reading or collating has drawn from the generators of NumPy or Python
        self._draws_torch = False  # ... or of torch

    def __getitems__(self, keys: Sequence[RecordKey]) -> Any:
        """The micro-batch of these records; so named that a DataLoader asks for all of them at once."""
        if self._can_select:
            rows = torch.tensor([record for _, record in keys])
            return [tensor.index_select(0, rows) for tensor in self._dataset.tensors]
        if self._is_plain:
            return self._collate([self._dataset[record] for _, record in keys])
        if self._reads_at_once:
            seed_generators(self._seed, keys[0][0], READING)
            return self._collate(self._dataset.__getitems__([record for _, record in keys]))
        if not self._draws:  # to seed takes longer than to read many a record
            before = numpy_and_python_states()
            batch = self._read_without_draws(keys)
            if batch is None:
                batch = self._read(seed_torch, keys)
            if numpy_and_python_states() == before:
                return batch
            self._draws = True
        return self._read(seed_generators, keys)

    def _read_without_draws(self, keys: Sequence[RecordKey]) -> Any:
        """The micro-batch, if reading it draws nothing from torch; None otherwise, from then on without a trial.

        Every such batch is read at one seed, so that a data set that asks for the seed alone is told the same anywhere.
        """
        if self._draws_torch or is_accelerator_in_use():
            return None
        seed_torch(self._seed, 0, READING)
        before = torch.default_generator.get_state()
        batch = self._collate([self._dataset[record] for _, record in keys])
        self._draws_torch = not torch.equal(torch.default_generator.get_state(), before)
        return None if self._draws_torch else batch

    def _read(self, seed_for: Callable[[int, int, bytes], object], keys: Sequence[RecordKey]) -> Any:
        records = []
        for position, record in keys:
            seed_for(self._seed, position, READING)
            records.append(self._dataset[record])
        return self._collate(records)


def _is_plain(tensor: Any) -> bool:
    """True if stacking its rows gives what selecting them does, in a small part of the time."""
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.requires_grad


def _reads_at_once(dataset: Any) -> bool:
    """True if the data set has code of its own for many records: no random numbers can be given to each record then.

    Subset's reads record by record where the data set within it has none, so its records can be read one by one.
    """
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return callable(getattr(dataset, "__getitems__", None))


def is_stream(dataset: Any) -> bool:
    """True for a data set that gives its records in an order of its own."""
    return isinstance(dataset, torch.utils.data.IterableDataset)


def size_of(dataset: Any) -> int:
    """Records of the data set.  Raises UsageError for one that cannot be read by record number."""
    if isinstance(dataset, DataLoader):
        raise UsageError(
            "dataset: is a DataLoader, which makes batches of its own; give the data set within, its .dataset, and "
            "collate_fn and num_workers here"
        )
    if is_stream(dataset) or not hasattr(dataset, "__getitem__"):
        raise UsageError(
            f"dataset: {type(dataset).__name__} cannot be read by record number; give a Dataset with __getitem__ and "
            "__len__, and to loader() alone also an IterableDataset"
        )
    size = length_of(dataset)
    if size is None:
        raise UsageError(f"dataset: {type(dataset).__name__} has no len(); a group's steps need one")
    if size < 1:
        raise UsageError(f"dataset: {type(dataset).__name__} is empty")
    return size


def length_of(dataset: Any) -> int | None:
    """What len() gives; None where there is none.  Raises UsageError where `__len__` returns no number of records."""
    if not hasattr(type(dataset), "__len__"):
        return None
    try:
        return len(dataset)
    except NotImplementedError:
        return None
    except (TypeError, ValueError, OverflowError) as error:  # what Python says of a float, of -1 and of 2**63
        raise UsageError(
            f"dataset: len() of {type(dataset).__name__} fails ({error}); its __len__ returns the number of records, "
            "an int from 1 up; of a stream loader(size=...) may say it instead"
        ) from error
