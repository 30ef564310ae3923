"""Data set of a script: the loop `for batch in data`.

    for batch in data:
        gradients = step(X[batch.indices], y[batch.indices])
        model.push(gradients)          # jobs with parameter servers
        batch.done(loss=...)           # once; after a push the next round of the loop does it too

The loop ends when everything is trained and committed, by whichever trainer, or when this trainer has to leave
(`Session.is_draining`).  A batch may be smaller than `batch_size`: at an epoch's end, after others have returned part
of their work, or where a parameter server misses only some of it.  Not here: where batches come from
(`leased_batches`, `own_model`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy.typing as npt

from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import UsageError
from trainer_sdk.record_order import RecordNumbers, RecordOrder
from trainer_sdk.reported_metrics import ReportedMetrics

SumArray = npt.NDArray[Any]


class Batch:
    """Records of one step.  `indices`: their numbers, int64; `positions`: their places in the order of the job.

    `indices` is this batch's own array: the script may write to it, or hand it to torch's from_numpy.
    """

    __slots__ = ("_data", "_is_done", "epoch", "flight", "indices", "is_pushed", "positions", "step_size")

    def __init__(self, data: Data, given: GivenBatch, indices: RecordNumbers) -> None:
        self._data = data
        self._is_done = False
        self.is_pushed = False
        self.flight: Final = given.flight
        self.epoch: Final = given.epoch
        self.positions: Final = given.positions
        self.step_size: Final = given.step_size
        self.indices: Final = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"Batch(epoch={self.epoch}, positions={self.positions})"

    @property
    def is_done(self) -> bool:
        """True once `done` was called, or the next batch was asked for."""
        return self._is_done

    def all_reduce(self, *arrays: SumArray) -> bool:
        """Each array becomes its sum over all trainers of the step; for `own_model`, before the model is changed.

        Give sums over the batch's records, and divide by `step_size`, the records of the whole step.  True: the step is
        complete, update the model.  False: the group broke, the arrays hold nothing, and the same step comes again,
        maybe with other records: leave the model as it is.  A trainer alone always gets True.

        Call it once for each batch, with arrays of the same shapes in the same order on all trainers.  A trainer that
        has no record of the step gets some all the same, and its sums count nothing.  Raises UsageError.
        """
        return self._data.all_reduce(self, arrays)

    def done(self, **metrics: float) -> None:
        """This batch is trained; `metrics` (`loss=...`) are shown with the job.

        With parameter servers `push` has to come first, with `own_model` on several trainers `all_reduce`; otherwise
        this is what makes the batch count.  Raises UsageError when the batch is done already.
        """
        self._data.done(self, **metrics)

    def is_of(self, data: Data) -> bool:
        """True if the batch came from this data set."""
        return self._data is data

    def close(self) -> None:
        """Marks the batch as done, without checks."""
        self._is_done = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBatch:
    """Batch that the loop gives to the script next."""

    flight: int
    epoch: int
    positions: PositionSet
    step_size: int  # records of the whole step, over all trainers
    shown: PositionSet  # the records that the script sees: `positions`, or spare ones that do not count


class BatchSource(Protocol):
    """Source of a data set's batches, which also hears what becomes of them."""

    def next_batch(self, last: Batch | None) -> GivenBatch | None:
        """The next batch; None at the end, after the session's callbacks.  Raises UsageError on misuse."""
        ...

    def all_reduce(self, arrays: tuple[SumArray, ...]) -> bool:
        """`Batch.all_reduce` of the batch that was given last."""
        ...

    def finish(self, batch: Batch, metrics: Mapping[str, float]) -> None:
        """The script says that the batch is done, and reports `metrics` with it."""
        ...


class Data:
    """Iterator over this trainer's batches.  Made by `Session.dataset`."""

    def __init__(self, spec: DatasetSpec, *, start: Callable[[], BatchSource], check_use: Callable[[], None]) -> None:
        self.spec: Final = spec
        self.current: Batch | None = None
        self.metrics: Final = ReportedMetrics()
        self._start, self._check_use = start, check_use
        self._source: BatchSource | None = None
        self._order = RecordOrder(spec)
        self._has_ended = False

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch.  Raises StopIteration at the end, UsageError on misuse, MasterUnavailableError."""
        self._check_use()
        if self._has_ended:
            raise StopIteration
        if self._source is None:
            self._source = self._start()
        given = self._source.next_batch(self.current)
        if given is None:
            self._has_ended, self.current = True, None
            raise StopIteration
        self.current = Batch(self, given, self._order.records(given.shown))
        return self.current

    def all_reduce(self, batch: Batch, arrays: tuple[SumArray, ...]) -> bool:
        """`Batch.all_reduce`, which stands for it."""
        self._check_use()
        if batch is not self.current or batch.is_done:
            raise UsageError(f"{batch} is not the batch in hand: call all_reduce() before done(), in its own round")
        assert self._source is not None
        return self._source.all_reduce(arrays)

    def done(self, batch: Batch, **metrics: float) -> None:
        """Mark the batch as done.  Raises UsageError also for a batch that this data set never gave."""
        self._check_use()
        given: object = batch
        if not isinstance(given, Batch) or not given.is_of(self):
            raise UsageError("done() of a batch that this data set never gave: pass the batch of the loop")
        if batch.is_done:
            raise UsageError(f"{batch} is done already: call done() once for each batch")
        assert self._source is not None
        self._source.finish(batch, metrics)
        batch.close()
