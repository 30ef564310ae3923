"""Throughput of a job at each of its sizes, from the progress that its master reports.  Pure (ADR 0267).

What counts is the master's count of samples that are done, over the time between two of its advances: no trainer's
own estimate, and no pause. A number of trainers and servers is measured once it has stood for `SETTLED_S`: new
trainers have loaded their first batches by then. A job that stands still for longer than a few of its batches take (an
evaluation, a commit that blocks, a lost trainer) ends the measurement, and the standstill is not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from autoscaler.jobs.progress import JobProgress
from autoscaler.throughput import FittedCurve
from autoscaler.throughput.fit import fit_curve
from autoscaler.throughput.observations import ObservationLog, SizeObservation
from master.api.master_status import JobPhase

SETTLED_S: Final = 10.0
SHORTEST_S: Final = 20.0  # a shorter measurement is none
STANDSTILL_S: Final = 15.0
GAPS: Final = 4.0  # a standstill is also longer than so many of the gaps between advances
MEASURED_PHASES: Final = frozenset({JobPhase.TRAINING, JobPhase.COMMITTING})
MOST_RESTORED: Final = 64  # points read from a status


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeWindow:
    """The time at one size.  Seconds on the caller's clock; `from_done` and `done` are counts of samples."""

    trainers: int = 0
    servers: int = 0
    setting: str = ""
    term: int = 0
    lineage: int = 0
    since_s: float = 0.0
    done: int = -1  # at the last advance; -1: none was seen
    advanced_s: float = 0.0  # the last advance
    from_done: int = -1  # at the first advance after the size had settled; -1: not yet
    from_s: float = 0.0
    advances: int = 0  # after that
    told_s: float = 0.0  # duration when a point was last made of it

    @property
    def duration_s(self) -> float:
        """Seconds that the measurement has lasted."""
        return self.advanced_s - self.from_s if self.from_done >= 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputWatch:
    """The points of a job, the curve through those of its present setting, and the measurement under way."""

    log: ObservationLog = field(default_factory=ObservationLog)
    curve: FittedCurve | None = None
    window: SizeWindow = field(default_factory=SizeWindow)
    setting: str = ""


def observe_throughput(
    before: ThroughputWatch, progress: JobProgress, *, setting: str, now_s: float, unix_s: float
) -> ThroughputWatch:
    """Return the watch after one more report.  `setting`: batch size and hardware; `unix_s`: the present instant.

    The curve is fitted again when a point comes, or is surer by half: a measurement that lasts costs few fits.
    """
    window = before.window
    is_standing = now_s - window.advanced_s > standstill_s(window) and progress.done == window.done
    if not is_same_size(window, progress, setting) or is_standing:
        ended = with_point(before, unix_s) if window.duration_s > window.told_s else before
        fresh = SizeWindow(
            trainers=progress.training,
            servers=progress.servers,
            setting=setting,
            term=progress.term,
            lineage=progress.lineage,
            since_s=now_s,
            done=progress.done,
            advanced_s=now_s,
        )
        return replace(with_setting(ended, setting, unix_s), window=fresh)
    if progress.done == window.done or progress.phase not in MEASURED_PHASES or not progress.training:
        return before
    if window.from_done < 0:
        has_settled = now_s >= window.since_s + SETTLED_S
        begun = replace(window, from_done=progress.done, from_s=now_s) if has_settled else window
        return replace(before, window=replace(begun, done=progress.done, advanced_s=now_s))
    moved = replace(window, done=progress.done, advanced_s=now_s, advances=window.advances + 1)
    watch = replace(before, window=moved)
    return with_point(watch, unix_s) if moved.duration_s >= max(SHORTEST_S, 1.5 * moved.told_s) else watch


def is_same_size(window: SizeWindow, progress: JobProgress, setting: str) -> bool:
    """True if the report belongs to the measurement: the same size, master and setting, and nothing was undone."""
    now = (progress.training, progress.servers, setting, progress.term, progress.lineage)
    then = (window.trainers, window.servers, window.setting, window.term, window.lineage)
    return now == then and progress.done >= window.done and not progress.moving


def standstill_s(window: SizeWindow) -> float:
    """Return how long the count may stand still while the job trains."""
    gap_s = window.duration_s / window.advances if window.advances else 0.0
    return max(STANDSTILL_S, GAPS * gap_s)


def with_point(watch: ThroughputWatch, unix_s: float) -> ThroughputWatch:
    """Return the watch with the measurement as a point and a new fit; unchanged if it was too short."""
    window, duration_s = watch.window, watch.window.duration_s
    if duration_s < SHORTEST_S or not window.trainers:
        return watch
    point = SizeObservation(
        trainers=window.trainers,
        servers=window.servers,
        samples_per_s=float(f"{(window.done - window.from_done) / duration_s:.4g}"),
        duration_s=float(round(duration_s)),
        at_s=float(round(unix_s)),
        setting=window.setting,
    )
    log = watch.log.add(point)
    told = replace(window, told_s=duration_s)
    if log is watch.log:
        return replace(watch, window=told)
    curve = fit_curve(log.of_setting(window.setting), unix_s)
    return ThroughputWatch(log=log, curve=curve, window=told, setting=window.setting)


def with_setting(watch: ThroughputWatch, setting: str, unix_s: float) -> ThroughputWatch:
    """Return the watch with the curve of this setting's points."""
    if watch.setting == setting:
        return watch
    return replace(watch, setting=setting, curve=fit_curve(watch.log.of_setting(setting), unix_s))


def points_in_status(raw: Sequence[Mapping[str, Any]]) -> ThroughputWatch:
    """Return the watch that an earlier leader wrote into a status, without the points that cannot be true.

    The curve comes with the first report, which tells the setting.
    """
    log = ObservationLog()
    for one in raw[:MOST_RESTORED]:
        if (point := parse_point(one)) is not None:
            log = log.add(point)
    return ThroughputWatch(log=log, setting="(none yet)")


def parse_point(raw: Mapping[str, Any]) -> SizeObservation | None:
    """Return a point of a status; None if a field is missing or of another kind."""
    numbers = {"trainers": int, "servers": int, "samplesPerSecond": float, "seconds": float, "unixTime": float}
    found = {name: raw.get(name, 0) for name in numbers}
    setting = raw.get("setting", "")
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in found.values())
    if not is_number or not isinstance(setting, str):
        return None
    return SizeObservation(
        trainers=int(found["trainers"]),
        servers=int(found["servers"]),
        samples_per_s=float(found["samplesPerSecond"]),
        duration_s=float(found["seconds"]),
        at_s=float(found["unixTime"]),
        setting=setting[:128],
    )


def points_of(log: ObservationLog) -> list[dict[str, Any]]:
    """Return the points as a status has them."""
    return [
        {
            "trainers": point.trainers,
            "servers": point.servers,
            "samplesPerSecond": point.samples_per_s,
            "seconds": point.duration_s,
            "unixTime": point.at_s,
            "setting": point.setting,
        }
        for point in log.points
    ]
