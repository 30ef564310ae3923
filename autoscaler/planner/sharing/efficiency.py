"""Trainers that bring too little leave, and a size is measured where too little is known (ADR 0266).

Growth stops at the knee by itself (`PlannedJob.worthwhile`). Here a job that is beyond it gives back what does not
pay, voluntarily: in its windows, within the caps, and if what others can do with the trainers outweighs the pause. A
job that was seen at its largest size only gets a quarter of it once, for as long as it takes to see that size. From
two sizes so far apart the curve between them follows, and a job that scales gets its trainers back.
"""

from __future__ import annotations

from math import inf, isnan
from typing import Final

from autoscaler.domain import Bottleneck, Cause, Job, JobSetting, Policy
from autoscaler.planner.sharing.change_limits import (
    changes_left,
    horizon_s,
    leaves_at,
    next_change_at,
    resize_of,
    shrink_opens_at,
)
from autoscaler.planner.working_copy.job_speed import added_by, second_size, worth_of
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.ranks import removal_order
from autoscaler.planner.working_copy.working_copy import WorkingCopy

BEYOND: Final = 0.9
"""Trainers leave if the last step brings less than this part of what is asked: no job goes to and fro at its knee."""

PROBED_AFTER_S: Final = 120.0
"""A job is measured at a smaller size once it has had one for so long: other resizes show a second size for free."""

PROBED_FROM_S: Final = 1_800.0
"""A job that ends sooner is not measured: what would be learnt no longer pays for half a minute at a quarter."""

SETTING: Final = JobSetting("spec.trainer.efficiency")


def release_inefficient(copy: WorkingCopy, job: PlannedJob) -> None:
    """Remove the trainers beyond what pays, or most of them to measure the job, where it may shrink now."""
    if not job.is_questioned or not job.is_in_service(copy.now_s):
        return
    size, target = job.size, target_of(copy, job)
    if target >= size:
        return
    victims = removal_order(copy, job)[: size - target]
    opens_at_s = shrink_opens_at(copy, job.spec) if changes_left(copy) >= 1 else next_change_at(copy)
    opens_at_s = max([opens_at_s, *(leaves_at(copy.policy, job.spec, pod) for pod in victims)])
    if len(victims) == size - target and copy.is_due(opens_at_s):
        job.is_probing = not is_curve_known(job.spec)
        copy.remove(job, victims, Cause.EFFICIENCY, beneficiary=SETTING)


def target_of(copy: WorkingCopy, job: PlannedJob) -> int:
    """Return the size that the job should have for its efficiency; its own if that is as it should be."""
    spec, size, sizes = job.spec, job.size, job.spec.trainer
    if spec.throughput is None or size <= sizes.min_replicas:
        return size
    if not is_curve_known(spec):
        return probe_of(copy, job)
    if size <= job.worthwhile:
        return size
    before = sizes.largest_allowed(size - 1)
    last = added_by(spec, spec.throughput.tried, before, size)
    if last >= BEYOND * sizes.efficiency:
        return size
    freed = (size - job.worthwhile) - (worth_of(spec, size) - worth_of(spec, job.worthwhile))
    is_paid = not copy.policy.payoff_s or freed * horizon_s(copy.policy, spec) > size * spec.pause_s
    return job.worthwhile if is_paid else size


def probe_of(copy: WorkingCopy, job: PlannedJob) -> int:
    """Return a quarter of the size of a job that was seen at its largest size only, for long enough; else its size.

    A job that has its largest size has room around it: others want nothing of what it has. Smaller jobs are resized
    by the demands of others, and so are seen at a second size for free.
    """
    spec, size = job.spec, job.size
    last = resize_of(copy, spec)
    is_seen_here = spec.throughput is not None and spec.throughput.sizes == (size,) and size == job.ceiling
    if not is_seen_here or not copy.policy.observing_s or last.gave_back_at_s is not None or ends_soon(spec):
        return size
    second = second_size(spec.trainer, size)
    if not is_worth_measuring(copy.policy, spec, size, second):
        return size
    since_s = max(last.grown_at_s or -inf, last.shrunk_at_s or -inf, copy.history.since_s, spec.submitted_at_s)
    return second if copy.is_due(since_s + PROBED_AFTER_S) else size


def is_worth_measuring(policy: Policy, job: Job, size: int, second: int) -> bool:
    """True if a look at the second size costs less than the most that can be learnt: all beyond the minimum are freed.

    The cost is two pauses, and the time at the smaller size.
    """
    lost = (size + second) * job.pause_s + (size - second) * policy.observing_s
    return not policy.payoff_s or (size - job.trainer.min_replicas) * horizon_s(policy, job) > lost


def ends_soon(job: Job) -> bool:
    """True if the job is known to end before a measurement pays."""
    return job.remaining_s is not None and not isnan(job.remaining_s) and job.remaining_s < PROBED_FROM_S


def is_curve_known(job: Job) -> bool:
    """True if other sizes can be told from what was observed."""
    return job.throughput is not None and job.throughput.is_known


def block_by_efficiency(job: PlannedJob, following: int) -> None:
    """Record what the next size would bring, and that it is too little."""
    spec, size, curve = job.spec, job.size, job.spec.throughput
    if curve is None:
        return
    count = following - size
    more = spec.samples_per_s(curve.expected, following) / spec.samples_per_s(curve.expected, size) - 1.0
    each = added_by(spec, curve.expected, size, following)
    message = f"{count} more would add {more:.0%}, {each:.2f} of a trainer each; {spec.trainer.efficiency:g} is asked"
    job.block(Bottleneck.EFFICIENCY, message)
