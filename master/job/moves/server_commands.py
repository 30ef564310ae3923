"""Commands about buckets: FREEZE, ACTIVATE and FORGET to servers, the route to trainers (rules 43, 47, 48, 50).

All are read off the durable table and may be resent at any time, late or out of order: a command of one version does
nothing to another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from master.api.identities import BucketId
from master.api.messages.to_members import Activate, Forget, Freeze, RouteChanged
from master.api.positions import EMPTY, PositionSet
from master.job.domain.durable_records import BucketTable, Instant, Intent, MemberKey
from master.job.state import bucket_table
from master.job.state.job_state import Turn
from master.job.state.members import Server
from master.job.state.protocol_state import RecoveryStage


def send_changes(turn: Turn, old: BucketTable, new: BucketTable) -> None:
    """ACTIVATE to the servers of the changed buckets, FORGET to those that had or would have had them.

    Both are read off the two tables alone (rules 47, 48, 62).
    """
    targets = {intent.bucket: intent.target for intent in old.intents}
    orders: dict[tuple[MemberKey, Activate | Forget], list[int]] = {}
    for bucket in bucket_table.changed(old, new):
        owner, backup = bucket_table.owner_of(new.route, bucket), bucket_table.backup_of(new, bucket)
        orders.setdefault((owner, _activate(new, bucket)), []).append(bucket)
        if backup:
            orders.setdefault((backup, _activate(new, bucket, is_backup=True)), []).append(bucket)
        before = (
            bucket_table.owner_of(old.route, bucket),
            bucket_table.backup_of(old, bucket),
            targets.get(BucketId(bucket)),
        )
        losers = dict.fromkeys(one for one in before if one not in (owner, backup, None))
        for loser in losers:
            forget = Forget(lineage=new.route.lineage, buckets=EMPTY, version=new.route.version[bucket])
            orders.setdefault((loser, forget), []).append(bucket)
    for (member, order), buckets in orders.items():
        turn.send(member, replace(order, buckets=PositionSet.of(*buckets)))


def _activate(table: BucketTable, bucket: int, *, is_backup: bool = False) -> Activate:
    """ACTIVATE without buckets: what buckets that are served alike have in common."""
    assert table.backups or not is_backup
    return Activate(
        lineage=table.route.lineage,
        buckets=EMPTY,
        version=table.route.version[bucket],
        since=table.backups.backup_since[bucket]
        if table.backups and is_backup
        else bucket_table.owner_since(table, bucket),
        backup=None if is_backup else bucket_table.backup_place(table, bucket),
        is_backup=is_backup,
    )


def freeze(turn: Turn, intent: Intent) -> None:
    route = turn.state.route
    assert route is not None
    place = bucket_table.place_index(route, intent.target.incarnation)
    assert place is not None
    target = route.servers[place]
    order = Freeze(lineage=intent.lineage, bucket=intent.bucket, version=intent.version, target=target)
    turn.send(intent.source, order)


def send_route(turn: Turn) -> None:
    route = turn.state.route
    assert route is not None
    for trainer in turn.state.members.registered():
        turn.send(trainer.key, RouteChanged(route=route, bucket_count=len(route.owner)))


def resend_commands(turn: Turn, server: Server) -> None:
    """FREEZE and ACTIVATE to a server that returns: one side may have missed the other (rules 43, 47)."""
    if turn.state.stage is RecoveryStage.SERVING:
        for intent in turn.state.moves.awaited:
            if server.key in (intent.source, intent.target):
                freeze(turn, intent)
        _activate_again(turn, server)


def resend_overdue(turn: Turn, before: Instant) -> None:
    """Resends to everybody what was sent at `before` or earlier and is not answered."""
    state = turn.state
    if state.stage is RecoveryStage.SERVING:
        for intent in state.moves.awaited:
            if intent.bucket in state.moves.begun_at and state.moves.begun_at[intent.bucket] <= before:
                freeze(turn, intent)
        for server in state.members.servers.values():
            _activate_again(turn, server)


def _activate_again(turn: Turn, server: Server) -> None:
    table, moves = turn.state.table, turn.state.moves
    if table is not None and moves.inactive:
        activate(turn, server, bucket_table.owned(table.route, server.key.incarnation) & moves.inactive)
    if table is not None and moves.unready_backups:
        activate(
            turn, server, bucket_table.backed(table, server.key.incarnation) & moves.unready_backups, is_backup=True
        )


def activate(turn: Turn, server: Server, buckets: Iterable[int], *, is_backup: bool = False) -> None:
    """ACTIVATE for buckets that the server owns or backs, at their versions by the table."""
    table = turn.state.table
    assert table is not None
    orders: dict[Activate, list[int]] = {}
    for bucket in buckets:
        orders.setdefault(_activate(table, bucket, is_backup=is_backup), []).append(bucket)
    for order, named in orders.items():
        turn.send(server.key, replace(order, buckets=PositionSet.of(*named)))


def send_forgets(turn: Turn, server: Server) -> None:
    """FORGET for every moved bucket that is another server's: this one may have missed it (rules 48, 55)."""
    state, table = turn.state, turn.state.table
    assert state.route is not None
    assert table is not None
    mine = bucket_table.owned(state.route, server.key.incarnation) | bucket_table.backed(table, server.key.incarnation)
    moved = (bucket for bucket, version in enumerate(state.route.version) if version and bucket not in mine)
    for version, named in bucket_table.by_version(state.route, moved).items():
        turn.send(server.key, Forget(lineage=state.number, buckets=named, version=version))
