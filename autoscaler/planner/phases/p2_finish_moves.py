"""."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autoscaler.domain import Cause, JobState, Pod, PodPhase, Role, ServerMove
from autoscaler.planner.sharing.elastic_servers import servers_held, servers_wanted
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def finish_moves(copy: WorkingCopy) -> None:
    """Tell the old server of each move to leave once the new one is ready; forget moves that came to an end.

    A new one that is not ready in time leaves again, and one that has no node yet while others lack room, at once.
    One to which state is moving is given the time that this takes.  Where both are wanted meanwhile, since yet another
    server is lost or the ratio calls for one more, both stay, and the move has come to nothing: who leaves when there
    is one too many again is the ratio's choice, in its time.
    """
    refused = {refusal.pod for refusal in copy.history.refusals}
    is_room_wanted = any(want.name not in refused for want in copy.external.unserved)
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
            finish(copy, job, move, (old, new), is_late=is_late, is_room_wanted=is_room_wanted)
        elif copy.now_s < job.spec.hold_until_s:
            copy.carried.moves_given_up.append(move)  # it was there, and has failed or found its room taken
        elif not is_late and not is_room_wanted:
            bring_new(copy, job, move)


def finish(
    copy: WorkingCopy, job: PlannedJob, move: ServerMove, pair: tuple[Pod, Pod], *, is_late: bool, is_room_wanted: bool
) -> None:
    """Tell one of the two that stand to leave, the old one or the new one, or wait."""
    old, new = pair
    if servers_held(job) <= servers_wanted(copy, job, job.size):
        copy.carried.moves_given_up.append(replace(move, since_s=copy.now_s))
        return
    if new.phase is PodPhase.PENDING and is_room_wanted:
        copy.remove(job, [new], Cause.DEFRAGMENTATION, beneficiary=old.name)
        return
    copy.carried.server_moves.append(move)
    if new.phase is PodPhase.READY:
        copy.remove(job, [old], Cause.DEFRAGMENTATION, beneficiary=new.name)
    elif is_late and not new.is_settling:
        copy.carried.moves_given_up.append(move)
        copy.remove(job, [new], Cause.DEFRAGMENTATION, beneficiary=old.name)
    else:
        record_moving(copy, job, move)


def moves_under_way(copy: WorkingCopy) -> Iterator[ServerMove]:
    """Yield the moves that are remembered, and those that are not, whose pods stand."""
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


def bring_new(copy: WorkingCopy, job: PlannedJob, move: ServerMove) -> None:
    """Create the new server where its room is free by now, or hold that; drop a move whose room or number is gone."""
    at = copy.capacity.index.get(move.node)
    is_free = move.ordinal not in job.ordinals[Role.SERVER] and not copy.quotas.lack(job, [Role.SERVER], now=True)
    if at is not None and is_free and copy.capacity.fits(at, job.shapes[Role.SERVER], now=False):
        copy.replace_server(job, move, now=copy.capacity.fits(at, job.shapes[Role.SERVER], now=True))
        copy.carried.server_moves.append(move)
        record_moving(copy, job, move)


def record_moving(copy: WorkingCopy, job: PlannedJob, move: ServerMove) -> None:
    """Both the old server and the new one stand, or will."""
    job.moving.append(move)
    copy.wake_at_s.append(move.since_s + copy.policy.shortfall_limit_s)
