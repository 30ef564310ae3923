"""Server moves that earlier plans began: the old server leaves once the new one is ready (ADR 0118).

This runs before P3 reclaims surplus, so that the capacity of an old server is given out in the same plan. After a
restart the planner finds its moves on the pods (`Pod.replaces`). New moves begin in `p6_begin_moves`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autoscaler.domain import Cause, JobState, Pod, PodPhase, Role, ServerMove
from autoscaler.planner.placement.server_departures import record_departure
from autoscaler.planner.sharing.elastic_servers import servers_wanted, staying_server_count
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def finish_moves(copy: WorkingCopy) -> None:
    """Remove the old server of each move whose new one is ready; drop moves that came to an end.

    A new server that is not ready in time leaves again, and one without a node leaves at once while other pods need
    its capacity. A server that is receiving buckets gets the time that this takes. If the job wants both servers
    meanwhile, both stay and the move is abandoned.
    """
    refused = {refusal.pod for refusal in copy.history.refusals}
    is_contended = any(want.name not in refused for want in copy.external.unserved)
    for move in moves_under_way(copy):
        job = copy.jobs.get(move.job)
        if job is None or not job.is_running or job.spec.state is not JobState.ACTIVE:
            continue
        old = next((pod for pod in job.servers if pod.name == move.pod), None)
        new = next((pod for pod in job.servers if pod.ordinal == move.ordinal), None)
        if old is None or old is new:
            continue
        is_late = copy.now_s >= move.since_s + copy.policy.shortfall_limit_s
        if new is not None:
            finish_move(copy, job, move, (old, new), is_late=is_late, is_contended=is_contended)
        elif copy.now_s < job.spec.hold_until_s:
            copy.carried.moves_given_up.append(move)  # it existed and failed, or lost its capacity
        elif not is_late and not is_contended:
            create_replacement(copy, job, move)


def finish_move(
    copy: WorkingCopy, job: PlannedJob, move: ServerMove, pair: tuple[Pod, Pod], *, is_late: bool, is_contended: bool
) -> None:
    """Remove the old server, or the new one, or wait."""
    old, new = pair
    if staying_server_count(job) <= servers_wanted(copy, job, job.size):
        copy.carried.moves_given_up.append(replace(move, since_s=copy.now_s))
        return
    if new.phase is PodPhase.PENDING and is_contended:
        copy.remove(job, [new], Cause.DEFRAGMENTATION, beneficiary=old.name)
        return
    copy.carried.server_moves.append(move)
    if new.phase is PodPhase.READY:
        record_departure(copy, move, old, new)
        copy.remove(job, [old], Cause.DEFRAGMENTATION, beneficiary=new.name)
    elif is_late and not new.is_settling:
        copy.carried.moves_given_up.append(move)
        copy.remove(job, [new], Cause.DEFRAGMENTATION, beneficiary=old.name)
    else:
        record_moving(copy, job, move)


def moves_under_way(copy: WorkingCopy) -> Iterator[ServerMove]:
    """Yield the moves in the history, and those found only on pods (`Pod.replaces`)."""
    known = {(move.job, move.ordinal) for move in (*copy.history.server_moves, *copy.carried.moves_given_up)}
    yield from copy.history.server_moves
    for job in copy.dirty_jobs():
        for new in job.servers:
            if new.replaces is not None and new.place is not None and (job.spec.name, new.ordinal) not in known:
                yield ServerMove(
                    job=job.spec.name,
                    pod=new.replaces,
                    node=new.place,
                    ordinal=new.ordinal,
                    since_s=new.created_at_s,
                )


def create_replacement(copy: WorkingCopy, job: PlannedJob, move: ServerMove) -> None:
    """Create the new server if its capacity is free by now, or reserve it; drop a move whose capacity or ordinal is
    gone."""
    at = copy.capacity.index.get(move.node)
    is_free = move.ordinal not in job.ordinals[Role.SERVER] and not copy.quotas.find_problem(
        job, [Role.SERVER], now=True
    )
    if at is not None and is_free and copy.capacity.fits(at, job.shapes[Role.SERVER], now=False):
        copy.replace_server(job, move, now=copy.capacity.fits(at, job.shapes[Role.SERVER], now=True))
        copy.carried.server_moves.append(move)
        record_moving(copy, job, move)


def record_moving(copy: WorkingCopy, job: PlannedJob, move: ServerMove) -> None:
    """Record that both the old server and the new one exist or will, and when the move is late."""
    job.moving.append(move)
    copy.wake_at_s.append(move.since_s + copy.policy.shortfall_limit_s)
