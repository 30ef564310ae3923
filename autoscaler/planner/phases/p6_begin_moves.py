"""Server moves that this plan begins: live defragmentation, once web load has changed (ADR 0118).

A voluntary step after P6. A move creates a new server on the better node, and the old one hands its state over before
it leaves: the job is never a server short, and for a moment both take capacity. Moves begin when nothing else is in
motion and some job lacks only capacity. They gain at least a whole trainer and more than they cost; a job moves few
servers at a time, and the cluster a limited number in a minute. What moves are worth is `relocations`; how they end
is `p2_finish_moves`.

Where the better node is full, surplus trainers are evicted for the move, only as a voluntary change takes them: each
job keeps its window and its minimum, each trainer has run for its time, and sizes change by one (A6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from autoscaler.domain import Cause, DemandState, JobState, Pod, PodPhase, Role, ServerMove, Tier
from autoscaler.planner.phases.p2_finish_moves import record_moving
from autoscaler.planner.placement.relocations import Relocation, RelocationSearch
from autoscaler.planner.placement.server_departures import ServerDepartures
from autoscaler.planner.placement.waste import WEIGHED_NODES, waste_of
from autoscaler.planner.sharing.change_limits import leaves_at, moves_pay_off, server_moves_left, shrink_opens_at
from autoscaler.planner.sharing.elastic_servers import servers_wanted, staying_server_count
from autoscaler.planner.sharing.growth_queue import CAPACITY_BOTTLENECKS
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

MOVES_PER_JOB: Final = 2
"""Most concurrent moves of one job; its successors use that many extra ordinals."""

UNCHANGING: Final = frozenset({DemandState.NEVER_FITS, DemandState.NOT_MODELLED, DemandState.SCHEDULER_REFUSED})
"""Demand states that will not change soon and so do not block moves."""

MOST_DISPLACED: Final = 2
"""Trainers that leave one node at once."""


def begin_moves(copy: WorkingCopy) -> None:
    """Begin the moves that are worth most, as many as the minute allows."""
    left = server_moves_left(copy) if can_move(copy) else 0
    if not left or not nothing_is_in_motion(copy):
        return
    departures = ServerDepartures(copy)
    places = RelocationSearch(copy, departures)
    for job in copy.dirty_jobs():
        leaving = {move.pod for move in job.moving}
        for pod in job.servers:
            if pod.name in leaving:
                places.count_as_free(pod)
    touched: set[int] = set()
    for relocation in places.in_order(list(movable_servers(copy, departures))):
        nodes = {relocation.at, *(source.at for source in relocation.sources)}
        if len(relocation.sources) > left or nodes & touched:
            continue
        displaced = find_displaced(copy, relocation)
        if displaced is not None and is_worth_moving(copy, relocation, places.trainers_gained(relocation), displaced):
            begin_move(copy, relocation, displaced)
            touched |= nodes  # gains of other moves on these nodes must be recomputed
            left -= len(relocation.sources)


def can_move(copy: WorkingCopy) -> bool:
    """True if the cluster and the policy let servers move, and some job lacks nothing but capacity."""
    if not copy.moves_servers or len(copy.capacity) > WEIGHED_NODES or not waste_of(copy).is_weighed:
        return False
    return any(job.bottleneck in CAPACITY_BOTTLENECKS for job in copy.jobs.values())


def nothing_is_in_motion(copy: WorkingCopy) -> bool:
    """True if nothing is in motion: no workload changes its size, no gang starts or waits, and no change is forced."""
    if copy.now_s < copy.quiet_from_s:
        copy.wake_at_s.append(copy.quiet_from_s)
        return False
    is_at_level = all(
        copy.external.pod_count_by_workload.get(load.name, 0) == load.desired_replicas for load in copy.view.workloads
    )
    is_served = all(
        demand.state in UNCHANGING or (demand.cause is Cause.HEADROOM and demand.state is DemandState.CAPACITY_FREE)
        for demand in copy.external.answers
    )
    if (
        not (is_at_level and is_served)
        or copy.carried.reservations
        or copy.carried.bars
        or copy.carried.shortfalls
        or copy.is_gang_binding
    ):
        return False
    jobs = copy.dirty_jobs()
    is_forced = any(leaving.cause.is_forced for job in jobs for leaving in job.leaving)
    return not is_forced and not any(job.is_starting for job in jobs)


def movable_servers(copy: WorkingCopy, departures: ServerDepartures) -> Iterator[tuple[PlannedJob, Pod]]:
    """Yield the servers that may move now: old enough, and of jobs that have all the servers that they want.

    A server whose move was given up is not moved again for `refusal_backoff_limit_s`, and one that has moved not back
    while nothing else changes (`server_departures`).
    """
    staying = {move.pod for move in copy.carried.moves_given_up}
    for job in copy.dirty_jobs():
        if not (
            job.is_in_service(copy.now_s) and job.servers and has_wanted_servers(copy, job)
        ) or copy.quotas.find_problem(job, [Role.SERVER], now=True):
            continue
        busy = {move.pod for move in job.moving}
        for pod in job.servers:
            is_free = pod.phase is PodPhase.READY and pod.name not in busy and pod.name not in staying
            may_leave = is_free and pod.node is not None and departures.may_leave(job, pod.node)
            if may_leave and copy.is_due(leaves_at(copy.policy, job.spec, pod)):
                yield job, pod


def has_wanted_servers(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if the job has the servers that it wants, few enough of them leave or move, and an ordinal is free."""
    wanted = servers_wanted(copy, job, job.size)
    return (
        staying_server_count(job) == wanted
        and len(job.ordinals[Role.SERVER]) < wanted + MOVES_PER_JOB
        and job.free_ordinal(Role.SERVER, extra=MOVES_PER_JOB) is not None
    )


def is_worth_moving(
    copy: WorkingCopy, relocation: Relocation, trainers_gained: float, displaced: Sequence[tuple[PlannedJob, Pod]]
) -> bool:
    """True if the moves gain more than they cost, the resizes of those that make room included."""
    jobs = [(source.job.spec, source.job.size) for source in relocation.sources]
    resized = {job.spec.name: (job.spec, job.size) for job, _ in displaced}
    return moves_pay_off(copy.policy, jobs, trainers_gained, displaced=tuple(resized.values()))


def begin_move(copy: WorkingCopy, relocation: Relocation, displaced: Sequence[tuple[PlannedJob, Pod]]) -> None:
    """Remove the displaced trainers, and create the new servers or reserve capacity that is being vacated for them.

    The old servers leave in a later plan.
    """
    for job, pod in displaced:
        copy.remove(job, [pod], Cause.DEFRAGMENTATION, beneficiary=relocation.sources[0].pod.name)
    for source in relocation.sources:
        job, ordinal = source.job, source.job.free_ordinal(Role.SERVER, extra=MOVES_PER_JOB)
        if ordinal is not None:
            job_name, name, node = job.spec.name, source.pod.name, copy.capacity.names[relocation.at]
            move = ServerMove(job=job_name, pod=name, node=node, ordinal=ordinal, since_s=copy.now_s)
            copy.replace_server(job, move, now=copy.capacity.fits(relocation.at, relocation.shape, now=True))
            copy.carried.server_moves.append(move)
            record_moving(copy, job, move)


def find_displaced(copy: WorkingCopy, relocation: Relocation) -> list[tuple[PlannedJob, Pod]] | None:
    """Return the few trainers that must leave the node so that the servers fit there; None if many must go.

    Pods that are leaving the node already count as gone.
    """
    at, count = relocation.at, len(relocation.sources)
    needed = [count * amount for amount in copy.capacity.request_amounts(relocation.shape)]
    free = copy.capacity.later[:, at].tolist()
    lacking = [max(0, amount - there) if amount else 0 for amount, there in zip(needed, free, strict=True)]
    taken: list[tuple[PlannedJob, Pod]] = []
    for job, pod in sorted(displaceable(copy, at), key=lambda pair: (-pair[0].attained(), pair[0].spec.name)):
        if not any(lacking):
            break
        amounts = copy.capacity.request_amounts(copy.shapes.number(pod.shape))
        lacking = [max(0, lack - amount) for lack, amount in zip(lacking, amounts, strict=True)]
        taken.append((job, pod))
    return None if any(lacking) or len(taken) > MOST_DISPLACED else taken


def displaceable(copy: WorkingCopy, at: int) -> Iterator[tuple[PlannedJob, Pod]]:
    """Yield the surplus trainers on a node that may be removed voluntarily now."""
    name = copy.capacity.names[at]
    for owner in sorted({owner for owner in copy.surplus_owners.get(at, ()) if owner is not None}):
        job = copy.jobs[owner]
        if not may_give_one(copy, job):
            continue
        there = (pod for pod in job.trainers if pod.place == name and pod.tier is Tier.SURPLUS)
        for pod, _ in zip(sorted(there, key=lambda pod: -pod.ordinal), range(job.spare), strict=False):
            if copy.is_due(leaves_at(copy.policy, job.spec, pod)):
                yield job, pod


def may_give_one(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if the job's sizes change by one trainer and its window is open."""
    spec = job.spec.trainer
    is_single = spec.is_by_single_trainers and spec.per_node == 1 and not spec.pinned_replicas
    if not is_single or job.spec.state is not JobState.ACTIVE or not job.spare or job.coming_trainers:
        return False
    return copy.is_due(shrink_opens_at(copy, job.spec))
