"""The number of parameter servers that a job wants: requested, recorded, answered (ADR 0315).

The number is durable before it holds and before it is answered, so a new master continues with it.  One write at a
time; a number that comes meanwhile waits and replaces any other that waits.  Every request is answered with the
number that holds in the end, which is the newest.

Not here: what follows for buckets (`rebalancing`), what it means after a loss (`recovery.server_quorum`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.api.messages.to_members import Refused
from master.api.servers_answer import ServersAnswer
from master.job.domain.durable_records import RecordServers
from master.job.domain.effects import AnswerServers, Persist
from master.job.domain.job_events import ServersRequested
from master.job.moves import rebalancing
from master.job.state.job_state import MasterState, Turn

FEWEST_SERVERS: Final = 1
MAX_WAITING_REQUESTS: Final = 64
"""Most requests that wait for one write while the store is unreachable."""


def handle_servers_requested(turn: Turn, event: ServersRequested) -> None:
    """Refuses at once, answers at once when the number holds already, or records it first."""
    scale = turn.state.scale
    if refused := _problem(turn.state, event):
        _answer(turn, (event.request,), refused=refused)
    elif scale.writing is None and event.count == scale.target:
        _answer(turn, (event.request,))
    else:
        turn.change(scale=replace(scale, newest=event.count, waiting_requests=(*scale.waiting_requests, event.request)))
        _write(turn)


def handle_recorded(turn: Turn, write: RecordServers) -> None:
    """The number holds: moves are planned for it.  Requests are answered once no newer number waits."""
    scale = turn.state.scale
    replaced = scale.replaced or _replaced(turn.state)
    turn.change(scale=replace(scale, target=write.count, writing=None, replaced=replaced))
    for server in turn.state.members.servers.values():
        rebalancing.admit_server(turn, server)
    rebalancing.plan_moves(turn)
    if scale.newest != write.count:
        _write(turn)
        return
    turn.change(scale=replace(turn.state.scale, waiting_requests=(), replaced=""))
    _answer(turn, scale.waiting_requests, replaces=replaced, is_news=True)


def _write(turn: Turn) -> None:
    scale = turn.state.scale
    if scale.writing is None:
        turn.change(scale=replace(scale, writing=scale.newest))
        turn.emit(Persist(write=RecordServers(count=scale.newest)))


def _problem(state: MasterState, event: ServersRequested) -> Refused | None:
    most = state.config.most_servers
    if not most:
        return Refused(field="servers", message="the job has no parameter servers and no tables to put on them")
    if not FEWEST_SERVERS <= event.count <= most:
        return Refused(field="servers", message=f"is {event.count}; this job may have {FEWEST_SERVERS} to {most}")
    if len(state.scale.waiting_requests) >= MAX_WAITING_REQUESTS:
        return Refused(field="servers", message=f"{MAX_WAITING_REQUESTS} requests wait for the store: try again later")
    return None


def _replaced(state: MasterState) -> str:
    """The moves for the number before that are not done; those of a server that leaves anyhow do not count."""
    leaving = {o: one.key for o, one in state.members.servers.items() if one.is_leaving and o < state.scale.target}
    begun = [intent for intent in state.moves.intents if intent.source not in leaving.values()]
    waiting = [move for move in state.moves.waiting if move.source not in leaving]
    if not (begun or waiting):
        return ""
    number = f"{state.scale.target} server{'' if state.scale.target == 1 else 's'}"
    return f"{number}: {len(waiting)} waiting moves are replanned, {len(begun)} moves in progress finish first"


def _answer(
    turn: Turn, requests: tuple[int, ...], *, replaces: str = "", refused: Refused | None = None, is_news: bool = False
) -> None:
    state = turn.state
    most = state.config.most_servers
    answer = ServersAnswer(
        count=state.scale.target, least=FEWEST_SERVERS if most else 0, most=most, replaces=replaces, refused=refused
    )
    turn.emit(AnswerServers(requests=requests, answer=answer, is_news=is_news))
