"""The planner's history from one plan to the next.

`next_history` records what a plan observed and reserved, `record_applied` what was carried out; the loop
calls it for each action that the cluster has carried out. Entries of pods and jobs that are gone are dropped, so the
cluster bounds the history.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Final

from autoscaler.domain import (
    Action,
    AdmitGang,
    Cause,
    CreatePod,
    DeletePod,
    DemandState,
    History,
    IdleGift,
    JobName,
    PreemptedJob,
    Refusal,
    ResizeTimes,
    Role,
    Shortfall,
    UnusedCapacity,
    VacatedNode,
    VoluntaryResize,
)
from autoscaler.planner.working_copy.working_copy import WorkingCopy

# Vacated capacity is remembered while the pod has it or has refused it; otherwise another pod took the capacity.
HOLDS_CAPACITY = frozenset({DemandState.CAPACITY_FREE, DemandState.CAPACITY_DRAINING, DemandState.SCHEDULER_REFUSED})

ONE_CHANGE_S: Final = 1.0
"""A plan writes its pods one after the other: those of a job within this time are one change of its size."""


def next_history(copy: WorkingCopy) -> History:
    """Return the history after this plan and before its actions."""
    old = copy.view.history
    jobs = copy.jobs
    since_s = {gap.job: gap.since_s for gap in old.shortfalls}
    return History(
        since_s=old.since_s,
        resizes=tuple(entry for entry in old.resizes if entry.job in jobs),
        vacated_nodes=vacated_nodes(copy),
        unused_capacity=tuple(entry for entry in unused_capacity(copy) if not is_refused_now(copy, entry)),
        refusals=refusals(copy),
        reservations=tuple(copy.carried.reservations),
        bars=tuple(copy.carried.bars),
        shortfalls=tuple(
            Shortfall(job=job, since_s=since_s.get(job, copy.now_s)) for job in sorted(copy.carried.shortfalls)
        ),
        transfers_at_s=tuple(at_s for at_s in old.transfers_at_s if at_s > copy.now_s - 60.0),
        changes=tuple(change for change in old.changes if change.at_s > copy.now_s - 60.0),
        preempted=tuple(
            PreemptedJob(job=job, at_s=at_s) for job, at_s in sorted(copy.carried.preempted_at_s.items()) if job in jobs
        ),
        idle_gifts=tuple(
            IdleGift(job=job, at_s=at_s) for job, at_s in sorted(copy.carried.idle_gifts_at_s.items()) if job in jobs
        ),
        server_moves=tuple(copy.carried.server_moves),
        moves_given_up=tuple(copy.carried.moves_given_up),
        server_departures=tuple(entry for entry in copy.carried.server_departures if entry.job in jobs),
        server_moves_at_s=(
            *(at_s for at_s in old.server_moves_at_s if at_s > copy.now_s - 60.0),
            *(copy.now_s for move in copy.carried.server_moves if move not in old.server_moves),
        ),
    )


def vacated_nodes(copy: WorkingCopy) -> tuple[VacatedNode, ...]:
    """Return the nodes vacated for pods that still need or have refused them, and those of this plan."""
    states = {demand.pod: demand.state for demand in copy.external.answers}
    refused = {refusal.pod for refusal in copy.view.history.refusals}
    kept = {
        made
        for made in copy.view.history.vacated_nodes
        if made.pod in states and (made.pod in refused or states[made.pod] in HOLDS_CAPACITY)
    }
    new = {
        VacatedNode(pod=demand.pod, node=demand.node)
        for demand in copy.external.answers
        if demand.state is DemandState.SHRUNK_FOR and demand.node is not None
    }
    return tuple(sorted(kept | new, key=lambda made: (made.pod, made.node)))


def unused_capacity(copy: WorkingCopy) -> list[UnusedCapacity]:
    """Return the pods that are marked unschedulable although there is capacity, and since when."""
    since_s = {entry.pod: entry.since_s for entry in copy.view.history.unused_capacity}
    return [
        UnusedCapacity(pod=demand.pod, since_s=since_s.get(demand.pod, copy.now_s))
        for demand in copy.external.answers
        if demand.pod in copy.external.unused_capacity
    ]


def is_refused_now(copy: WorkingCopy, seen: UnusedCapacity) -> bool:
    """True if the pod has not used free capacity for `refused_after_s`."""
    return copy.now_s >= seen.since_s + copy.policy.refused_after_s


def refusals(copy: WorkingCopy) -> tuple[Refusal, ...]:
    """Return the refusals of pods that still wait, and the new ones; each pause is twice the one before."""
    waiting = {demand.pod for demand in copy.external.answers}
    known = {refusal.pod: refusal for refusal in copy.view.history.refusals if refusal.pod in waiting}
    for seen in unused_capacity(copy):
        if is_refused_now(copy, seen):
            count = known[seen.pod].count + 1 if seen.pod in known else 1
            pause_s = min(copy.policy.refusal_backoff_s * 2.0 ** (count - 1), copy.policy.refusal_backoff_limit_s)
            known[seen.pod] = Refusal(pod=seen.pod, count=count, until_s=copy.now_s + pause_s)
    return tuple(known[pod] for pod in sorted(known))


def record_applied(history: History, action: Action, now_s: float) -> History:
    """Return the history after one action was carried out."""
    match action:
        case AdmitGang():
            return with_resize(history, action.job, grown_at_s=now_s)
        case CreatePod():
            if action.cause.counts_as_resize:
                history = with_change(history, action.job, now_s)
            return with_resize(history, action.job, grown_at_s=now_s) if action.role is Role.TRAINER else history
        case DeletePod():
            if action.cause is Cause.TRANSFER:
                history = replace(history, transfers_at_s=(*history.transfers_at_s, now_s))
            if action.cause is Cause.IDLE:
                others = [gift for gift in history.idle_gifts if gift.job != action.job]
                gifts = sorted([*others, IdleGift(job=action.job, at_s=now_s)], key=lambda gift: gift.job)
                history = replace(history, idle_gifts=tuple(gifts))
            if action.cause.counts_as_resize:
                history = with_change(history, action.job, now_s)
            is_shrink = action.role is Role.TRAINER and action.cause is not Cause.LOST_NODE
            gave_back_at_s = now_s if action.cause is Cause.EFFICIENCY else None
            shrunk = with_resize(history, action.job, shrunk_at_s=now_s, gave_back_at_s=gave_back_at_s)
            return shrunk if is_shrink else history


def with_change(history: History, job: JobName, now_s: float) -> History:
    """Return the history with one more voluntary resize, unless this write belongs to the job's last one."""
    last_s = max((change.at_s for change in history.changes if change.job == job), default=-inf)
    if now_s < last_s + ONE_CHANGE_S:
        return history
    return replace(history, changes=(*history.changes, VoluntaryResize(job=job, at_s=now_s)))


def with_resize(
    history: History,
    job: JobName,
    *,
    grown_at_s: float | None = None,
    shrunk_at_s: float | None = None,
    gave_back_at_s: float | None = None,
) -> History:
    """Return the history with the job's last growth or shrink moved to an instant."""
    old = next((entry for entry in history.resizes if entry.job == job), ResizeTimes(job=job))
    new = ResizeTimes(
        job=job,
        grown_at_s=old.grown_at_s if grown_at_s is None else grown_at_s,
        shrunk_at_s=old.shrunk_at_s if shrunk_at_s is None else shrunk_at_s,
        gave_back_at_s=old.gave_back_at_s if gave_back_at_s is None else gave_back_at_s,
    )
    others = [entry for entry in history.resizes if entry.job != job]
    return replace(history, resizes=tuple(sorted([*others, new], key=lambda entry: entry.job)))
