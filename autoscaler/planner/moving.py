"""Live defragmentation: servers move to where they waste least once the web's tide has changed (ADR 0118).

A voluntary step after P6.  A move is a new server on the better node, to which the old one hands its state before it
leaves: so the job is never a server short, and for a moment both take room.  Moves begin when nothing is in motion and
some job lacks nothing but room; they gain at least a whole trainer and more than they cost; a job moves few servers at
a time, and the cluster so many a minute.  Where the better node is full, surplus trainers make way that may be taken
voluntarily (`way`).

`finish_moves` goes before room is taken by force, so that the room which an old server leaves is given out in the same
plan.  A planner that remembers nothing finds on the pods what it has to go on with (`Pod.replaces`).  What moves are
worth is `better_places`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from autoscaler.domain import Cause, DemandState, JobState, Pod, PodPhase, Role, ServerMove
from autoscaler.planner.better_places import Better, BetterPlaces
from autoscaler.planner.draft import Draft
from autoscaler.planner.elastic import servers_held, servers_wanted
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.payoff import moves_pay_off
from autoscaler.planner.share import STARVED
from autoscaler.planner.waste import WEIGHED_NODES, waste_of
from autoscaler.planner.way import make_way
from autoscaler.planner.windows import leaves_at, server_moves_left

AT_ONCE: Final = 2
"""Servers of one job: so many numbers beyond its servers' are used, for those that take the place of others."""

HOPELESS: Final = frozenset({DemandState.NEVER_FITS, DemandState.NOT_MODELLED, DemandState.ROOM_REFUSED})
"""Pods of others for which nothing will change: they keep no server from moving."""


def finish_moves(draft: Draft) -> None:
    """Tell the old server of each move to leave once the new one is ready; forget moves that came to an end.

    A new one that is not ready in time leaves again, and one that has no node yet while others lack room, at once.
    One to which state is moving is given the time that this takes.  Where both are wanted meanwhile, since yet another
    server is lost or the ratio calls for one more, both stay, and the move has come to nothing: who leaves when there
    is one too many again is the ratio's choice, in its time.
    """
    refused = {refusal.pod for refusal in draft.history.refusals}
    is_room_wanted = any(want.name not in refused for want in draft.unserved)
    for move in moves_under_way(draft):
        job = draft.jobs.get(move.job)
        if job is None or not job.is_running or job.job.state is not JobState.ACTIVE:
            continue
        old = next((pod for pod in job.servers if pod.name == move.pod), None)
        new = next((pod for pod in job.servers if pod.ordinal == move.ordinal), None)
        if old is None or old is new:
            continue
        is_late = draft.now_s >= move.since_s + draft.policy.shortfall_limit_s
        if new is not None:
            finish(draft, job, move, (old, new), is_late=is_late, is_room_wanted=is_room_wanted)
        elif draft.now_s < job.job.hold_until_s:
            draft.moves_given_up.append(move)  # it was there, and has failed or found its room taken
        elif not is_late and not is_room_wanted:
            bring_new(draft, job, move)


def finish(
    draft: Draft, job: JobDraft, move: ServerMove, pair: tuple[Pod, Pod], *, is_late: bool, is_room_wanted: bool
) -> None:
    """Tell one of the two that stand to leave, the old one or the new one, or wait."""
    old, new = pair
    if servers_held(job) <= servers_wanted(draft, job, job.size):
        draft.moves_given_up.append(replace(move, since_s=draft.now_s))
        return
    if new.phase is PodPhase.PENDING and is_room_wanted:
        draft.remove(job, [new], Cause.DEFRAGMENTATION, beneficiary=old.name)
        return
    draft.server_moves.append(move)
    if new.phase is PodPhase.READY:
        draft.remove(job, [old], Cause.DEFRAGMENTATION, beneficiary=new.name)
    elif is_late and not new.is_settling:
        draft.moves_given_up.append(move)
        draft.remove(job, [new], Cause.DEFRAGMENTATION, beneficiary=old.name)
    else:
        note_moving(draft, job, move)


def moves_under_way(draft: Draft) -> Iterator[ServerMove]:
    """Yield the moves that are remembered, and those that are not, whose pods stand."""
    known = {(move.job, move.ordinal) for move in (*draft.history.server_moves, *draft.moves_given_up)}
    yield from draft.history.server_moves
    for job in draft.stirred_jobs():
        for new in job.servers:
            if new.replaces is not None and new.place is not None and (job.job.name, new.ordinal) not in known:
                yield ServerMove(
                    job=job.job.name,
                    pod=new.replaces,
                    node=new.place,
                    ordinal=new.ordinal,
                    since_s=new.created_at_s,
                )


def bring_new(draft: Draft, job: JobDraft, move: ServerMove) -> None:
    """Create the new server where its room is free by now, or hold that; drop a move whose room or number is gone."""
    at = draft.rooms.index.get(move.node)
    is_free = move.ordinal not in job.ordinals[Role.SERVER] and not draft.quota_lack(job, [Role.SERVER], now=True)
    if at is not None and is_free and draft.rooms.fits(at, job.shapes[Role.SERVER], now=False):
        draft.replace_server(job, move, now=draft.rooms.fits(at, job.shapes[Role.SERVER], now=True))
        draft.server_moves.append(move)
        note_moving(draft, job, move)


def note_moving(draft: Draft, job: JobDraft, move: ServerMove) -> None:
    """Both the old server and the new one stand, or will."""
    job.moving.append(move)
    draft.wake_at_s.append(move.since_s + draft.policy.shortfall_limit_s)


def begin_moves(draft: Draft) -> None:
    """Begin the moves that are worth most, while there are any and the minute allows them."""
    left = server_moves_left(draft) if can_move(draft) else 0
    if not left or not is_calm(draft):
        return
    places = BetterPlaces(draft)
    for job in draft.stirred_jobs():
        leaving = {move.pod for move in job.moving}
        for pod in job.servers:
            if pod.name in leaving:
                places.note_leaving(pod)
    touched: set[int] = set()
    for better in places.in_order(list(movable_servers(draft))):
        nodes = {better.at, *(source.at for source in better.sources)}
        is_possible = len(better.sources) <= left and not nodes & touched
        if is_possible and is_worth_it(draft, better) and begin(draft, better):
            touched |= nodes  # what others of this plan would win there is no longer known
            left -= len(better.sources)


def can_move(draft: Draft) -> bool:
    """Whether the cluster and the policy let servers move, and somebody lacks nothing but room."""
    if not draft.moves_servers or len(draft.rooms) > WEIGHED_NODES or not waste_of(draft).is_weighed:
        return False
    return any(job.bottleneck in STARVED for job in draft.jobs.values())


def is_calm(draft: Draft) -> bool:
    """Whether nothing is in motion: no web that rises or falls, no gang that starts or waits, nothing by force."""
    if draft.now_s < draft.quiet_from_s:
        draft.wake_at_s.append(draft.quiet_from_s)
        return False
    is_at_level = all(draft.standing.get(load.name, 0) == load.desired_replicas for load in draft.view.workloads)
    is_served = all(
        demand.state in HOPELESS or (demand.cause is Cause.HEADROOM and demand.state is DemandState.ROOM_FREE)
        for demand in draft.demands
    )
    if not (is_at_level and is_served) or draft.reservations or draft.bars or draft.short or draft.is_gang_binding:
        return False
    jobs = draft.stirred_jobs()
    is_forced = any(leaving.cause.is_forced for job in jobs for leaving in job.leaving)
    return not is_forced and not any(job.is_starting for job in jobs)


def movable_servers(draft: Draft) -> Iterator[tuple[JobDraft, Pod]]:
    """Yield the servers that may move now: old enough, and of jobs that have all that they want.

    One whose move came to nothing stays where it is for the longest pause after refusals.
    """
    staying = {move.pod for move in draft.moves_given_up}
    for job in draft.stirred_jobs():
        is_there = job.is_running and job.job.state is JobState.ACTIVE and draft.now_s >= job.job.hold_until_s
        if not (is_there and job.servers and is_at_rest(draft, job)) or draft.quota_lack(job, [Role.SERVER], now=True):
            continue
        busy = {move.pod for move in job.moving}
        for pod in job.servers:
            if pod.phase is PodPhase.READY and pod.name not in busy and pod.name not in staying:
                opens_at_s = leaves_at(draft.policy, job.job, pod)
                if draft.now_s >= opens_at_s:
                    yield job, pod
                else:
                    draft.wake_at_s.append(opens_at_s)


def is_at_rest(draft: Draft, job: JobDraft) -> bool:
    """Whether the job has the servers that it wants, few enough leave or move, and a number is free."""
    wanted = servers_wanted(draft, job, job.size)
    return (
        servers_held(job) == wanted
        and len(job.ordinals[Role.SERVER]) < wanted + AT_ONCE
        and job.free_ordinal(Role.SERVER, spare=AT_ONCE) is not None
    )


def is_worth_it(draft: Draft, better: Better) -> bool:
    """Whether the moves bring more than they cost."""
    first = better.sources[0].job
    worth = waste_of(draft).worth_of(first.shapes[Role.TRAINER])
    jobs = [(source.job.job, source.job.size) for source in better.sources]
    return moves_pay_off(draft.policy, jobs, better.gain / max(1, worth))


def begin(draft: Draft, better: Better) -> bool:
    """Create the new servers, or hold room that is being vacated for them; False, and nothing done, if there is none.

    The old ones leave in a later plan.
    """
    names = [source.pod.name for source in better.sources]
    if not make_way(draft, better.at, better.shape, len(names), beneficiary=names[0]):
        return False
    for source in better.sources:
        job, ordinal = source.job, source.job.free_ordinal(Role.SERVER, spare=AT_ONCE)
        if ordinal is not None:
            job_name, name, node = job.job.name, source.pod.name, draft.rooms.names[better.at]
            move = ServerMove(job=job_name, pod=name, node=node, ordinal=ordinal, since_s=draft.now_s)
            draft.replace_server(job, move, now=draft.rooms.fits(better.at, better.shape, now=True))
            draft.server_moves.append(move)
            note_moving(draft, job, move)
    return True
