"""What the web felt: how long it waited for what it had asked for, and how much of it was missing."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from autoscaler.domain import Role
from experiments.measuring.pass_record import PassRecord
from experiments.measuring.series import Steps

FIRST_RISE_S: Final = 20.0
"""A rise's pods are created within this long: a hundred at 20 a second, and what is lost on the way."""


def measure_web(record: PassRecord) -> dict[str, float]:
    """Return the web's metrics; empty where no load rises.

    `web_rise_s` is of the first rise; a count that was never reached counts until the end of the pass.
    `web_wait_max_s` is the longest that a pod waited for its room, from creation to binding, its own start apart.
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
    """Return pod-seconds that were wanted and did not run."""
    instants = sorted({from_s, until_s, *wanted.times_s, *running.times_s})
    inside = [at_s for at_s in instants if from_s <= at_s <= until_s]
    return sum(
        max(0.0, wanted.at(at_s) - running.at(at_s)) * (following - at_s) for at_s, following in pairwise(inside)
    )


def longest_wait(record: PassRecord, from_s: float, until_s: float) -> float:
    """Return the longest wait for room of a web pod that was created in between."""
    begin_s, end_s = record.zero_s + from_s, record.zero_s + until_s
    pods = [pod for pod in record.pods if pod.role is Role.OTHER and begin_s <= pod.created_at_s < end_s]
    return max(
        (
            min(end for end in (pod.bound_at_s, pod.gone_at_s, record.zero_s + record.until_s) if end is not None)
            - pod.created_at_s
            for pod in pods
        ),
        default=0.0,
    )
