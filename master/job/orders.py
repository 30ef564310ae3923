"""What is said about moves: FREEZE, ACTIVATE and FORGET to servers, the route to trainers (rules 43, 47, 48, 50).

All of it is read off the table and may be said again at any time, late or out of order: what has been heard of a
version does nothing to another.  Said only once the table that it is read off is durable.
"""

from __future__ import annotations

from collections.abc import Iterable

from master.api.messages import Activate, Forget, Freeze, RouteChanged
from master.api.positions import PositionSet
from master.job import table
from master.job.domain import Instant, Intent
from master.job.membership import Server
from master.job.state import Stage, Turn


def tell_ends(turn: Turn, intent: Intent) -> None:
    """ACTIVATE to the winner, FORGET to the loser: from the table alone (rules 47, 48)."""
    route = turn.state.route
    assert route is not None
    bucket, version = PositionSet.of(intent.bucket), route.version[intent.bucket]
    winner = table.owner_of(route, intent.bucket)
    loser = intent.source if winner == intent.target else intent.target
    turn.send(winner, Activate(lineage=intent.lineage, buckets=bucket, version=version))
    turn.send(loser, Forget(lineage=intent.lineage, buckets=bucket, version=version))


def freeze(turn: Turn, intent: Intent) -> None:
    route = turn.state.route
    assert route is not None
    place = table.place_of(route, intent.target.incarnation)
    assert place is not None
    target = route.servers[place]
    order = Freeze(lineage=intent.lineage, bucket=intent.bucket, version=intent.version, target=target)
    turn.send(intent.source, order)


def tell_trainers(turn: Turn) -> None:
    route = turn.state.route
    assert route is not None
    for trainer in turn.state.members.registered():
        turn.send(trainer.key, RouteChanged(route=route, bucket_count=len(route.owner)))


def ask_again(turn: Turn, server: Server) -> None:
    """FREEZE and ACTIVATE, for a server that returns: it may have missed them, or the master INSTALLED (43, 47)."""
    if turn.state.stage is Stage.SERVING:
        for intent in turn.state.moves.awaited:
            if server.key in (intent.source, intent.target):
                freeze(turn, intent)
        _activate_again(turn, server)


def ask_all_again(turn: Turn, before: Instant) -> None:
    """What was asked at this time or earlier and is not answered: asked again, of everybody."""
    state = turn.state
    if state.stage is Stage.SERVING:
        for intent in state.moves.awaited:
            if intent.bucket in state.moves.since and state.moves.since[intent.bucket] <= before:
                freeze(turn, intent)
        for server in state.members.servers.values():
            _activate_again(turn, server)


def _activate_again(turn: Turn, server: Server) -> None:
    state = turn.state
    if state.route is not None and state.moves.inactive:
        activate(turn, server, table.owned(state.route, server.key.incarnation) & state.moves.inactive)


def activate(turn: Turn, server: Server, buckets: Iterable[int]) -> None:
    """These, which it owns, are to be served: at their versions by the table."""
    state = turn.state
    assert state.route is not None
    for version, named in table.by_version(state.route, buckets).items():
        turn.send(server.key, Activate(lineage=state.number, buckets=named, version=version))


def tell_lost(turn: Turn, server: Server) -> None:
    """FORGET of all that has moved and is somebody else's: it may have missed one (rules 48, 55)."""
    state = turn.state
    assert state.route is not None
    mine = table.owned(state.route, server.key.incarnation)
    moved = (bucket for bucket, version in enumerate(state.route.version) if version and bucket not in mine)
    for version, named in table.by_version(state.route, moved).items():
        turn.send(server.key, Forget(lineage=state.number, buckets=named, version=version))
