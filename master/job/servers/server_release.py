"""Release of a server that has to leave: once it owns nothing, or no server can take its buckets (rule 49).

It writes the file of an open cut first, whatever has become of the buckets in it meanwhile (rule 59).  A terminating
server waits for its release within its grace period, so it is released wherever waiting is pointless.  The last
server takes its buckets with it; a commit is begun for it first, so that as little as possible is lost.  While
another process is expected in the place of a lost server, it stays: that one will take its buckets
(`recovery.server_quorum`).

Not here: its buckets go to the others (`moves.rebalancing`), what its end means (`server_handlers`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.api.identities import NO_LINEAGE
from master.api.messages.to_members import Released
from master.job.recovery import server_quorum
from master.job.state import bucket_table
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server, put_server
from master.job.state.protocol_state import CommitPhase, CommitState, RecoveryStage

ATTEMPTS: Final = 2
"""Commits for a server that takes all that it owns with it: the first may meet a change of the route, and fail."""


def advance(turn: Turn) -> None:
    """Releases the servers that may end."""
    for known in turn.state.members.servers.values():
        if turn.state.has_to_leave(known) and not known.is_released:
            server = _hasten_commit(turn, known)
            if _may_end(turn.state, server):
                turn.change(members=put_server(turn.state.members, replace(server, is_released=True)))
                turn.send(server.key, Released())


def _may_end(state: MasterState, server: Server) -> bool:
    """True if the server may end; one that is not wanted and holds no model waits, it may be wanted again."""
    if state.route is None or state.failed:
        return server.is_leaving
    if state.moves.writing or state.stage is RecoveryStage.RAISING or state.commit.is_waiting_for(server.ordinal):
        return False
    if any(server.key in (intent.source, intent.target) for intent in state.moves.intents):
        return False
    assert state.table is not None
    if server.key not in bucket_table.copy_holders(state.table):
        return server.is_leaving or server.lineage != NO_LINEAGE
    if state.stage is not RecoveryStage.SERVING:
        return server.is_leaving and state.recovery.must_raise
    is_pointless = _is_last(state, server) and not server_quorum.is_replacement_expected(state)
    return is_pointless and _is_committed(state, server)


def _is_last(state: MasterState, server: Server) -> bool:
    return server.is_leaving and all(map(state.has_to_leave, state.members.servers.values()))


def _hasten_commit(turn: Turn, server: Server) -> Server:
    """A commit at once for each server that leaves with all that it owns, and once more where that fails.

    A commit that is under way does not count: what was trained since its cut is not in it.
    """
    state = turn.state
    if state.stage is not RecoveryStage.SERVING or not _is_last(state, server):
        return server
    if server.leaves_after is None:
        server = replace(server, leaves_after=state.commit.sequence + 1)
        turn.change(members=put_server(state.members, server))
    if state.commit.phase is CommitPhase.IDLE and state.commit.due is not None and not _has_ended(state.commit, server):
        turn.change(commit=replace(state.commit, due=None))
    return server


def _is_committed(state: MasterState, server: Server) -> bool:
    """True if the server's work is in head, was attempted often enough, or there is nothing to commit."""
    if server.leaves_after is None or state.commit.phase is not CommitPhase.IDLE:
        return False
    return _has_ended(state.commit, server) or not state.is_commit_due


def _has_ended(commit: CommitState, server: Server) -> bool:
    """True after the last attempt for the server, or a successful one; the commit is idle."""
    assert server.leaves_after is not None
    attempts = commit.sequence + 1 - server.leaves_after
    return attempts >= (ATTEMPTS if commit.refusals else 1)
