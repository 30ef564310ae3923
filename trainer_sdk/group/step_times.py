"""Step times that a member reports: steps, seconds, the pause of a change, and where its script's thread is.

The master tells by it whether a member that stands still holds up a step (rule 74), and how much a resize costs.  Not
here: the report's way to the master (`member_shell`), and what else it says (`core.transitions`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf, isfinite
from statistics import median
from time import monotonic
from typing import Final

from trainer_sdk.group.core.member_events import ReportRequested
from trainer_sdk.group.port import StepShare

STEPS_KEPT: Final = 32
"""Steps of which the median and the rate are told."""
SIZES_KEPT: Final = 64
"""Numbers of records that count as trained before: of shares, and of the last steps of epochs."""


class StepTimes:
    """Times are seconds of the monotonic clock; its lock guards `begin`, `end` and `report`."""

    def __init__(self) -> None:
        self._is_loading = False
        self._reducing_since_s: float | None = None
        self._is_in_script = True
        self._is_working = False
        self._steps_begun, self._began_s = 0, 0.0
        self._share: StepShare | None = None
        self.is_in_step = False  # from `begin` to the first `end`
        self._ended_s: float | None = None
        self._pause_s = 0.0
        self._loaded_s = 0.0  # of the step in hand
        self._reduced_s = 0.0  # of the step in hand
        self._computed_s: float | None = None  # when the step in hand was computed, if that was told
        self._times: deque[tuple[float, int]] = deque(maxlen=STEPS_KEPT)  # of complete steps: seconds, own records
        self._loading: deque[float] = deque(maxlen=STEPS_KEPT)  # of the same steps: seconds
        self._sizes: dict[int, None] = {}  # numbers of records of complete steps, the newest last
        self._rates: deque[float] = deque(maxlen=STEPS_KEPT)  # of those with records: records a second of computing

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The script's thread has asked for its next step."""
        self._is_in_script = False
        try:
            yield
        finally:
            self._is_in_script = True

    @contextmanager
    def working(self) -> Iterator[None]:
        """The script's thread loads, copies, digests or restores the replica, and may hang in that, too."""
        self._is_working = True
        try:
            yield
        finally:
            self._is_working = False

    @contextmanager
    def reducing(self) -> Iterator[None]:
        """The script waits in a collective."""
        began_s = self._reducing_since_s = monotonic()
        try:
            yield
        finally:
            self._reducing_since_s = None
            self._reduced_s += monotonic() - began_s

    @contextmanager
    def loading(self) -> Iterator[None]:
        """The script waits for its data loader."""
        began_s = monotonic()
        self._is_loading = True
        try:
            yield
        finally:
            self._is_loading = False
            self._loaded_s += monotonic() - began_s

    def begin(self, share: StepShare, now_s: float) -> None:
        """The script has this step; the first one of another generation ends the pause of the change.

        Figures begin anew where the group has another size, so that no rate is of two.
        """
        before = self._share
        if self._ended_s is not None and before is not None and share.generation != before.generation:
            self._pause_s = now_s - self._ended_s
        if before is not None and share.size != before.size:
            self._times.clear()  # they are of another share of each step
            self._loading.clear()
        self._share, self._began_s, self.is_in_step = share, now_s, True
        self._steps_begun, self._loaded_s, self._reduced_s = self._steps_begun + 1, 0.0, 0.0
        self._computed_s = None

    def computed(self, now_s: float, *, is_known: bool = True) -> None:
        """The script has all gradients of its records; not `is_known`: an accelerator may still be at them.

        Without this call the step was computed in all of its time but for that of collectives.
        """
        self._computed_s = now_s if is_known else inf

    def end(self, now_s: float) -> None:
        """The step is complete here; one that was completed before its gradients were computed is applied.

        A second call for a step does nothing.
        """
        if self._share is not None and self.is_in_step:
            self._ended_s, self.is_in_step = now_s, False
            records, took_s = len(self._share.positions), now_s - self._began_s
            self._times.append((took_s, records))
            self._loading.append(self._loaded_s)
            self._sizes.pop(records, None)
            self._sizes[records] = None
            if len(self._sizes) > SIZES_KEPT:
                del self._sizes[next(iter(self._sizes))]
            computing_s = took_s - self._reduced_s if self._computed_s is None else self._computed_s - self._began_s
            if records and computing_s > 0.0 and isfinite(computing_s):
                self._rates.append(records / computing_s)

    def report(self, metrics: Mapping[str, float]) -> ReportRequested:
        total_s = sum(time_s for time_s, _ in self._times)
        since_s = self._reducing_since_s
        return ReportRequested(
            is_reducing=since_s is not None,
            reducing_s=0.0 if since_s is None else max(0.0, monotonic() - since_s),
            is_loading=self._is_loading,
            is_in_script=self._is_in_script,
            is_working=self._is_working,
            is_in_step=self.is_in_step,
            is_size_new=self._share is not None and len(self._share.positions) not in self._sizes,
            steps_begun=self._steps_begun,
            median_step_s=median(time_s for time_s, _ in self._times) if self._times else 0.0,
            samples_per_s=sum(count for _, count in self._times) / total_s if total_s else 0.0,
            pause_s=self._pause_s,
            waiting_share=min(1.0, sum(self._loading) / total_s) if total_s else 0.0,
            compute_rate=median(self._rates) if self._rates else 0.0,
            metrics=metrics,
        )
