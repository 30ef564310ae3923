"""Passes gathered by experiment, arm and mix: means over passes, ranges over mixes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Final

from experiments.running.result_store import StoredPass

MEDIANS: Final = frozenset(["web_rise_s"])
"""Reported as the median of passes, as in 2017, so that one pass that never gets there is not the figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A figure and its smallest and largest value."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """All passes of one experiment and arm, by mix."""

    experiment: str
    arm: str
    by_mix: Mapping[str, Sequence[StoredPass]]

    def has(self, metric: str) -> bool:
        """True if every pass has the metric."""
        return all(metric in p.metrics for passes in self.by_mix.values() for p in passes)

    def on(self, mix: str, metric: str) -> Range:
        """Return the figure on one mix, with its smallest and largest pass."""
        values = [p.metrics[metric] for p in self.by_mix[mix]]
        middle = median(values) if metric in MEDIANS else mean(values)
        return Range(value=middle, low=min(values), high=max(values))

    def over_mixes(self, metric: str) -> Range:
        """Return the mean of the mixes' figures, with the smallest and the largest of them."""
        values = [self.on(mix, metric).value for mix in self.by_mix]
        return Range(value=mean(values), low=min(values), high=max(values))

    def mean_curve(self, name: str, mix: str | None = None) -> list[float]:
        """Return a curve as the mean over passes, of one mix or of all."""
        curves = [p.curves[name] for key, passes in self.by_mix.items() if mix in {None, key} for p in passes]
        return [mean(values) for values in zip(*curves, strict=True)]

    def mean_bounds(self) -> list[tuple[float, float, float]]:
        """Return (instant, pinned, free) as the mean over all passes; empty where none were computed."""
        samples = [p.curves["bounds"] for passes in self.by_mix.values() for p in passes]
        if not all(samples):
            return []
        return [
            (rows[0][0], mean([row[1] for row in rows]), mean([row[2] for row in rows]))
            for rows in zip(*samples, strict=True)
        ]


Groups = Mapping[tuple[str, str], Gathered]
"""By experiment and arm."""


def gather(passes: Sequence[StoredPass]) -> dict[tuple[str, str], Gathered]:
    """Return passes by (experiment, arm)."""
    groups: defaultdict[tuple[str, str], defaultdict[str, list[StoredPass]]] = defaultdict(lambda: defaultdict(list))
    for one in passes:
        groups[one.experiment, one.arm][one.mix].append(one)
    return {
        key: Gathered(
            experiment=key[0],
            arm=key[1],
            by_mix={mix: sorted(found, key=lambda p: p.number) for mix, found in sorted(mixes.items())},
        )
        for key, mixes in sorted(groups.items())
    }
