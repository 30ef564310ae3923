"""Quorum of servers: whether enough are connected to serve the model, and which are awaited (rules 18, 28, 62).

At first a job waits for as many servers as it begins with.  After a loss, or under a new master, it waits for the
owners by the table or the processes in their places; a job that may have more servers than it began with waits for a
limited time, shorter where backups have everything (ADR 0315).  While the job serves, another process is expected in
the place of a lost server, and no server that would take buckets along is released before that.

Not here: how long a server with a broken stream is a member (`servers.disconnect_grace`), what follows
(`model_recovery`).
"""

from __future__ import annotations

from dataclasses import replace

from master.job.domain.job_events import OwnersWaitEnded
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server, put_server
from master.job.state.protocol_state import RecoveryStage


def has_quorum(state: MasterState) -> bool:
    """True if each owner, or the process in its place, is here; at first as many servers as are wanted.

    Once a server is lost, servers that are not wanted any more are not waited for (ADR 0315); under a new master they
    get the time that every server has to come back.  After that time the connected servers continue, if they are as
    many as the job began with: the cluster may lack room for another, and a later one gets its share by moves.
    """
    if state.recovery.proceeds_without and _can_go_on(state):
        return True
    here, wanted = set(state.members.servers), range(state.scale.target)
    if state.route is None:
        return here.issuperset(wanted)
    owning = {state.route.servers[place].ordinal for place in state.route.owner} - state.recovery.departed
    if state.recovery.must_raise or state.reclaim_ends is None:
        owning &= set(wanted)
    return bool(here) and owning <= here


def await_owners(turn: Turn, *, is_new: bool = False) -> None:
    """Starts the time to wait for owners, in jobs that may do without some.

    `is_new`: under a master that knows of no loss; a missing server may still have the model.
    """
    state, config = turn.state, turn.state.config
    window_ns = config.owners_window_ns if is_new else config.reconnect_window_ns
    if _may_promote_backups(state):
        window_ns = config.backup_owners_window_ns
    ends = turn.after(window_ns) if _may_promote_backups(state) or config.most_servers > config.servers else None
    turn.recover(owners_wait_ends=ends, proceeds_without=False)


def handle_first_server(turn: Turn) -> None:
    """The first server of a new master restarts the wait: others may have been cut off as long."""
    state = turn.state
    is_first = state.stage in (RecoveryStage.ADOPTING, RecoveryStage.GATHERING) and len(state.members.servers) == 1
    if is_first and _may_promote_backups(state):
        await_owners(turn, is_new=True)


def await_replacement(turn: Turn) -> None:
    """A server was lost and backups have its buckets (rule 62): its next process is expected for a while."""
    if turn.state.stage is RecoveryStage.SERVING:
        turn.recover(owners_wait_ends=turn.after(turn.state.config.reconnect_window_ns))


def handle_replacement(turn: Turn) -> None:
    """Ends that wait once all wanted servers are here."""
    if turn.state.stage is RecoveryStage.SERVING and not is_replacement_expected(turn.state):
        turn.recover(owners_wait_ends=None)


def is_replacement_expected(state: MasterState) -> bool:
    """True while the job serves, a server was lost a short time ago and not all wanted servers are here; False for a
    complete job.
    """
    are_all_present = state.members.servers.keys() >= set(range(state.scale.target))
    return state.recovery.owners_wait_ends is not None and not are_all_present and not state.is_complete


def handle_owners_wait_ended(turn: Turn, event: OwnersWaitEnded) -> None:
    """The wait is over: first backups are promoted (rule 62), then the connected servers continue.

    While too few are here the wait starts again.
    """
    state = turn.state
    if state.recovery.owners_wait_ends != event.deadline:
        return
    if state.stage is RecoveryStage.SERVING:
        _stop_expecting(turn)
        return
    if _may_promote_backups(state):
        turn.recover(promotes_backups=bool(state.members.servers))  # else no server reaches this master yet
        await_owners(turn, is_new=True)
    elif _can_go_on(turn.state):
        turn.recover(owners_wait_ends=None, proceeds_without=True)
    else:
        await_owners(turn)


def _stop_expecting(turn: Turn) -> None:
    """Servers that stayed for a replacement end after one more commit, since more was trained meanwhile."""
    turn.recover(owners_wait_ends=None)
    for server in turn.state.members.servers.values():
        turn.change(members=put_server(turn.state.members, replace(server, leaves_after=None)))


def _may_promote_backups(state: MasterState) -> bool:
    """True if buckets have second copies and their owners are still waited for."""
    return state.backups is not None and not (state.recovery.must_raise or state.recovery.promotes_backups)


def _can_go_on(state: MasterState) -> bool:
    return len(_staying(state)) >= min(state.config.servers, state.scale.target)


def next_owners(state: MasterState) -> list[Server]:
    """The servers that stay; if there are none, all that are here."""
    return _staying(state) or [state.members.servers[ordinal] for ordinal in sorted(state.members.servers)]


def _staying(state: MasterState) -> list[Server]:
    known = (state.members.servers[ordinal] for ordinal in sorted(state.members.servers))
    return [server for server in known if not state.has_to_leave(server)]
