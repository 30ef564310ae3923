"""Metrics that a script has reported, by name: the last values, all finite.

A status can hold no NaN, and a mean with one in it says nothing.  So a name whose value is not finite is left out, and
standard error says so: its last finite value would hide that the model has diverged.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping

from trainer_sdk.errors import UsageError


class ReportedMetrics:
    """`values` is replaced and never changed, so that another thread may read it."""

    def __init__(self) -> None:
        self.values: Mapping[str, float] = {}
        self._told: set[str] = set()

    def add(self, metrics: Mapping[str, float]) -> None:
        """The values of these names from now on.  Raises UsageError for a value that is no number."""
        try:
            now = {str(name): float(value) for name, value in metrics.items()}
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"metrics {metrics!r}: give names and numbers, loss=0.5 say ({error})") from error
        merged = {**self.values, **now}
        self.values = {name: value for name, value in merged.items() if math.isfinite(value)}
        for name in merged.keys() - self.values.keys() - self._told:
            self._told.add(name)
            sys.stderr.write(
                f"edl: the script reported {name}={now[name]}; the job shows no {name} until it is finite again\n"
            )
