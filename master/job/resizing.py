"""Servers come and go: who enters the lineage, what they are to own, and that the way there is begun (rules 41, 49).

A server that comes while the job serves enters with an empty list (RESTORE of no bucket) and then gets its share.  One
that has to go, because it says so or because fewer are wanted (`scaling`), gives its buckets away first and is released
when it owns nothing.  Evenness is for servers that come and go alone: an uneven placement that somebody asked for by
measured load (`MovesAsked`) stays.

Not here: how a bucket moves (`moves`), which ones move (`placement`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

from master.api.identities import Version
from master.api.messages import Restore, ServerLeaving, ServerReport
from master.api.positions import EMPTY
from master.job import table
from master.job.domain import MovesAsked
from master.job.frozen_map import FrozenMap
from master.job.membership import Server, put_server
from master.job.placement import NOBODY, Weight, moves, place
from master.job.state import JobState, Stage, Turn

HOT: Final = 2.0
"""More than so many times the ordinary load is a load that counts."""


def handle_leaving(turn: Turn, server: Server, _: ServerLeaving) -> None:
    """Its buckets go to the others; without others it stays as it is until it ends, and that is a loss."""
    if not server.is_leaving:
        turn.change(members=put_server(turn.state.members, replace(server, is_leaving=True)))
        plan(turn)


def handle_asked(turn: Turn, event: MovesAsked) -> None:
    """The newest wish takes the place of what waits; servers that have to go come before any wish."""
    state = turn.state
    if state.route is None or state.stage is not Stage.SERVING or any(map(state.is_going, _servers(state))):
        return
    known = [one for one in event.moves if 0 <= one.bucket < len(state.route.owner)]
    turn.change(moves=replace(state.moves, waiting=tuple(known), reason=event.reason))


def handle_report(turn: Turn, server: Server, said: ServerReport) -> None:
    """What buckets weigh, from whoever owns them: heeded by the next plan and by the pace of moves."""
    state = turn.state
    fits = len(said.buckets) == len(said.sizes_bytes) == len(said.loads)
    if said.lineage != state.number or state.route is None or not fits:
        return
    mine = table.owned(state.route, server.key.incarnation)
    weighed = zip(said.buckets, said.sizes_bytes, said.loads, strict=True)
    heard = {b: Weight(size_bytes=max(0, size), load=_load(load)) for b, size, load in weighed if b in mine}
    turn.change(weights=state.weights.put_all(heard))


def _load(said: float) -> float:
    return said if 0.0 <= said < math.inf else 0.0


def _weights(state: JobState, bucket_count: int) -> list[Weight]:
    """Of every bucket; none while one is not known.  Only what is hot has a load: beside all, and beside its server's.

    Servers measure at different times, and what differs by chance must not move: two servers whose buckets seem to be
    of two kinds would exchange half of them.
    """
    known = [weight for bucket in range(bucket_count) if (weight := state.weights.get(bucket))]
    if len(known) < bucket_count or state.route is None:
        return []
    loads = [weight.load for weight in known]
    mean, own = fmean(loads), _quartiles(loads, state.route.owner)
    ordinary = (HOT * max(mean, own[place]) for place in state.route.owner)
    return [w if w.load > most else replace(w, load=0.0) for w, most in zip(known, ordinary, strict=True)]


def _quartiles(loads: Sequence[float], owner: Sequence[int]) -> dict[int, float]:
    """The lower ones of the loads of each owner's buckets."""
    held: dict[int, list[float]] = {}
    for load, place_ in zip(loads, owner, strict=True):
        held.setdefault(place_, []).append(load)
    return {place_: sorted(its)[len(its) // 4] for place_, its in held.items()}


def enter(turn: Turn, server: Server) -> None:
    """RESTORE with an empty list, to a server that has come while the others serve (rule 49).  May be repeated."""
    state = turn.state
    if state.stage is not Stage.SERVING or server.lineage == state.number or state.dataset is None:
        return
    if state.is_going(server):
        return
    if state.route is None or table.owned(state.route, server.key.incarnation):
        return
    if state.moves.overdue is None:
        turn.change(moves=replace(state.moves, overdue=turn.after(state.config.answer_timeout_ns)))
    turn.send(
        server.key,
        Restore(
            incarnation=server.key.incarnation,
            lineage=state.number,
            base=None,
            files=(),
            data=EMPTY,
            quarantine=EMPTY,
            tables=state.dataset.tables,
            bucket_count=len(state.route.owner),
            buckets=EMPTY,
            version=Version(0),
        ),
    )


def are_all_here(state: JobState) -> bool:
    """Whoever is to stay is of this lineage."""
    return all(one.lineage == state.number or state.is_going(one) for one in _servers(state))


def plan(turn: Turn) -> None:
    """Somebody has to go and owns buckets, or has come and owns none: the fewest moves to an even placement."""
    state = turn.state
    if state.route is None:
        return
    owners = table.owners(state.route)
    if any(state.is_going(one) and one.key in owners for one in _servers(state)) or any(
        one.key not in owners for one in _staying(state)
    ):
        plan_anew(turn)


def plan_anew(turn: Turn) -> None:
    """What waits to move is what an even placement on those who stay lacks."""
    state = turn.state
    if state.stage is not Stage.SERVING or state.route is None:
        return
    staying, owners = _staying(state), table.owners(state.route)
    has_to_go = [one for one in _servers(state) if state.is_going(one) and one.key in owners]
    if not staying:
        turn.change(moves=replace(state.moves, waiting=(), again=None, missed=FrozenMap()))
        return
    seat = {one.ordinal: number for number, one in enumerate(staying)}
    before = _placed(state)
    held = [seat.get(ordinal, NOBODY) for ordinal in before]
    after = place(len(before), len(staying), held, weights=_weights(state, len(before)))
    wanted = [staying[number].ordinal for number in after]
    way = moves(before, wanted, first=[s.ordinal for s in has_to_go])
    reason = f"{has_to_go[0].key.name} has to go" if has_to_go else "to be even"
    still = {(move.bucket, state.members.servers[move.target].key) for move in way}
    still |= {(one.bucket, one.target) for one in state.moves.intents if one.bucket not in state.moves.undone}
    missed = FrozenMap({bucket: to for bucket, to in state.moves.missed.items() if (bucket, to) in still})
    turn.change(moves=replace(state.moves, waiting=way, reason=reason, again=None, missed=missed))


def plan_for_those_who_go(turn: Turn) -> None:
    """What was planned is done and somebody who has to go still owns a bucket: a target was lost, or too late.

    Who is in no hurry waits until it is time to try again.
    """
    state = turn.state
    if state.route and not (state.moves.intents or state.moves.waiting):
        owners = table.owners(state.route)
        going = [one for one in _servers(state) if state.is_going(one) and one.key in owners]
        if any(one.is_leaving or state.moves.again is None for one in going):
            plan_anew(turn)


def _placed(state: JobState) -> list[int]:
    """Of each bucket the ordinal where it is, or will be once what has begun to move has arrived."""
    assert state.route is not None
    ordinals = {one.key: one.ordinal for one in _servers(state)}
    placed = [ordinals.get(table.owner_of(state.route, b), NOBODY) for b in range(len(state.route.owner))]
    for intent in state.moves.intents:
        if intent.bucket not in state.moves.undone:
            placed[intent.bucket] = ordinals.get(intent.target, NOBODY)
    return placed


def _staying(state: JobState) -> list[Server]:
    return [one for one in _servers(state) if one.lineage == state.number and not state.is_going(one)]


def _servers(state: JobState) -> tuple[Server, ...]:
    return tuple(state.members.servers[ordinal] for ordinal in sorted(state.members.servers))
