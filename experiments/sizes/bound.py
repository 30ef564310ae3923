"""Lower bounds of completion times, under any policy that may choose sizes at every instant and pauses nobody.

Two relaxations, job by job the larger one of the first and the mean of the second: each job alone on the cluster at its
fastest size; and the cluster as one machine that works off GPU-hours, shortest remaining first, where each job needs no
more than its GPU time on one GPU (no curve here does more on a GPU than alone).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from experiments.sizes.workload import LARGEST, TraceJob


def bound_of_mean_s(trace: Sequence[TraceJob], gpus: int) -> float:
    """Return a mean completion time that no policy beats."""
    alone = sum(job.samples / max(map(job.curve.samples_per_s, range(1, LARGEST + 1))) for job in trace)
    return max(alone, flow_on_one_machine_s(trace, gpus)) / len(trace)


def flow_on_one_machine_s(trace: Sequence[TraceJob], gpus: int) -> float:
    """Return the sum of completion times on one machine of all GPUs: shortest remaining time first is optimal there."""
    waiting: list[float] = []
    total_s = now_s = 0.0
    arrivals = [(job.at_s, job.gpu_hours * 3_600.0 / gpus) for job in sorted(trace, key=lambda job: job.at_s)]
    for number, (at_s, need_s) in enumerate([*arrivals, (float("inf"), 0.0)]):
        while waiting and now_s < at_s:
            left_s = heappop(waiting)
            if now_s + left_s > at_s:
                heappush(waiting, left_s - (at_s - now_s))
                total_s += (at_s - now_s) * len(waiting)
                now_s = at_s
            else:
                total_s += left_s * (len(waiting) + 1)
                now_s += left_s
        now_s = at_s
        if number < len(arrivals):
            heappush(waiting, need_s)
    return total_s
