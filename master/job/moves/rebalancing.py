"""Rebalancing: servers join the lineage, get their share of buckets, and give it away before they leave (rules 41,
49).

A server that comes while the job serves enters with an empty list (RESTORE of no bucket) and then gets its share.  A
server that has to leave, because it announced it or fewer are wanted (`server_scaling`), gives its buckets away and is
released when it owns nothing.  Only joining and leaving servers trigger rebalancing: an uneven placement that was
requested for measured load (`MovesRequested`) stays.

Not here: how a bucket moves (`move_lifecycle`), which server gets it (`job.placement`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

from master.api.identities import BucketId, Version
from master.api.messages.from_members import ServerLeaving, ServerReport
from master.api.messages.to_members import Restore
from master.api.positions import EMPTY
from master.job.domain.durable_records import BucketTable
from master.job.domain.frozen_map import FrozenMap
from master.job.domain.job_events import MovesRequested
from master.job.moves import promotion
from master.job.placement.backup_placement import place_backups
from master.job.placement.owner_placement import NO_SERVER, Move, Weight, moves, place
from master.job.state import bucket_table
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server, put_server
from master.job.state.protocol_state import RecoveryStage

HOT: Final = 2.0
"""Factor above the usual load from which a bucket counts as hot."""


def handle_leaving(turn: Turn, server: Server, _: ServerLeaving) -> None:
    """The server's buckets go to the others; without others it keeps them until it ends, which is a loss."""
    if not server.is_leaving:
        turn.change(members=put_server(turn.state.members, replace(server, is_leaving=True)))
        plan_if_needed(turn)


def handle_moves_requested(turn: Turn, event: MovesRequested) -> None:
    """The requested moves replace those that wait, unless a server has to leave."""
    state = turn.state
    if state.route is None or state.stage is not RecoveryStage.SERVING or any(map(state.has_to_leave, _servers(state))):
        return
    known = [one for one in event.moves if 0 <= one.bucket < len(state.route.owner)]
    turn.change(moves=replace(state.moves, waiting=tuple(known), reason=event.reason))


def handle_report(turn: Turn, server: Server, report: ServerReport) -> None:
    """Stores what the server's buckets weigh, for the next plan and for the throttle."""
    state = turn.state
    fits = len(report.buckets) == len(report.sizes_bytes) == len(report.loads)
    if report.lineage != state.number or state.route is None or not fits:
        return
    mine = bucket_table.owned(state.route, server.key.incarnation)
    weighed = zip(report.buckets, report.sizes_bytes, report.loads, strict=True)
    reported = {b: Weight(size_bytes=max(0, size), load=_load(load)) for b, size, load in weighed if b in mine}
    turn.change(weights=state.weights.put_all(reported))


def _load(reported: float) -> float:
    return reported if 0.0 <= reported < math.inf else 0.0


def _weights(state: MasterState, bucket_count: int) -> list[Weight]:
    """The weight of every bucket; empty while one is unknown.  Only a hot bucket has a load.

    Hot means far above the mean and above its server's other buckets: servers measure at different times, and two
    servers whose buckets differ by chance would exchange half of them.
    """
    known = [weight for bucket in range(bucket_count) if (weight := state.weights.get(bucket))]
    if len(known) < bucket_count or state.route is None:
        return []
    loads = [weight.load for weight in known]
    mean, own = fmean(loads), _quartiles(loads, state.route.owner)
    ordinary = (HOT * max(mean, own[place]) for place in state.route.owner)
    return [w if w.load > most else replace(w, load=0.0) for w, most in zip(known, ordinary, strict=True)]


def _quartiles(loads: Sequence[float], owner: Sequence[int]) -> dict[int, float]:
    """The lower quartile of the loads of each owner's buckets."""
    held: dict[int, list[float]] = {}
    for load, place_ in zip(loads, owner, strict=True):
        held.setdefault(place_, []).append(load)
    return {place_: sorted(its)[len(its) // 4] for place_, its in held.items()}


def admit_server(turn: Turn, server: Server) -> None:
    """RESTORE with an empty list, to a server that has come while the others serve (rule 49).  May be repeated."""
    state = turn.state
    if state.stage is not RecoveryStage.SERVING or server.lineage == state.number or state.dataset is None:
        return
    if state.has_to_leave(server):
        return
    if state.route is None or server.key in bucket_table.copy_holders(_table(state)):
        return
    if state.moves.resend_at is None:
        turn.change(moves=replace(state.moves, resend_at=turn.after(state.config.answer_timeout_ns)))
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


def are_all_connected(state: MasterState) -> bool:
    """True if every server that is to stay has this lineage."""
    return all(one.lineage == state.number or state.has_to_leave(one) for one in _servers(state))


def plan_if_needed(turn: Turn) -> None:
    """Plans moves when a server has to leave and owns buckets, has come and owns none, or copies are missing."""
    state = turn.state
    if state.route is None:
        return
    owners, holders = bucket_table.owners(state.route), bucket_table.copy_holders(_table(state))
    has_to_go = any(state.has_to_leave(one) and one.key in holders for one in _servers(state))
    if has_to_go or any(one.key not in owners for one in _staying(state)) or _lacks_backups(state):
        plan_moves(turn)


def _lacks_backups(state: MasterState) -> bool:
    """True if some bucket has one copy and there is a server for another."""
    now = _table(state)
    return now.backups is not None and len(_staying(state)) > 1 and NO_SERVER in now.backups.backup


def _table(state: MasterState) -> BucketTable:
    """The table once lost servers' buckets are their backups'."""
    assert state.table is not None
    return promotion.promote_lost(state, state.table)


def plan_moves(turn: Turn) -> None:
    """The waiting moves are those to an even placement on the servers that stay."""
    state = turn.state
    if state.stage is not RecoveryStage.SERVING or state.route is None:
        return
    staying, holders = _staying(state), bucket_table.copy_holders(_table(state))
    has_to_go = [one for one in _servers(state) if state.has_to_leave(one) and one.key in holders]
    if not staying:
        turn.change(moves=replace(state.moves, waiting=(), retry_at=None, timed_out=FrozenMap()))
        return
    index = {one.ordinal: number for number, one in enumerate(staying)}
    before = _placed(state)
    held = [index.get(ordinal, NO_SERVER) for ordinal in before]
    after = place(len(before), len(staying), held, weights=_weights(state, len(before)))
    wanted = [staying[number].ordinal for number in after]
    way = moves(before, wanted, first=[s.ordinal for s in has_to_go]) + _backup_moves(state, staying, after)
    reason = f"{has_to_go[0].key.name} is terminating" if has_to_go else "to be even"
    still = {(move.bucket, state.members.servers[move.target].key) for move in way}
    still |= {(one.bucket, one.target) for one in state.moves.intents if one.bucket not in state.moves.undone}
    timed_out = FrozenMap({bucket: to for bucket, to in state.moves.timed_out.items() if (bucket, to) in still})
    turn.change(moves=replace(state.moves, waiting=way, reason=reason, retry_at=None, timed_out=timed_out))


def _backup_moves(state: MasterState, staying: Sequence[Server], owner: Sequence[int]) -> tuple[Move, ...]:
    """Moves that make second copies, once the first ones are where they belong (rule 61).

    The source does not matter: by then it is the bucket's owner.
    """
    now = _table(state)
    if now.backups is None or len(staying) < 2:
        return ()
    index = {one.key: number for number, one in enumerate(staying)}
    intended = {one.bucket: one.target for one in now.intents if one.bucket not in state.moves.undone}
    keys = [bucket_table.backup_of(now, bucket) for bucket in range(len(owner))]
    for bucket in now.backups.wanted:
        keys[bucket] = intended.get(BucketId(bucket), keys[bucket])
    for bucket, number in enumerate(owner):  # what moves with its only copy leaves the second where it was
        if keys[bucket] is None and bucket_table.owner_of(now.route, bucket) != staying[number].key:
            keys[bucket] = bucket_table.owner_of(now.route, bucket)
    held = [index.get(key, NO_SERVER) if key else NO_SERVER for key in keys]
    after = place_backups(owner, len(staying), held)
    pairs = zip(owner, held, after, strict=True)
    return tuple(
        Move(bucket=bucket, source=staying[mine].ordinal, target=staying[to].ordinal, is_backup=True)
        for bucket, (mine, have, to) in enumerate(pairs)
        if have != to
    )


def plan_for_leaving(turn: Turn) -> None:
    """Plans again when all moves are done and a server that has to leave still owns a bucket.

    A server that is in no hurry waits until it is time to retry.
    """
    state = turn.state
    if state.route and not (state.moves.intents or state.moves.waiting):
        holders = bucket_table.copy_holders(_table(state))
        going = [one for one in _servers(state) if state.has_to_leave(one) and one.key in holders]
        may_begin = state.moves.retry_at is None
        if any(one.is_leaving or may_begin for one in going) or (may_begin and _lacks_backups(state)):
            plan_moves(turn)


def _placed(state: MasterState) -> list[int]:
    """The ordinal of each bucket's server, as it is once the moves under way have arrived."""
    assert state.route is not None
    ordinals, now = {one.key: one.ordinal for one in _servers(state)}, _table(state)
    placed = [ordinals.get(bucket_table.owner_of(now.route, b), NO_SERVER) for b in range(len(now.route.owner))]
    for intent in now.intents:
        is_for_backup = now.backups is not None and intent.bucket in now.backups.wanted
        if intent.bucket not in state.moves.undone and not is_for_backup:
            placed[intent.bucket] = ordinals.get(intent.target, NO_SERVER)
    return placed


def _staying(state: MasterState) -> list[Server]:
    return [one for one in _servers(state) if one.lineage == state.number and not state.has_to_leave(one)]


def _servers(state: MasterState) -> tuple[Server, ...]:
    return tuple(state.members.servers[ordinal] for ordinal in sorted(state.members.servers))
