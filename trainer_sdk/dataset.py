"""Data set of a script: the loop `for batch in data`.

    for batch in data:
        gradients = step(X[batch.indices], y[batch.indices])
        model.push(gradients)          # jobs with parameter servers
        batch.done(loss=...)           # once; after a push the next round of the loop does it too

The loop ends when everything is trained and committed, by whichever trainer, or when this trainer has to leave
(`Session.is_draining`).  A batch may be smaller than `batch_size`: at an epoch's end, after others have returned part
of their work, or where a parameter server misses only some of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final, assert_never

from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import UsageError
from trainer_sdk.protocol.trainer_events import BatchDone, Finish, GiveBatch, ReportDue, RequestCheckpoint, Restart
from trainer_sdk.record_order import RecordNumbers, RecordOrder
from trainer_sdk.runtime.driver import TrainerDriver, finite


class Batch:
    """Records of one step.  `indices`: their numbers, int64; `positions`: their places in the order of the job.

    `indices` is this batch's own array: the script may write to it, or hand it to torch's from_numpy.
    """

    __slots__ = ("_data", "_is_done", "epoch", "flight", "indices", "is_pushed", "positions")

    def __init__(self, data: Data, flight: int, epoch: int, positions: PositionSet, indices: RecordNumbers) -> None:
        self._data = data
        self._is_done = False
        self.is_pushed = False
        self.flight: Final = flight
        self.epoch: Final = epoch
        self.positions: Final = positions
        self.indices: Final = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"Batch(epoch={self.epoch}, positions={self.positions})"

    @property
    def is_done(self) -> bool:
        """True once `done` was called, or the next batch was asked for."""
        return self._is_done

    def done(self, **metrics: float) -> None:
        """This batch is trained; `metrics` (`loss=...`) are shown with the job.

        With parameter servers `push` has to come first; without, this is what makes the batch count.  Raises
        UsageError when the batch is done already.
        """
        self._data.done(self, **metrics)

    def is_of(self, data: Data) -> bool:
        """True if the batch came from this data set."""
        return self._data is data

    def close(self) -> None:
        """Marks the batch as done, without checks."""
        self._is_done = True


class Data:
    """Iterator over this trainer's batches.  Made by `Session.dataset`."""

    def __init__(
        self,
        spec: DatasetSpec,
        *,
        start: Callable[[], TrainerDriver],
        check_use: Callable[[], None],
        prepare: Callable[[Restart | RequestCheckpoint | None], None],
        conclude: Callable[[Finish], None],
        budget_s: float,
    ) -> None:
        self.spec: Final = spec
        self.current: Batch | None = None
        self.metrics: dict[str, float] = {}
        self._start = start
        self._driver: TrainerDriver | None = None
        self._check_use = check_use
        self._prepare = prepare
        self._conclude = conclude
        self._budget_s = budget_s
        self._order = RecordOrder(spec)
        self._progress = 0  # grows when a batch is given and when it is done: either shows that the script is alive
        self._samples = 0
        self._advanced = (monotonic(), 0)
        self._waited_s = 0.0  # then
        self._waiting_share = 0.0
        self._has_ended = False
        self._has_servers = False

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch.  Raises StopIteration at the end, UsageError on misuse, MasterUnavailableError."""
        self._check_use()
        if self._has_ended:
            raise StopIteration
        driver = self._driver or self._begin()
        if self._has_servers and self.current is not None and not self.current.is_done:
            self._close_last(self.current, driver)
        self._prepare(None)
        while True:
            answer = driver.next_batch(budget_s=self._budget_s)
            match answer:
                case GiveBatch(flight=flight, positions=positions):
                    self._progress += 1
                    epoch = positions.bounds[0] // self.spec.size
                    self.current = Batch(self, flight, epoch, positions, self._order.records(positions))
                    return self.current
                case Finish():
                    self._has_ended = True
                    self.current = None
                    self._conclude(answer)
                    raise StopIteration
                case Restart() | RequestCheckpoint():
                    self._prepare(answer)
                case _:
                    assert_never(answer)

    def _begin(self) -> TrainerDriver:
        driver = self._driver = self._start()
        self._has_servers = driver.state.has_servers
        driver.report_with(self._report)
        return driver

    def _close_last(self, batch: Batch, driver: TrainerDriver) -> None:
        """Ends the last batch, which its push has confirmed, or which no longer counts.  Raises UsageError."""
        if not batch.is_pushed and driver.is_in_hand(batch.flight):
            raise UsageError(f"{batch} was neither pushed nor done: call model.push(gradients) before the next batch")
        self._count(batch)

    def done(self, batch: Batch, **metrics: float) -> None:
        """Mark the batch as done.  Raises UsageError also for a batch that this data set never gave."""
        self._check_use()
        given: object = batch
        if not isinstance(given, Batch) or not given.is_of(self):
            raise UsageError("done() of a batch that this data set never gave: pass the batch of the loop")
        if batch.is_done:
            raise UsageError(f"{batch} is done already: call done() once for each batch")
        assert self._driver is not None
        if self._has_servers:
            if not batch.is_pushed and self._driver.is_in_hand(batch.flight):
                raise UsageError(f"{batch} is not pushed: call model.push(gradients) before batch.done()")
        else:
            self._driver.handle(BatchDone(flight=batch.flight))
        if metrics:
            self.metrics |= finite(metrics)
        self._count(batch)

    def _count(self, batch: Batch) -> None:
        batch.close()
        self._progress += 1
        self._samples += len(batch)

    def _report(self) -> ReportDue:
        """Called in the stream's thread; reads fields that only the script's thread writes."""
        before = self._advanced
        self._advanced, rate = rate_since(before, (monotonic(), self._samples))
        if rate and self._driver is not None:
            waited_s, since_s = self._driver.waited_s, max(self._advanced[0] - before[0], 1e-3)
            self._waiting_share = min(1.0, (waited_s - self._waited_s) / since_s)
            self._waited_s = waited_s
        return ReportDue(
            steps=self._progress,
            samples_per_s=rate,
            metrics=dict(self.metrics),
            waiting_share=self._waiting_share,
        )


def rate_since(last: tuple[float, int], now: tuple[float, int]) -> tuple[tuple[float, int], float]:
    """The moment (s, samples done) to measure from next, and samples/s since `last`; (`last`, 0) without new samples.

    A batch may last longer than the time between two reports.  Time without samples counts for the next report: else a
    batch of a minute would look like one of a second, and the master would take its trainer for hung.
    """
    samples = now[1] - last[1]
    return (now, samples / max(now[0] - last[0], 1e-3)) if samples > 0 else (last, 0.0)
