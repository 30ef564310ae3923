"""The metrics of 2017, and those it lacked, from one pass.  Each is one number; its unit is in its name.

An instant that never came counts as the end of what was measured, for the first trainer and the web as the end of the
pass: a mean over passes must not lose the worst of them.
The web's metrics are in `web_metrics`, names and goals in `experiments.reporting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from experiments.arms.pass_setup import SERVERS_MOVED
from experiments.measuring.pass_record import JobTimeline, PassRecord
from experiments.measuring.series import Steps
from experiments.measuring.web_metrics import measure_web

STEADY_S: Final = 60.0
"""The last minute of what was measured is called steady."""
SETTLED_S: Final = 20.0
"""So long before a step the load was steady."""
VOLUNTARY: Final = frozenset(["transfer", "defragmentation", SERVERS_MOVED])
"""Among what the planner removed: not for the web."""
JAIN_AFTER_S: Final = 30.0
"""After the last arrival shares should be even."""


def measure(record: PassRecord) -> dict[str, float]:
    """Return all metrics of a pass by name."""
    return {
        **measure_use(record),
        **measure_jobs(record),
        **measure_removals(record),
        **measure_web(record),
        **measure_gap(record),
    }


def measure_use(record: PassRecord) -> dict[str, float]:
    """Utilisation: mean over all, steady at the end, and with web pods at their highest and lowest before the steps."""
    end_s = record.measured_until_s
    found = {
        "mean_utilisation_percent": record.utilisation.mean(0.0, end_s),
        "steady_utilisation_percent": record.utilisation.mean(max(0.0, end_s - STEADY_S), end_s),
    }
    if record.gpu_utilisation is not None:
        found["mean_gpu_utilisation_percent"] = record.gpu_utilisation.mean(0.0, end_s)
    steps = [at_s for at_s in record.wanted.times_s if 0 < at_s < end_s]
    if steps:
        found["peak_utilisation_percent"] = before(record.utilisation, steps[0])
        if record.rises:
            found["off_peak_utilisation_percent"] = before(record.utilisation, min(record.rises[0].at_s, end_s))
    return found


def before(series: Steps, at_s: float) -> float:
    """Return the mean of the seconds before an instant."""
    return series.mean(max(0.0, at_s - SETTLED_S), at_s)


def measure_jobs(record: PassRecord) -> dict[str, float]:
    """Waiting, trainers and their fairness, samples."""
    end_s, jobs = record.measured_until_s, list(record.jobs.values())
    come = [job for job in jobs if job.submitted_s < end_s]
    waits = [min(job.trainers.first(positive, job.submitted_s), record.until_s) - job.submitted_s for job in come]
    trainable_s = [job.trainable.first(positive, job.submitted_s) for job in come]
    trainable = [min(at_s, end_s) - job.submitted_s for job, at_s in zip(come, trainable_s, strict=True)]
    last_s = max(job.submitted_s for job in jobs)
    return {
        "mean_pending_s": mean(waits),
        "trainable_pending_s": mean(trainable),
        "trainable_pending_max_s": max(trainable, default=0.0),
        "all_trainable_at_s": min(max(trainable_s, default=0.0), record.until_s),
        "trainer_seconds": record.trainers.integral(0.0, end_s),
        "trainers_mean": record.trainers.mean(0.0, end_s),
        "jobs_with_all_servers": sum(job.servers.at(end_s) >= job.servers_wanted for job in come),
        "jobs_without_trainer": sum(not job.trainers.at(end_s) for job in come),
        "jain_index": jain(jobs, end_s),
        "jain_after_last_arrival_min": min(
            (jain(jobs, at_s) for at_s in grid(last_s + JAIN_AFTER_S, end_s)), default=jain(jobs, end_s)
        ),
        "samples_trained": sum(job.trained.at(end_s) for job in jobs),
        "samples_lost": sum(job.lost.at(end_s) for job in jobs),
    }


def positive(value: float) -> bool:
    """Whether there is any."""
    return value > 0


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def grid(from_s: float, until_s: float, step_s: float = 5.0) -> list[float]:
    """Return instants a step apart, up to the end."""
    count = int((until_s - from_s) // step_s) + 1
    return [from_s + number * step_s for number in range(max(0, count))]


def jain(jobs: Sequence[JobTimeline], at_s: float) -> float:
    """Return Jain's index of trainers per weight over all jobs that have come: 1 is even, 1/n is one has all."""
    shares = [job.trainers.at(at_s) / job.weight for job in jobs if job.submitted_s <= at_s]
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else 1.0


def measure_removals(record: PassRecord) -> dict[str, float]:
    """Trainers removed: killed or drained, by the scheduler, by cause, beside what the web's rises make necessary."""
    removed = record.removed()
    drained = sum(pod.was_drained is True for pod in removed)
    found: dict[str, float] = {
        "trainers_removed": len(removed),
        "trainers_drained": drained,
        "trainers_killed": len(removed) - drained,
        "trainers_preempted": sum(pod.is_preempted for pod in removed),
        "transfers": record.removals.get("transfer", 0),
        "forced_removals": sum(count for cause, count in record.removals.items() if cause not in VOLUNTARY),
    }
    if SERVERS_MOVED in record.removals:
        found["servers_moved"] = record.removals[SERVERS_MOVED]
    if record.bounds and record.rises:
        found["removals_needed"] = needed_removals(record)
    return found


def needed_removals(record: PassRecord) -> float:
    """Sum over the web's rises: trainers before, minus what the pinned bound holds once the web stands (R)."""
    instants = sorted({rise.at_s for rise in record.rises if rise.at_s < record.measured_until_s})
    steps = sorted({at_s for at_s in record.wanted.times_s if at_s > 0})
    total = 0.0
    for at_s in instants:
        next_s = min([step_s for step_s in steps if step_s > at_s + 1e-6], default=inf)
        limit_s = min(next_s, record.measured_until_s)
        after = [sample.pinned_trainers for sample in record.bounds if at_s < sample.at_s < limit_s]
        if after:
            total += max(0.0, record.trainers.at(at_s - 1e-6) - after[-1])
    return total


def measure_gap(record: PassRecord) -> dict[str, float]:
    """Both bounds over time, as means of their samples."""
    samples = [sample for sample in record.bounds if sample.at_s <= record.measured_until_s]
    if not samples:
        return {}
    steady = [sample for sample in samples if sample.at_s >= record.measured_until_s - STEADY_S]
    pinned, free = mean([s.pinned_percent for s in samples]), mean([s.free_percent for s in samples])
    return {
        "pinned_mean_percent": pinned,
        "free_mean_percent": free,
        "price_of_servers_points": free - pinned,
        "pinned_steady_percent": mean([s.pinned_percent for s in steady]),
        "free_steady_percent": mean([s.free_percent for s in steady]),
        "free_is_exact": float(all(s.is_exact for s in samples)),
    }


def curves(record: PassRecord, step_s: float = 5.0) -> Mapping[str, object]:
    """Return what figures draw, on a grid up to the end."""
    instants = grid(0.0, record.until_s, step_s)
    totals: Mapping[str, Steps] = {
        "utilisation_percent": record.utilisation,
        "trainers": record.trainers,
        "web_wanted": record.wanted,
        "web_running": record.running,
    }
    return {
        "step_s": step_s,
        **{name: [round(series.at(at_s), 2) for at_s in instants] for name, series in totals.items()},
        "job_sizes": [[int(job.trainers.at(at_s)) for at_s in instants] for job in record.jobs.values()],
        "bounds": [[round(s.at_s, 1), round(s.pinned_percent, 2), round(s.free_percent, 2)] for s in record.bounds],
    }
