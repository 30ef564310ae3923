"""P7: what is done now, what waits.

Forced changes go out at once.  Voluntary growth passes its job's window; what does not pass, and what room is still
being vacated for, is stage 2: said, never executed, derived again by the next plan.  Deletions stand first, then the
starts of gangs, then creations; each creation fits into room that is free whatever else is carried out (A2).
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
    CreatePod,
    DeletePod,
    JobState,
    Plan,
    Role,
    Tier,
    Wait,
)
from autoscaler.planner.explain.decisions import decide
from autoscaler.planner.formatting import counted
from autoscaler.planner.next_history import is_voluntary_resize, next_history
from autoscaler.planner.sharing.change_limits import (
    changes_left,
    growth_opens_at,
    leaves_at,
    next_change_at,
    shrink_opens_at,
)
from autoscaler.planner.sharing.elastic_servers import release_servers
from autoscaler.planner.sharing.growth_queue import STARVED, thirst
from autoscaler.planner.working_copy.planned_job import JobDraft, Leaving
from autoscaler.planner.working_copy.working_copy import Draft


def emit(draft: Draft) -> Plan:
    """Return the plan that the finished draft amounts to."""
    jobs = draft.stirred_jobs()
    left = changes_left(draft) - sum(any(is_voluntary_resize(gone.cause) for gone in job.leaving) for job in jobs)
    for job in sorted(jobs, key=lambda job: thirst(draft, job)) if left < inf else jobs:
        leaving = len(job.leaving)
        drop_odd_trainers(draft, job, is_allowed=left >= 1)
        release_servers(draft, job, is_allowed=left >= 1)
        gate_growth(draft, job, is_allowed=left >= 1)
        left -= len(job.leaving) > leaving or grows(job)
    give_grades(draft)
    actions: list[Action] = [delete(draft, job, leaving) for job in jobs for leaving in job.leaving]
    actions += [AdmitGang(job=name, pods=tuple(core_created(draft.jobs[name]))) for name in draft.starts]
    actions += [pod for job in jobs if job.is_running for pod in job.created]
    starting = [job for job in jobs if job.is_starting and any(pod.tier is Tier.SURPLUS for pod in job.coming)]
    told = [job for job in draft.jobs.values() if starting or job.until_s is not None or job.job.name in draft.stirred]
    waits = tuple(wait for job in told for wait in (*waits_of(job), *waits_for_starts(job, starting)))
    return Plan(
        revision=draft.view.revision,
        planned_at_s=draft.now_s,
        decisions=decide(draft),
        actions=tuple(actions),
        waits=waits,
        demands=tuple(draft.demands),
        history=next_history(draft),
        replan_at_s=next_instant(draft, told),
    )


def drop_odd_trainers(draft: Draft, job: JobDraft, *, is_allowed: bool) -> None:
    """Trainers beyond an allowed size that found no others to make up a step leave, voluntarily."""
    if job.size == job.job.trainer.min_replicas or job.job.state is not JobState.ACTIVE:
        return
    odd = job.size - job.job.trainer.largest_allowed(job.size)
    if odd <= 0:
        return
    victims = draft.last_in_line(job)[:odd]
    opens_at_s = shrink_opens_at(draft, job.job) if is_allowed else next_change_at(draft)
    opens_at_s = max([opens_at_s, *(leaves_at(draft.policy, job.job, pod) for pod in victims)])
    if draft.now_s >= opens_at_s:
        draft.remove(job, victims, Cause.STEP, beneficiary="spec.trainer.step")
    else:
        draft.wake_at_s.append(opens_at_s)


def gate_growth(draft: Draft, job: JobDraft, *, is_allowed: bool) -> None:
    """Turn growth that must wait, for the job's window or for the next minute, into a promise."""
    growth = [pod for pod in job.created if pod.cause is Cause.FREE_ROOM]
    if not growth or not job.is_running:
        return
    opens_at_s = growth_opens_at(draft, job.job)
    bottleneck, why = Bottleneck.COOLDOWN, "calm time after a change"
    if draft.now_s >= opens_at_s and not is_allowed:
        opens_at_s = next_change_at(draft)
        bottleneck, why = Bottleneck.BUDGET, f"at most {draft.policy.resizes_per_minute} resizes a minute"
    if draft.now_s >= opens_at_s:
        return
    draft.touch(job)
    trainers = sum(pod.role is Role.TRAINER for pod in growth)
    job.held = trainers
    job.coming_trainers -= trainers
    job.thirst = None
    job.created = [pod for pod in job.created if pod.cause is not Cause.FREE_ROOM]
    wait_s = opens_at_s - draft.now_s
    job.block(bottleneck, f"grows by {trainers} in {ceil(wait_s)} s ({why})", until_s=opens_at_s)


def grows(job: JobDraft) -> bool:
    """Whether this plan grows the job into free room."""
    return job.is_running and any(pod.cause is Cause.FREE_ROOM for pod in job.created)


def give_grades(draft: Draft) -> None:
    """Give surplus that is created the grade at which a scheduler takes it (`grades`), where no quota asked for it."""
    draft.largest_share = 0  # all who start have been admitted by now
    for job in draft.stirred_jobs():
        if any(pod.tier is Tier.SURPLUS and not pod.grade for pod in job.created):
            draft.touch(job)
            job.created = [
                replace(pod, grade=draft.grade_at(job, pod.ordinal))
                if pod.tier is Tier.SURPLUS and not pod.grade
                else pod
                for pod in job.created
            ]


def core_created(job: JobDraft) -> Iterator[CreatePod]:
    """Yield the pods of a gang that starts: its surplus follows once it runs."""
    return (pod for pod in job.created if pod.cause is Cause.START)


def delete(draft: Draft, job: JobDraft, leaving: Leaving) -> DeletePod:
    """Return the order to leave.  Grace of surplus is the web's waiting time, so it is bounded; servers have theirs."""
    pod, servers = leaving.pod, job.job.servers
    is_surplus = pod.tier is Tier.SURPLUS
    grace_s = servers.grace_s if pod.role is Role.SERVER and servers is not None else job.job.grace_s
    return DeletePod(
        pod=pod.name,
        job=job.job.name,
        role=pod.role,
        node=pod.place,
        cause=leaving.cause,
        grace_s=min(grace_s, draft.policy.surplus_grace_s) if is_surplus else grace_s,
        beneficiary=leaving.beneficiary,
    )


def waits_of(job: JobDraft) -> Iterator[Wait]:
    """Yield what the plan would do for the job later."""
    name = job.job.name
    if job.held and job.bottleneck is not None:
        yield Wait(job=name, bottleneck=job.bottleneck, message=job.message, until_s=job.until_s)
    if job.is_starting:
        following = [pod.role for pod in job.created if pod.cause is not Cause.START]
        if following:
            yield Wait(job=name, bottleneck=Bottleneck.GANG, message=f"{counted(following)} more once it runs")
    for move in job.moving:
        message = f"{move.pod} leaves once server {move.ordinal} is ready on {move.node}"
        yield Wait(job=name, bottleneck=Bottleneck.ROOM_LEAVING, message=message)
    if job.promised:
        text = ", ".join(f"{role} on {node}" for role, node in sorted((pod.role, pod.node) for pod in job.promised))
        reason = job.bottleneck if job.bottleneck is Bottleneck.GANG else Bottleneck.ROOM_LEAVING
        yield Wait(job=name, bottleneck=reason, message=f"room is held for {text}")
    elif job.until_s is not None and not job.held and job.bottleneck is not None:
        yield Wait(job=name, bottleneck=job.bottleneck, message=job.message, until_s=job.until_s)


def waits_for_starts(job: JobDraft, starting: list[JobDraft]) -> Iterator[Wait]:
    """Yield that a job without room may get some: the surplus of a starting one is seated anew once that one runs."""
    if job.is_running and job.bottleneck in STARVED:
        for other in starting:
            message = f"room is shared out anew once {other.job.name} runs"
            yield Wait(job=job.job.name, bottleneck=Bottleneck.GANG, message=message)


def next_instant(draft: Draft, jobs: list[JobDraft]) -> float | None:
    """Return when time alone may change the answer."""
    instants = [*draft.wake_at_s, *(job.until_s for job in jobs if job.until_s is not None)]
    seen: dict[str, float] = {entry.pod: entry.since_s for entry in draft.view.history.rooms_seen}
    instants += [seen.get(pod, draft.now_s) + draft.policy.refused_after_s for pod in draft.seen_rooms]
    return min((instant for instant in instants if instant > draft.now_s), default=None)
