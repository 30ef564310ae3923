"""Tables of a model on parameter servers, as a script sees them: pull, compute, push.

A push ends when every bucket of the model has the batch, or when the batch no longer counts (the model was rolled
back, the lease is gone); the script need not know which.  Positions that only some buckets miss come back from the
loop as a batch of their own (rule 11).  A push waits for its answer, though the next pull could carry it and save the
round trip (`PserverClient.push_and_pull`): the script owns its gradient arrays again when `push` returns, and gets
errors where the arrays were made.  Not here: sockets and frames (`pserver.client`), the decisions (`protocol`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from master.api.identities import Lineage, TableSpec
from trainer_sdk.dataset import Data
from trainer_sdk.errors import NotReadyError, ServerUnavailableError, TemporaryError, UsageError
from trainer_sdk.protocol.trainer_events import (
    ParametersPulled,
    PushAnswered,
    PushRequested,
    ResendPush,
    SendPush,
    TrainerEffect,
)
from trainer_sdk.pserver.client.pserver_client import PserverClient
from trainer_sdk.pserver.tables.layout import Array
from trainer_sdk.runtime.driver import TrainerDriver

ScriptGradient = Array | tuple[npt.NDArray[np.int64], Array]
"""The gradient of a dense table, or (row numbers, gradients of these rows) of a sparse one."""

_Found = TypeVar("_Found")
MAX_STALE_PUSHES: Final = 8
RETRY_FIRST_S: Final = 0.005  # a bucket is frozen for some round trips
RETRY_MOST_S: Final = 0.02  # the longest pause while servers restore


class Tables:
    """The model's tables.  Made by `Session.tables`."""

    def __init__(
        self,
        specs: tuple[TableSpec, ...],
        *,
        client: Callable[[Callable[[], bool]], PserverClient],
        start: Callable[[], TrainerDriver],
        check_use: Callable[[], None],
        data: Callable[[], Data],
        budget_s: float,
    ) -> None:
        self.specs: Final = specs
        self._make_client = client
        self._client: PserverClient | None = None
        self._start = start
        self._check_use = check_use
        self._data = data
        self._budget_s = budget_s
        self._revision = -1  # of the route in use
        self._stale_pushes = 0
        self._lineages: dict[str, Lineage] = {}  # lineage of each table's last pull

    def pull(self, *names: str) -> dict[str, Array]:
        """Pulls the dense tables, or those named, at one lineage, while other trainers may push.

        The arrays are used again by the next pull: copy what has to outlive it.  Raises ServerUnavailableError when
        the servers do not answer within the budget, GracePeriodExpired at the end of the grace period.
        """
        wanted = names or tuple(spec.name for spec in self.specs if spec.kind == "dense")
        for spec in self.specs:
            if spec.kind == "sparse" and spec.name in names:
                raise UsageError(f"tables.{spec.name} is sparse: use pull_rows({spec.name!r}, ids)")
        lineage, arrays = self._pulled(lambda client: client.pull(wanted))
        self._report_lineage(dict.fromkeys(wanted, lineage))
        return arrays

    def pull_rows(self, name: str, ids: npt.NDArray[np.int64]) -> Array:
        """Pulls rows of a sparse table: shape (len(ids), width).  Raises as `pull`."""
        lineage, rows = self._pulled(lambda client: client.pull_rows(name, ids))
        self._report_lineage({name: lineage})
        return rows

    def push(self, gradients: Mapping[str, ScriptGradient]) -> None:
        """Pushes the batch's gradients: every bucket then has them exactly once, or the batch is trained again.

        Tables left out get no gradient.  Raises UsageError outside the loop, before a pull, or a second time for one
        batch; TableError for an array of another shape; ServerUnavailableError, GracePeriodExpired.
        """
        self._check_use()
        batch = self._data().current
        if batch is None:
            raise UsageError("push() without a batch: it belongs inside `for batch in data`")
        if batch.is_pushed:
            raise UsageError(f"{batch} is pushed already: add its gradients up and push once")
        if not self._lineages:
            raise UsageError("push() before pull(): gradients are computed on what was pulled")
        driver = self._start()
        self._check_pulled_since_rollback(driver)
        with _waiting(driver):
            self._push(driver, batch.flight, gradients)
        batch.is_pushed = True
        driver.pushed = batch.flight

    def _check_pulled_since_rollback(self, driver: TrainerDriver) -> None:
        """Raises UsageError if the script never pulls again after a roll-back: it would get the same batch for ever."""
        stale = [name for name, lineage in self._lineages.items() if lineage < driver.lineage]
        self._stale_pushes = self._stale_pushes + 1 if stale else 0
        if self._stale_pushes > MAX_STALE_PUSHES:
            raise UsageError(f"the model was rolled back and {', '.join(stale)} not pulled since: pull inside the loop")

    # ---- pulling ----------------------------------------------------------------------------------------------------

    def _pulled(self, call: Callable[[PserverClient], tuple[Lineage, _Found]]) -> tuple[Lineage, _Found]:
        """The result of a pull at the current lineage; waits for servers that restore."""
        self._check_use()
        driver = self._start()
        with _waiting(driver):
            return self._retry_pull(call, driver)

    def _retry_pull(
        self, call: Callable[[PserverClient], tuple[Lineage, _Found]], driver: TrainerDriver
    ) -> tuple[Lineage, _Found]:
        deadline_s = monotonic() + self._budget_s
        for pause_s in _pauses():
            try:
                lineage, found = call(self._at_the_route(driver))
                if lineage >= driver.lineage:
                    return lineage, found
                problem: TemporaryError = NotReadyError("the servers are restoring the model")
            except TemporaryError as error:
                problem = error
            if monotonic() > deadline_s:
                raise ServerUnavailableError(
                    f"the parameter servers gave no model for {self._budget_s:g} s ({problem}). "
                    "Check the servers' logs and the job's status"
                ) from problem
            self._wait_for_change(driver, pause_s)
        raise AssertionError

    def _report_lineage(self, lineages: Mapping[str, Lineage]) -> None:
        """Reports the lineage pulled, the older one if tables mix two: gradients of a mix do not count (rule 9)."""
        self._lineages |= lineages
        self._start().handle(ParametersPulled(lineage=min(self._lineages.values())))

    def _at_the_route(self, driver: TrainerDriver) -> PserverClient:
        if self._client is None:
            self._client = self._make_client(lambda: self._is_outdated(driver))
            driver.when_time_is_up(self._client.cancel)
        if driver.route is None or self._is_outdated(driver):
            use = driver.wait_for_route(budget_s=self._budget_s)
            self._client.set_route(use.route, self.specs, use.bucket_count)
            self._revision = use.route.revision
        return self._client

    def _wait_for_change(self, driver: TrainerDriver, pause_s: float) -> None:
        """Waits for a change or the pause's end, but not if a newer route has come already."""
        if not self._is_outdated(driver):
            driver.wait_for_change(pause_s)

    def _is_outdated(self, driver: TrainerDriver) -> bool:
        """True if a newer route has come: buckets have moved, and a server may be gone."""
        return driver.route is not None and driver.route.route.revision != self._revision

    # ---- pushing ----------------------------------------------------------------------------------------------------

    def _push(self, driver: TrainerDriver, flight: int, gradients: Mapping[str, ScriptGradient]) -> None:
        deadline_s = monotonic() + self._budget_s
        order = _try_order(driver.handle(PushRequested(flight=flight)))
        if not isinstance(order, SendPush):
            return
        buckets = order.buckets
        for pause_s in _pauses():
            client = self._at_the_route(driver)
            try:
                rulings = client.push(order.lineage, order.positions, gradients, buckets=buckets).rulings
            except TemporaryError:
                rulings = ()  # the same push may be sent again: marks decide
            again = _try_order(driver.handle(PushAnswered(flight=flight, rulings=rulings)))
            if again is None:
                return
            buckets = again.buckets
            if monotonic() > deadline_s:
                raise ServerUnavailableError(
                    f"buckets {buckets} did not take a push for {self._budget_s:g} s. Check the servers' logs"
                )
            self._wait_for_change(driver, pause_s)

    def close(self) -> None:
        """Close the connections to the parameter servers; the session does so at its end."""
        if self._client is not None:
            self._client.close()


@contextmanager
def _waiting(driver: TrainerDriver) -> Iterator[None]:
    """Counts the block's time as waiting for servers, which shows whether more servers would help."""
    begun_s, driver.is_waiting_for_servers = monotonic(), True
    try:
        yield
    finally:
        driver.is_waiting_for_servers = False
        driver.waited_s += monotonic() - begun_s


def _pauses() -> Iterator[float]:
    """Pauses between attempts, endlessly."""
    pause_s = RETRY_FIRST_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, RETRY_MOST_S)


def _try_order(effects: tuple[TrainerEffect, ...]) -> SendPush | ResendPush | None:
    return next((e for e in effects if isinstance(e, SendPush | ResendPush)), None)
