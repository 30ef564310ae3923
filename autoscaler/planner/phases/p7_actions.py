"""P7: the actions of this plan, and what waits for a later one.

Forced changes go out at once. Voluntary growth must pass its job's window; blocked growth, and pods whose capacity is
still being vacated, are deferred: the plan reports it, and the next plan derives it again. Deletions come first, then
the starts of gangs, then creations; each creation fits into free capacity whichever of the others are carried out
(A2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, inf

from autoscaler.domain import (
    Action,
    AdmitGang,
    Bottleneck,
    Cause,
    DeferredChange,
    DeletePod,
    JobSetting,
    JobState,
    Role,
    Tier,
)
from autoscaler.planner.formatting import counted
from autoscaler.planner.sharing.change_limits import (
    changes_left,
    growth_opens_at,
    is_measured,
    leaves_at,
    next_change_at,
    resize_of,
    shrink_opens_at,
)
from autoscaler.planner.sharing.elastic_servers import release_servers
from autoscaler.planner.sharing.growth_queue import CAPACITY_BOTTLENECKS, growth_key
from autoscaler.planner.working_copy.planned_job import Leaving, PlannedJob
from autoscaler.planner.working_copy.ranks import removal_order
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def plan_actions(copy: WorkingCopy) -> tuple[tuple[Action, ...], tuple[DeferredChange, ...]]:
    """Return the actions, safe at every prefix (A2), and what waits for a later plan."""
    jobs = copy.dirty_jobs()
    left = changes_left(copy) - sum(any(gone.cause.counts_as_resize for gone in job.leaving) for job in jobs)
    for job in sorted(jobs, key=lambda job: growth_key(copy, job)) if left < inf else jobs:
        leaving = len(job.leaving)
        remove_partial_steps(copy, job, is_allowed=left >= 1)
        release_servers(copy, job, is_allowed=left >= 1)
        gate_growth(copy, job, is_allowed=left >= 1)
        left -= len(job.leaving) > leaving or is_growing(job)
    assign_grades(copy)
    actions: list[Action] = [delete_action(copy, job, leaving) for job in jobs for leaving in job.leaving]
    for name in copy.starts:  # the core alone: surplus follows once the job runs
        core = tuple(pod for pod in copy.jobs[name].created if pod.cause is Cause.START)
        actions.append(AdmitGang(job=name, pods=core))
    actions += [pod for job in jobs if job.is_running for pod in job.created]
    starting = [job for job in jobs if job.is_starting and any(pod.tier is Tier.SURPLUS for pod in job.coming)]
    waiting = [job for job in copy.jobs.values() if starting or job.until_s is not None or job.spec.name in copy.dirty]
    waits = tuple(wait for job in waiting for wait in (*waits_of(job), *waits_for_starts(job, starting)))
    return tuple(actions), waits


def remove_partial_steps(copy: WorkingCopy, job: PlannedJob, *, is_allowed: bool) -> None:
    """Remove trainers beyond an allowed size that found no others to make up a step, voluntarily."""
    if job.size == job.spec.trainer.min_replicas or job.spec.state is not JobState.ACTIVE:
        return
    beyond = job.size - job.spec.trainer.largest_allowed(job.size)
    if beyond <= 0:
        return
    victims = removal_order(copy, job)[:beyond]
    opens_at_s = shrink_opens_at(copy, job.spec) if is_allowed else next_change_at(copy)
    opens_at_s = max([opens_at_s, *(leaves_at(copy.policy, job.spec, pod) for pod in victims)])
    if copy.is_due(opens_at_s):
        field = "spec.trainer.sizes" if job.spec.trainer.sizes else "spec.trainer.step"
        copy.remove(job, victims, Cause.STEP, beneficiary=JobSetting(field))


def gate_growth(copy: WorkingCopy, job: PlannedJob, *, is_allowed: bool) -> None:
    """Hold back growth that must wait for the job's window or for the next minute."""
    growth = [pod for pod in job.created if pod.cause is Cause.FREE_CAPACITY]
    if not growth or not job.is_running:
        return
    opens_at_s = growth_opens_at(copy, job.spec)
    is_measuring = is_measured(job.spec, resize_of(copy, job.spec))
    why = f"its throughput is measured at {job.now} trainers" if is_measuring else "window after a change"
    bottleneck = Bottleneck.COOLDOWN
    if copy.now_s >= opens_at_s and not is_allowed:
        opens_at_s = next_change_at(copy)
        bottleneck, why = Bottleneck.BUDGET, f"at most {copy.policy.resizes_per_minute} resizes a minute"
    if copy.now_s >= opens_at_s:
        return
    copy.touch(job)
    trainers = sum(pod.role is Role.TRAINER for pod in growth)
    job.waiting_growth = trainers
    job.coming_trainers -= trainers
    job.growth_key = None
    job.created = [pod for pod in job.created if pod.cause is not Cause.FREE_CAPACITY]
    copy.changed_jobs.append(job)
    wait_s = opens_at_s - copy.now_s
    job.block(bottleneck, f"grows by {trainers} in {ceil(wait_s)} s ({why})", until_s=opens_at_s)


def is_growing(job: PlannedJob) -> bool:
    """True if this plan grows the job into free capacity."""
    return job.is_running and any(pod.cause is Cause.FREE_CAPACITY for pod in job.created)


def assign_grades(copy: WorkingCopy) -> None:
    """Give created surplus the grade by which a scheduler preempts it (`grades`), where no quota asked for it
    before."""
    copy.grades.forget_largest_share()  # all jobs that start have been admitted by now
    for job in copy.dirty_jobs():
        if any(pod.tier is Tier.SURPLUS and not pod.grade for pod in job.created):
            copy.touch(job)
            job.created = [
                replace(pod, grade=copy.grades.grade_at(job, pod.ordinal))
                if pod.tier is Tier.SURPLUS and not pod.grade
                else pod
                for pod in job.created
            ]


def delete_action(copy: WorkingCopy, job: PlannedJob, leaving: Leaving) -> DeletePod:
    """Return the action that removes the pod. The grace of surplus is bounded, since a web pod waits for it; servers
    have their own."""
    pod, servers = leaving.pod, job.spec.servers
    is_surplus = pod.tier is Tier.SURPLUS
    grace_s = servers.grace_s if pod.role is Role.SERVER and servers is not None else job.spec.grace_s
    return DeletePod(
        pod=pod.name,
        job=job.spec.name,
        role=pod.role,
        node=pod.place,
        cause=leaving.cause,
        grace_s=min(grace_s, copy.policy.surplus_grace_s) if is_surplus else grace_s,
        beneficiary=leaving.beneficiary,
    )


def waits_of(job: PlannedJob) -> Iterator[DeferredChange]:
    """Yield what the plan would do for the job later."""
    name = job.spec.name
    if job.waiting_growth and job.bottleneck is not None:
        yield DeferredChange(job=name, bottleneck=job.bottleneck, message=job.message, until_s=job.until_s)
    if job.is_starting:
        following = [pod.role for pod in job.created if pod.cause is not Cause.START]
        if following:
            yield DeferredChange(
                job=name, bottleneck=Bottleneck.GANG, message=f"{counted(following)} more once it runs"
            )
    for move in job.moving:
        message = f"{move.pod} is removed once server {move.ordinal} is ready on {move.node}"
        yield DeferredChange(job=name, bottleneck=Bottleneck.CAPACITY_DRAINING, message=message)
    if job.reserved:
        text = ", ".join(f"{role} on {node}" for role, node in sorted((pod.role, pod.node) for pod in job.reserved))
        reason = job.bottleneck if job.bottleneck is Bottleneck.GANG else Bottleneck.CAPACITY_DRAINING
        yield DeferredChange(job=name, bottleneck=reason, message=f"capacity is reserved for {text}")
    elif job.until_s is not None and not job.waiting_growth and job.bottleneck is not None:
        yield DeferredChange(job=name, bottleneck=job.bottleneck, message=job.message, until_s=job.until_s)


def waits_for_starts(job: PlannedJob, starting: list[PlannedJob]) -> Iterator[DeferredChange]:
    """Deferred changes of jobs without capacity: a starting job's capacity is shared out again once it runs."""
    if job.is_running and job.bottleneck in CAPACITY_BOTTLENECKS:
        for other in starting:
            message = f"capacity is shared out again once {other.spec.name} runs"
            yield DeferredChange(job=job.spec.name, bottleneck=Bottleneck.GANG, message=message)


def next_instant(copy: WorkingCopy) -> float | None:
    """Return the earliest instant at which time alone may change the answer; None if it never does."""
    instants = [*copy.wake_at_s, *(job.until_s for job in copy.jobs.values() if job.until_s is not None)]
    seen: dict[str, float] = {entry.pod: entry.since_s for entry in copy.history.unused_capacity}
    instants += [seen.get(pod, copy.now_s) + copy.policy.refused_after_s for pod in copy.external.unused_capacity]
    return min((instant for instant in instants if instant > copy.now_s), default=None)
