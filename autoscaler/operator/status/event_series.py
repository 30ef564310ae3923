"""Series of events: which events are new, which raise the count of a series, and which wait.  Pure.

The same reason with the same words about the same job is one event whose count rises, as `events.k8s.io` has it; its
count is written at most every half minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

SERIES_S: Final = 600.0
"""Gap after which a repetition is a new event; the API server keeps events for an hour."""

WRITE_EVERY_S: Final = 30.0
MOST: Final = 2_000
"""Most series in memory."""

SeriesKey: TypeAlias = tuple[str, str, str]  # UID of the job, reason, words


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSeries:
    """One event that was emitted.  `written`: its count as the API server has it."""

    name: str
    count: int
    last_at_s: float
    written: int
    written_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentEvents:
    """Events that were emitted lately, the oldest first."""

    series: Mapping[SeriesKey, EventSeries] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateEvent:
    """Effect: create the event."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseCount:
    """Effect: raise the count of an existing event."""

    name: str
    count: int


def plan_event(
    recent: RecentEvents, subject: SeriesKey, name: str, now_s: float
) -> tuple[RecentEvents, CreateEvent | RaiseCount | None]:
    """Return what to write for one more event; `name` is for a new one."""
    before = recent.series.get(subject)
    if before is None or now_s - before.last_at_s > SERIES_S:
        new = EventSeries(name=name, count=1, last_at_s=now_s, written=1, written_at_s=now_s)
        return _remember(recent, subject, new), CreateEvent(name=name)
    series = replace(before, count=before.count + 1, last_at_s=now_s)
    if now_s - before.written_at_s < WRITE_EVERY_S:
        return _remember(recent, subject, series), None
    series = replace(series, written=series.count, written_at_s=now_s)
    return _remember(recent, subject, series), RaiseCount(name=series.name, count=series.count)


def forget_event(recent: RecentEvents, subject: SeriesKey) -> RecentEvents:
    """Forget an event that could not be written: the next one is a new event."""
    return RecentEvents(series={known: series for known, series in recent.series.items() if known != subject})


def _remember(recent: RecentEvents, subject: SeriesKey, series: EventSeries) -> RecentEvents:
    kept = {known: one for known, one in recent.series.items() if known != subject}
    kept[subject] = series
    return RecentEvents(series=dict(list(kept.items())[-MOST:]))
