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

from collections import Counter
from collections.abc import Iterator
from typing import Final

from autoscaler.domain import Cause, DemandState, JobName, JobState, Pod, PodPhase, Role, ServerMove, Tier
from autoscaler.planner.phases.p2_finish_moves import note_moving
from autoscaler.planner.placement.relocations import Better, BetterPlaces
from autoscaler.planner.placement.waste import WEIGHED_NODES, waste_of
from autoscaler.planner.sharing.change_limits import leaves_at, moves_pay_off, server_moves_left, shrink_opens_at
from autoscaler.planner.sharing.elastic_servers import servers_held, servers_wanted
from autoscaler.planner.sharing.growth_queue import STARVED
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.working_copy import Draft

AT_ONCE: Final = 2
"""Servers of one job: so many numbers beyond its servers' are used, for those that take the place of others."""

HOPELESS: Final = frozenset({DemandState.NEVER_FITS, DemandState.NOT_MODELLED, DemandState.ROOM_REFUSED})
"""Pods of others for which nothing will change: they keep no server from moving."""


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


MOST_DISPLACED: Final = 2
"""Trainers that leave one node at once."""


def make_way(draft: Draft, at: int, shape: int, count: int, *, beneficiary: str) -> bool:
    """Have few trainers leave the node so that so many pods of the shape fit; False, and nothing done, if many must.

    What is leaving the node already counts as gone.
    """
    asked = [count * amount for amount in draft.rooms.asked_amounts(shape)]
    room = draft.rooms.later[:, at].tolist()
    lacking = [max(0, amount - there) if amount else 0 for amount, there in zip(asked, room, strict=True)]
    taken: list[tuple[JobDraft, Pod]] = []
    for job, pod in sorted(displaceable(draft, at), key=lambda pair: (-draft.share(pair[0]), pair[0].job.name)):
        if not any(lacking):
            break
        amounts = draft.rooms.asked_amounts(draft.shapes.number(pod.shape))
        lacking = [max(0, lack - amount) for lack, amount in zip(lacking, amounts, strict=True)]
        taken.append((job, pod))
    if any(lacking) or len(taken) > MOST_DISPLACED:
        return False
    for job, pod in taken:
        draft.remove(job, [pod], Cause.DEFRAGMENTATION, beneficiary=beneficiary)
    return True


def displaceable(draft: Draft, at: int) -> Iterator[tuple[JobDraft, Pod]]:
    """Yield the surplus trainers on a node that may be taken voluntarily now."""
    name = draft.rooms.names[at]
    for owner, held in sorted(Counter(filter(None, draft.held_on.get(at, ()))).items()):
        job = draft.jobs[JobName(owner)]
        if not held or not may_give_one(draft, job):
            continue
        there = (pod for pod in job.trainers if pod.place == name and pod.tier is Tier.SURPLUS)
        for pod, _ in zip(sorted(there, key=lambda pod: -pod.ordinal), range(job.spare), strict=False):
            opens_at_s = leaves_at(draft.policy, job.job, pod)
            if draft.now_s >= opens_at_s:
                yield job, pod
            else:
                draft.wake_at_s.append(opens_at_s)


def may_give_one(draft: Draft, job: JobDraft) -> bool:
    """Whether the job is one that gives single trainers, and its window is open."""
    spec = job.job.trainer
    is_single = spec.step == 1 and spec.per_node == 1 and not spec.powers_of_two and not spec.pinned_replicas
    if not is_single or job.job.state is not JobState.ACTIVE or not job.spare or job.coming_trainers:
        return False
    opens_at_s = shrink_opens_at(draft, job.job)
    if draft.now_s < opens_at_s:
        draft.wake_at_s.append(opens_at_s)
    return draft.now_s >= opens_at_s
