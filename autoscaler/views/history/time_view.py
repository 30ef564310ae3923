"""Who had the cluster over time, as far as a viewer may know: amounts, web wanted and running, and resizes as marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.views.cluster.pod_view import NodeUnit
from autoscaler.views.documents import Rights
from autoscaler.views.history.journal import JournalLine
from autoscaler.views.history.samples import REST, ClusterSample, owners_of, readable_sample

MOST_POINTS: Final = 300
MOST_LAYERS: Final = 8
MOST_MARKS: Final = 100
RESIZES: Final = frozenset({"Started", "Grown", "Refilled", "Shrunk", "Stopped", "Moved", "Scaled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one owner held at each instant, in thousandths of the unit; None where that is not known."""

    owner: str
    amounts: tuple[int | None, ...]

    @property
    def mean(self) -> float | None:
        """Over the instants at which it is known; None if it never is."""
        known = [amount for amount in self.amounts if amount is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeView:
    """Samples of a span, the oldest first; every tuple has one entry for each of `instants` (Unix time).

    None stands where the viewer may not know an amount: nothing of it is 0.  `used` is then what the viewer's own jobs
    used.
    `marks`: resizes and changes of the web load.  `used_share`: of what was placeable, over the span; None without
    samples.  `origin`: where the samples are from; empty: the page's own process.  `problem`: why not from elsewhere.
    """

    span: str
    origin: str
    problem: str
    unit: NodeUnit | None
    instants: tuple[float, ...]
    capacity: tuple[int | None, ...]
    used: tuple[int, ...]
    placeable: tuple[int | None, ...]
    web: Layer | None
    jobs: tuple[Layer, ...]
    web_wanted: tuple[int | None, ...]
    web_running: tuple[int | None, ...]
    marks: tuple[JournalLine, ...]

    @property
    def used_share(self) -> float | None:
        """Use over the span, of what was placeable."""
        known = [(used, most) for used, most in zip(self.used, self.placeable, strict=True) if most is not None]
        placeable = sum(most for _, most in known)
        return sum(used for used, _ in known) / placeable if placeable else None


def time_view(
    samples: Sequence[ClusterSample],
    lines: Sequence[JournalLine],
    rights: Rights,
    *,
    span: str,
    origin: str = "",
    problem: str = "",
) -> TimeView:
    """Return the view.  Of a cluster that may be read in part it has the viewer's own jobs, and no sums."""
    samples = [readable_sample(one, rights) for one in samples]
    shown = thinned([one for one in samples if one.unit is samples[-1].unit] if samples else [])
    readable = [one for one in owners_of(shown) if one != REST and rights.can_read(one.partition("/")[0])]
    named = readable[:MOST_LAYERS]
    layers = [Layer(owner=one, amounts=tuple(sample.held_by(one) for sample in shown)) for one in named]
    rest = tuple(sum(amount for owner, amount in sample.jobs if owner not in named) for sample in shown)
    layers += [Layer(owner=REST, amounts=rest)] if any(rest) else []
    return TimeView(
        span=span,
        origin=origin,
        problem=problem,
        unit=shown[-1].unit if shown else None,
        instants=tuple(one.at_s for one in shown),
        capacity=tuple(one.capacity for one in shown),
        used=tuple(one.used for one in shown),
        placeable=tuple(one.placeable for one in shown),
        web=Layer(owner="web", amounts=tuple(one.web for one in shown)) if shown else None,
        jobs=tuple(layers),
        web_wanted=tuple(one.web_wanted for one in shown),
        web_running=tuple(one.web_running for one in shown),
        marks=_marks(shown, lines, rights),
    )


def thinned(samples: Sequence[ClusterSample]) -> Sequence[ClusterSample]:
    """Return at most so many samples as a plot can show, and the newest always."""
    step = -(-len(samples) // MOST_POINTS) or 1
    return samples[(len(samples) - 1) % step :: step] if samples else samples


def _marks(samples: Sequence[ClusterSample], lines: Sequence[JournalLine], rights: Rights) -> tuple[JournalLine, ...]:
    if not samples:
        return ()
    found = [
        one
        for one in lines
        if one.at_s >= samples[0].at_s
        and one.reason in RESIZES
        and not one.object.startswith("pod/")
        and one.namespace
        and rights.can_read(one.namespace)
    ]
    return tuple(found[-MOST_MARKS:])
