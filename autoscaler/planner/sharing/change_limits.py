"""Timers, caps and pay-off of voluntary changes (A6). Forced changes bypass these limits.

Each job has two windows: it grows no sooner than `up_window_s` after its last shrink, and shrinks voluntarily no sooner
than `down_window_s` after its last growth. A quiet window after a submission or a new external pod holds all jobs, so
that a burst is answered once, and a job that the scheduler has preempted pauses (`beside-the-scheduler.md` 11). A
trainer runs for a while before it may be taken, longer where its job says so (`beside-the-scheduler.md` 20). All
changes together may be capped by the minute. Functions in `_at` return the instant from which the change is allowed.

A change of size must also pay off: all n trainers pause for `Job.pause_s`, and growth to m
brings (m - n) trainer-seconds a second for as long as the job still runs, at most `Policy.payoff_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan

from autoscaler.domain import Job, Pod, Policy, ResizeTimes, Role
from autoscaler.planner.working_copy.job_speed import worth_of
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def growth_opens_at(copy: WorkingCopy, job: Job) -> float:
    """Instant from which the job may grow."""
    resize = resize_of(copy, job)
    last = resize.shrunk_at_s
    preempted_s = copy.carried.preempted_at_s.get(job.name, -inf) + copy.policy.preempted_pause_s
    window_s = max(copy.policy.up_window_s, copy.policy.observing_s if is_measured(job, resize) else 0.0)
    return max(started_after(copy, job, last) + window_s, copy.quiet_from_s, preempted_s)


def is_measured(job: Job, last: ResizeTimes) -> bool:
    """True if a job was made smaller to be measured, and has not been yet: it grows again once this size is seen."""
    return last.gave_back_at_s is not None and job.throughput is not None and not job.throughput.is_known


def shrink_opens_at(copy: WorkingCopy, job: Job) -> float:
    """Instant from which the job may be shrunk voluntarily."""
    last = resize_of(copy, job).grown_at_s
    return max(started_after(copy, job, last) + copy.policy.down_window_s, copy.quiet_from_s)


def leaves_at(policy: Policy, job: Job, pod: Pod) -> float:
    """Instant from which the pod may be removed voluntarily: after the policy's time, for a trainer its job's too."""
    of_job_s = job.trainer.min_run_s if pod.role is Role.TRAINER else 0.0
    return pod.created_at_s + max(policy.victim_age_s, of_job_s)


def transfers_left(copy: WorkingCopy) -> int:
    """Return how many trainers may still be moved for fairness within this minute."""
    recent = sum(at_s > copy.now_s - 60.0 for at_s in copy.history.transfers_at_s)
    return max(0, transfers_allowed(copy) - recent)


def transfers_allowed(copy: WorkingCopy) -> int:
    """Return how many trainers may be moved for fairness in a minute: a number, or a part of all trainers if that is
    more."""
    percent = copy.policy.transfers_percent_per_minute
    trainers = sum(len(job.trainers) for job in copy.jobs.values()) if percent else 0
    return max(copy.policy.transfers_per_minute, trainers * percent // 100)


def server_moves_left(copy: WorkingCopy) -> int:
    """Return how many servers may still be moved within this minute: of a number, or of a part of all servers if that
    is more."""
    percent = copy.policy.server_moves_percent_per_minute
    servers = sum(len(job.servers) for job in copy.jobs.values()) if percent else 0
    recent = sum(at_s > copy.now_s - 60.0 for at_s in copy.history.server_moves_at_s)
    return max(0, max(copy.policy.server_moves_per_minute, servers * percent // 100) - recent)


def changes_left(copy: WorkingCopy) -> float:
    """Return how many jobs may still change their size voluntarily within this minute; infinity without a limit."""
    if not copy.policy.resizes_per_minute:
        return inf
    recent = sum(change.at_s > copy.now_s - 60.0 for change in copy.history.changes)
    return max(0, copy.policy.resizes_per_minute - recent)


def next_change_at(copy: WorkingCopy) -> float:
    """Instant at which the oldest voluntary change of this minute is a minute old."""
    return max(copy.now_s + 1.0, min((change.at_s for change in copy.history.changes), default=copy.now_s) + 60.0)


def resize_of(copy: WorkingCopy, job: Job) -> ResizeTimes:
    """Return when the job was last resized."""
    return copy.carried.resizes.get(job.name) or ResizeTimes(job=job.name)


def started_after(copy: WorkingCopy, job: Job, last_s: float | None) -> float:
    """Return the instant at which a window starts: the last resize; for jobs older than the history, its beginning."""
    if last_s is not None:
        return last_s
    return copy.history.since_s if job.submitted_at_s < copy.history.since_s else -inf


def pays_off(policy: Policy, job: Job, size: int, target: int) -> bool:
    """True if growth from `size` to `target` trainers gains more than it costs within the time that counts."""
    return not policy.payoff_s or gain_of(policy, job, size, target) > 0.0


def moves_pay_off(
    policy: Policy, jobs: Sequence[tuple[Job, int]], gained: float, *, displaced: Sequence[tuple[Job, int]] = ()
) -> bool:
    """True if moving a server of each of these jobs pays off; its cost is a pause of all their trainers.

    `jobs`: each with its size. `gained`: how many more trainers fit then, in trainers of the first job. `displaced`:
    jobs that lose trainers to the move, each with its size, whose trainers all pause for their resize.
    """
    cost = sum(size * policy.server_move_cost_s for _, size in jobs)
    cost += sum(size * job.pause_s for job, size in displaced)
    return not policy.payoff_s or gained * min(horizon_s(policy, job) for job, _ in jobs) > cost


def gain_of(policy: Policy, job: Job, size: int, target: int) -> float:
    """Return the trainer-seconds that growth gains beyond its cost, by the observed throughput where there is one.

    A job that is nearly done gains little."""
    now = worth_of(job, size)
    return (worth_of(job, target) - now) * horizon_s(policy, job) - now * job.pause_s


def horizon_s(policy: Policy, job: Job) -> float:
    """Return for how long a gain counts. An unknown remaining time counts as long, so that no NaN keeps a job small
    (A7)."""
    remaining_s = job.remaining_s
    return policy.payoff_s if remaining_s is None or isnan(remaining_s) else min(policy.payoff_s, max(0.0, remaining_s))
