"""Are enough servers here for a model that serves, and who is still waited for (rules 18, 28, 62; ADR 0315)?

At first as many as the job begins with.  After a loss, or under a new master, those who own buckets by the table, or
the processes that came in their places; in a job that may have more servers than it began with they are waited for
only so long, and shorter where others have all that they have.  While the job serves, another process is expected in
the place of a server whose buckets others had: nobody who would have to take them along ends before that.

Not here: how long one whose stream broke is still a member (`waiting`), what follows once enough are here (`recovery`).
"""

from __future__ import annotations

from dataclasses import replace

from master.job.domain import OwnersWaitEnded
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server, put_server
from master.job.state.protocol_state import RecoveryStage


def are_enough_here(state: MasterState) -> bool:
    """Each owner or the process that came in its place, but for those that had to go; at first as many as are wanted.

    Once a server is lost, who is not wanted any more is not waited for (ADR 0315).  A new master gives it the time that
    it has to come back, like everybody.  After that time those that are here go on, if they are as many as the job
    began with: the cluster may lack room for another, and whoever comes later gets its share by moves.
    """
    if state.recovery.proceeds_without and _can_go_on(state):
        return True
    here, wanted = set(state.members.servers), range(state.scale.wanted)
    if state.route is None:
        return here.issuperset(wanted)
    owning = {state.route.servers[place].ordinal for place in state.route.owner} - state.recovery.departed
    if state.recovery.must_raise or state.reclaim_ends is None:
        owning &= set(wanted)
    return bool(here) and owning <= here


def await_owners(turn: Turn, *, is_new: bool = False) -> None:
    """From now on, once more.  Only in a job that may have more servers than it began with.

    `is_new`: by a master that knows of no loss; whoever is missing may still have the model.
    """
    state, config = turn.state, turn.state.config
    window_ns = config.owners_window_ns if is_new else config.reconnect_window_ns
    if _may_be_succeeded(state):
        window_ns = config.heirs_window_ns
    ends = turn.after(window_ns) if _may_be_succeeded(state) or config.most_servers > config.servers else None
    turn.recover(owners_wait_ends=ends, proceeds_without=False)


def handle_first_server(turn: Turn) -> None:
    """A server has come.  The first one to a new master: from then on the others' pauses may bring them too."""
    state = turn.state
    is_first = state.stage in (RecoveryStage.ADOPTING, RecoveryStage.GATHERING) and len(state.members.servers) == 1
    if is_first and _may_be_succeeded(state):
        await_owners(turn, is_new=True)


def await_successor(turn: Turn) -> None:
    """A server was lost, and others have what it had (rule 62): the job serves, and its next process is expected."""
    if turn.state.stage is RecoveryStage.SERVING:
        turn.recover(owners_wait_ends=turn.after(turn.state.config.reconnect_window_ns))


def handle_successor(turn: Turn) -> None:
    """A server has come; once all are here that are wanted, nobody is expected any more."""
    if turn.state.stage is RecoveryStage.SERVING and not is_successor_expected(turn.state):
        turn.recover(owners_wait_ends=None)


def is_successor_expected(state: MasterState) -> bool:
    """While the job serves: a server was lost a short time ago, and not all that are wanted are here.

    Nobody comes to a job that is complete.
    """
    are_all_here = state.members.servers.keys() >= set(range(state.scale.wanted))
    return state.recovery.owners_wait_ends is not None and not are_all_here and not state.is_complete


def handle_owners_awaited(turn: Turn, event: OwnersWaitEnded) -> None:
    """Whoever is missing need not come any more; while too few are here, they are given the time again.

    First nobody is waited for whose buckets others have too (rule 62).
    """
    state = turn.state
    if state.recovery.owners_wait_ends != event.deadline:
        return
    if state.stage is RecoveryStage.SERVING:
        _expect_nobody(turn)
        return
    if _may_be_succeeded(state):
        turn.recover(promotes_backups=bool(state.members.servers))  # else nobody reaches this master yet
        await_owners(turn, is_new=True)
    elif _can_go_on(turn.state):
        turn.recover(owners_wait_ends=None, proceeds_without=True)
    else:
        await_owners(turn)


def _expect_nobody(turn: Turn) -> None:
    """Who has waited with its buckets ends after another commit: since the one for it more was trained."""
    turn.recover(owners_wait_ends=None)
    for server in turn.state.members.servers.values():
        turn.change(members=put_server(turn.state.members, replace(server, leaves_after=None)))


def _may_be_succeeded(state: MasterState) -> bool:
    """Buckets have second copies, and their owners are still waited for."""
    return state.backups is not None and not (state.recovery.must_raise or state.recovery.promotes_backups)


def _can_go_on(state: MasterState) -> bool:
    return len(_staying(state)) >= min(state.config.servers, state.scale.wanted)


def next_owners(state: MasterState) -> list[Server]:
    """Those who are to stay; if there are none, whoever is here."""
    return _staying(state) or [state.members.servers[ordinal] for ordinal in sorted(state.members.servers)]


def _staying(state: MasterState) -> list[Server]:
    known = (state.members.servers[ordinal] for ordinal in sorted(state.members.servers))
    return [server for server in known if not state.has_to_leave(server)]
