"""A script's data set as a DataLoader's workers read it: by position and record, with random numbers by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from trainer_sdk.errors import UsageError
from trainer_sdk.torch.seeds import READING, seed_generators

RecordKey = tuple[int, int]  # position in the job's order, record number


class RecordSource:
    """The records of `dataset`."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed = dataset, seed
        # It has no code of the script's, hence no random numbers: seeding would cost more than its reading.
        self._is_plain: Final = type(dataset) is torch.utils.data.TensorDataset

    def __getitem__(self, key: RecordKey) -> Any:
        position, record = key
        if not self._is_plain:
            seed_generators(self._seed, position, READING)
        return self._dataset[record]

    def __getitems__(self, keys: Sequence[RecordKey]) -> Sequence[Any]:
        """As torch's fetcher asks for the records of a batch: at once, where the data set can."""
        if self._is_plain:
            return [self._dataset[record] for _, record in keys]
        if not callable(getattr(self._dataset, "__getitems__", None)):
            return [self[key] for key in keys]
        seed_generators(self._seed, keys[0][0], READING)
        records: Sequence[Any] = self._dataset.__getitems__([record for _, record in keys])
        return records


def size_of(dataset: Any) -> int:
    """Records of the data set.  Raises UsageError for one that cannot be read by record number."""
    if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise UsageError(
            f"dataset: {type(dataset).__name__} cannot be read by record number, so nobody could say which records "
            "are trained; give a Dataset with __getitem__ and __len__"
        )
    try:
        size = len(dataset)
    except TypeError as error:
        raise UsageError(f"dataset: {type(dataset).__name__} has no len(); a group's steps need one") from error
    if size < 1:
        raise UsageError(f"dataset: {type(dataset).__name__} is empty")
    return size
