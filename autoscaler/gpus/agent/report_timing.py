"""Timing of a node's reports: written as seldom as decisions allow (ADR 0283).  Pure.

| since the report that was written last | it is written |
|---|---|
| none was written | within `spread_s` of the start |
| a GPU that was idle is idle no more, or another pod has it | at once |
| any other change | `settle_s` after the first, so that changes come together |
| none, and a pod or a process holds an idle GPU | every `renew_held_s` |
| none | every `renew_s` |
| the operator asks | at once |

Renewals are scattered by a tenth, so that agents that began together do not write together.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.gpu_reports import IDLE_VERDICTS, GpuVerdict, NodeGpuReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTiming:
    """Seconds.  10,000 nodes that all hold idle GPUs renew 17 times a second; those that hold none 3 times."""

    spread_s: float = 60.0
    settle_s: float = 30.0
    renew_held_s: float = 600.0
    renew_s: float = 3600.0
    ask_every_s: float = 30.0  # while a GPU is held: whether the operator asks for a report
    first_pause_s: float = 5.0  # after a write that failed, doubling
    longest_pause_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReport:
    """Report that stands in the cluster, and since when (monotonic clock)."""

    report: NodeGpuReport
    at_s: float


def holds_idle(report: NodeGpuReport) -> bool:
    """True if a pod or a process holds a GPU of the node that does not compute."""
    return any(one.verdict is GpuVerdict.HELD for one in report.gpus)


def is_urgent(old: NodeGpuReport, new: NodeGpuReport) -> bool:
    """True if the old report tells of a GPU as idle that is not, or whose pods are others: it must not be believed."""
    now = {one.uuid: one for one in new.gpus}
    for before in old.gpus:
        if before.verdict in IDLE_VERDICTS:
            after = now.get(before.uuid)
            if after is None or not before.has_same_verdict(after):
                return True
    return False


def due_at_s(
    written: WrittenReport | None,
    new: NodeGpuReport,
    *,
    changed_at_s: float | None,
    started_at_s: float,
    jitter: float,
    timing: ReportTiming,
) -> float:
    """Instant, on the monotonic clock, at which `new` is to be written.

    `changed_at_s`: when the first difference to the written report was seen, None without one.  `jitter` is in [0, 1)
    and drawn once for each write.
    """
    if written is None:
        return started_at_s + jitter * timing.spread_s
    if changed_at_s is not None:
        return changed_at_s if is_urgent(written.report, new) else changed_at_s + timing.settle_s
    every_s = timing.renew_held_s if holds_idle(new) else timing.renew_s
    return written.at_s + every_s * (0.9 + 0.1 * jitter)


def pause_s(failures: int, *, retry_after_s: float, jitter: float, timing: ReportTiming) -> float:
    """Seconds to wait after so many failures in a row."""
    growing_s = min(timing.first_pause_s * 2.0 ** min(failures - 1, 16), timing.longest_pause_s)
    return max(min(retry_after_s, timing.longest_pause_s), growing_s * (0.5 + jitter / 2))
