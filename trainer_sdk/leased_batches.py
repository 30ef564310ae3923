"""Batches of a trainer that leases records from the master: jobs with parameter servers, and plain sharding.

Not here: leases (`protocol.leasing`), the threads (`runtime.driver`), what the script sees (`dataset`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final

from trainer_sdk.dataset import Batch, GivenBatch, SumArray
from trainer_sdk.errors import UsageError
from trainer_sdk.protocol.trainer_events import BatchDone, Finish, ReportDue
from trainer_sdk.reported_metrics import ReportedMetrics
from trainer_sdk.runtime.driver import TrainerDriver


class LeasedBatches:
    """A `dataset.BatchSource`.  Its driver reports the progress from now on."""

    def __init__(
        self,
        driver: TrainerDriver,
        *,
        epoch_size: int,
        metrics: ReportedMetrics,
        conclude: Callable[[Finish], None],
        budget_s: float,
    ) -> None:
        self._driver, self._epoch_size, self._budget_s = driver, epoch_size, budget_s
        self._metrics, self._conclude = metrics, conclude
        self._has_servers: Final = driver.state.has_servers
        self._progress = 0  # grows when a batch is given and when it is done: either shows that the script is alive
        self._samples = 0
        self._advanced = (monotonic(), 0)
        self._waited_s = 0.0  # then
        self._waiting_share = 0.0
        self._given: int | None = None  # the flight that was given last
        self._done: int | None = None  # ... that the script is done with
        self._is_asking = False  # the script waits for a batch
        driver.report_with(self._report)

    def next_batch(self, last: Batch | None) -> GivenBatch | None:
        if self._has_servers and last is not None and not last.is_done:
            self._close(last)
        self._is_asking = True
        try:
            answer = self._driver.next_batch(budget_s=self._budget_s)
        finally:
            self._is_asking = False
        if isinstance(answer, Finish):
            self._conclude(answer)
            return None
        self._progress += 1
        self._given = answer.flight
        positions = answer.positions
        return GivenBatch(
            flight=answer.flight,
            epoch=positions.bounds[0] // self._epoch_size,
            positions=positions,
            step_size=len(positions),
            shown=positions,
        )

    def all_reduce(self, arrays: tuple[SumArray, ...]) -> bool:  # noqa: ARG002  one signature for all sources
        raise UsageError(
            "all_reduce() is for own_model(), whose trainers make each step together; with tables push() the gradients"
        )

    def finish(self, batch: Batch, metrics: Mapping[str, float]) -> None:
        self._metrics.add(metrics)
        if not self._has_servers:
            self._driver.handle(BatchDone(flight=batch.flight))
        elif not batch.is_pushed and self._driver.is_in_hand(batch.flight):
            raise UsageError(f"{batch} is not pushed: call model.push(gradients) before batch.done()")
        self._count(batch)

    def _close(self, batch: Batch) -> None:
        """Ends the last batch, which its push has confirmed, or which no longer counts.  Raises UsageError."""
        if not batch.is_pushed and self._driver.is_in_hand(batch.flight):
            raise UsageError(f"{batch} was neither pushed nor done: call model.push(gradients) before the next batch")
        batch.close()
        self._count(batch)

    def _count(self, batch: Batch) -> None:
        self._progress += 1
        self._done = batch.flight
        self._samples += len(batch)

    def _report(self) -> ReportDue:
        """Called in the stream's thread; reads fields that only the script's thread writes."""
        before = self._advanced
        self._advanced, rate = rate_since(before, (monotonic(), self._samples))
        if rate:
            waited_s, since_s = self._driver.waited_s, max(self._advanced[0] - before[0], 1e-3)
            self._waiting_share = min(1.0, (waited_s - self._waited_s) / since_s)
            self._waited_s = waited_s
        is_waiting = self._is_asking or self._driver.is_waiting_for_servers
        is_in_hand = self._given not in {None, self._done, self._driver.pushed}  # even where its lease is lost
        return ReportDue(
            steps=self._progress,
            samples_per_s=rate,
            metrics=self._metrics.values,
            waiting_share=self._waiting_share,
            is_computing=is_in_hand and not is_waiting,
            is_waiting=is_waiting,
        )


def rate_since(last: tuple[float, int], now: tuple[float, int]) -> tuple[tuple[float, int], float]:
    """The moment (s, samples done) to measure from next, and samples/s since `last`; (`last`, 0) without new samples.

    A batch may last longer than the time between two reports.  Time without samples counts for the next report: else a
    batch of a minute would look like one of a second, and the master would take its trainer for hung.
    """
    samples = now[1] - last[1]
    return (now, samples / max(now[0] - last[0], 1e-3)) if samples > 0 else (last, 0.0)
