"""Whether a voluntary change of size makes good what it costs.

While a job changes its size all its trainers stand still for `Job.resize_cost_s`.  From n to m trainers that costs
n * cost trainer-seconds, and brings (m - n) trainer-seconds a second for as long as the job still runs, looked at for
`Policy.payoff_s` at most: further ahead the cluster is another one.  Forced changes never ask here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from autoscaler.domain import Job, Policy


def pays_off(policy: Policy, job: Job, size: int, target: int) -> bool:
    """Whether growing from `size` to `target` trainers brings more than it costs within the time looked at."""
    return not policy.payoff_s or gain_of(policy, job, size, target) > 0.0


def moves_pay_off(policy: Policy, jobs: Sequence[tuple[Job, int]], gained: float) -> bool:
    """Whether moving a server of each of these jobs makes good what it costs: meanwhile all its trainers stand still.

    `jobs`: each with its size.  `gained`: what more trainers have room then, in trainers of the first job.
    """
    cost = sum(size * policy.server_move_cost_s for _, size in jobs)
    return not policy.payoff_s or gained * min(horizon_s(policy, job) for job, _ in jobs) > cost


def gain_of(policy: Policy, job: Job, size: int, target: int) -> float:
    """Return the trainer-seconds that the growth brings beyond its cost; a job that is nearly done gains little."""
    return (target - size) * horizon_s(policy, job) - size * job.resize_cost_s


def horizon_s(policy: Policy, job: Job) -> float:
    """Return for how long a gain counts.  An unknown remaining time is long: no NaN keeps a job small (A7)."""
    remaining_s = job.remaining_s
    return policy.payoff_s if remaining_s is None or isnan(remaining_s) else min(policy.payoff_s, max(0.0, remaining_s))
