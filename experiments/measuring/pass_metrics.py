"""Metrics of one pass: those of 2017, and new ones.  Each is one number; its unit is in its name.

An instant that never came counts as the end of measuring, for the first trainer and the web as the end of the pass; so
the mean over passes keeps the worst ones.  `experiments.reporting` has titles and goals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Final

from autoscaler.domain import Role
from experiments.arms.pass_setup import SERVERS_MOVED
from experiments.measuring.pass_record import JobTimeline, PassRecord
from experiments.measuring.series import Steps

STEADY_S: Final = 60.0
"""The steady state is the last minute of measuring."""
SETTLED_S: Final = 20.0
"""Seconds of steady load before a step."""
VOLUNTARY: Final = frozenset(["transfer", "defragmentation", SERVERS_MOVED])
"""Causes of the planner's removals that are not for the web."""
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
    """True if the value is above 0."""
    return value > 0


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 for an empty sequence."""
    return sum(values) / len(values) if values else 0.0


def grid(from_s: float, until_s: float, step_s: float = 5.0) -> list[float]:
    """Return instants a step apart, up to the end."""
    count = int((until_s - from_s) // step_s) + 1
    return [from_s + number * step_s for number in range(max(0, count))]


def jain(jobs: Sequence[JobTimeline], at_s: float) -> float:
    """Return Jain's index of trainers per weight over the submitted jobs: 1 is even, 1/n if one job has all."""
    shares = [job.trainers.at(at_s) / job.weight for job in jobs if job.submitted_s <= at_s]
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else 1.0


def measure_removals(record: PassRecord) -> dict[str, float]:
    """Trainers removed: killed or drained, preempted, by cause, beside the removals that the web's rises need."""
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
    """Sum over the web's rises: trainers before, minus the pinned bound's trainers once the web runs (R)."""
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
    """Means of both bounds' samples."""
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
    """Return the curves of the figures, on a grid up to the end."""
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


FIRST_RISE_S: Final = 20.0
"""Pods of a rise are created within this time: a hundred at 20 a second, and retries."""


def measure_web(record: PassRecord) -> dict[str, float]:
    """Return the web's metrics; empty where no load rises.

    `web_rise_s` is of the first rise; a count that was never reached counts until the end of the pass.
    `web_wait_max_s` is the longest wait of a web pod from creation to binding, without its start.
    """
    rises = [rise for rise in record.rises if rise.at_s < record.measured_until_s]
    if not rises:
        return {}
    times = [time_to_wanted(record.web[rise.web].running, rise.at_s, rise.wanted, record.until_s) for rise in rises]
    begin_s, end_s = rises[0].at_s, record.measured_until_s
    missing = sum(shortfall(web.wanted, web.running, begin_s, end_s) for web in record.web.values())
    wanted = sum(web.wanted.integral(begin_s, end_s) for web in record.web.values())
    peak = max(record.wanted.values, default=0.0)
    stands = all(web.running.at(record.until_s) >= web.wanted.at(record.until_s) for web in record.web.values())
    return {
        "web_rise_s": times[0],
        "web_rise_max_s": max(times),
        "web_shortfall_percent": 100 * missing / wanted if wanted else 0.0,
        "web_shortfall_pod_s": missing,
        "web_back_at_peak_passes_percent": 100.0 * (stands and record.wanted.at(record.until_s) >= peak),
        "web_wait_first_s": longest_wait(record, begin_s, min(rises[0].at_s + FIRST_RISE_S, end_s)),
        "web_wait_max_s": longest_wait(record, begin_s, end_s),
    }


def time_to_wanted(running: Steps, at_s: float, wanted: int, until_s: float) -> float:
    """Return how long after `at_s` the count was reached."""
    return min(running.first(lambda count: count >= wanted, at_s), until_s) - at_s


def shortfall(wanted: Steps, running: Steps, from_s: float, until_s: float) -> float:
    """Return the pod-seconds that were wanted and did not run."""
    instants = sorted({from_s, until_s, *wanted.times_s, *running.times_s})
    inside = [at_s for at_s in instants if from_s <= at_s <= until_s]
    return sum(
        max(0.0, wanted.at(at_s) - running.at(at_s)) * (following - at_s) for at_s, following in pairwise(inside)
    )


def longest_wait(record: PassRecord, from_s: float, until_s: float) -> float:
    """Return the longest wait for capacity of a web pod that was created in between."""
    begin_s, end_s = record.zero_s + from_s, record.zero_s + until_s
    pods = [pod for pod in record.pods if pod.role is Role.EXTERNAL and begin_s <= pod.created_at_s < end_s]
    return max(
        (
            min(end for end in (pod.bound_at_s, pod.gone_at_s, record.zero_s + record.until_s) if end is not None)
            - pod.created_at_s
            for pod in pods
        ),
        default=0.0,
    )
