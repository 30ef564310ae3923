"""Disconnect grace: time until a disconnected server counts as lost; suspicion of silent backups (rules 18, 61, 62).

A server whose stream broke may come back with its model.  Without second copies all trainers wait for it: ten seconds.
With them it is given up at once if connected servers have all that it has; but where all streams break together, as
when the master cannot be reached, no copy is spare.  So the answer is computed from the state again whenever it
changes.

A stalled backup delays the pushes to its owner, which reports it and never proceeds without it.  A backup that does
not answer the master either is lost sooner than its connection notices.  One that answers the master but not its
owner has lost the link between the two: after a while the bucket continues with the owner's copy alone.  Only servers
whose copies are spare are suspected (ADR 0318).
"""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.from_members import BackupSilent
from master.job.domain.durable_records import SECOND, Instant
from master.job.moves import promotion, server_commands
from master.job.state import bucket_table
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server, put_server
from master.job.state.protocol_state import RecoveryStage


def ends_at(state: MasterState, server: Server) -> Instant | None:
    """Instant at which the server is lost, as the state is now; None: it is connected."""
    if server.away_since is None:
        return None
    config = state.config
    if server.is_suspected:
        window_ns = config.silence_window_ns
    elif state.backups is not None and promotion.is_spare(state, server.key):
        window_ns = config.backup_window_ns
    else:
        window_ns = config.reconnect_window_ns
    return Instant(server.away_since + window_ns)


def handle_silent(turn: Turn, owner: Server, report: BackupSilent) -> None:
    """The owner's backup is silent: it is suspected and must answer, or the owner is left alone after too long."""
    state, now = turn.state, turn.state.table
    if state.stage is not RecoveryStage.SERVING or report.lineage != state.number or now is None:
        return
    buckets = bucket_table.owned(now.route, owner.key.incarnation) & bucket_table.backed(now, report.backup)
    backup = next((one for one in state.members.servers.values() if one.key.incarnation == report.backup), None)
    if not buckets or backup is None:
        return
    if report.silent_s * SECOND >= state.config.unreachable_after_ns:
        turn.change(moves=replace(state.moves, unreachable_backups=state.moves.unreachable_backups | buckets))
    elif backup.is_connected and promotion.is_spare(state, backup.key):
        turn.change(members=put_server(state.members, replace(backup, away_since=turn.now, is_suspected=True)))
        server_commands.activate(turn, backup, buckets, is_backup=True)


def clear_suspicion(turn: Turn, server: Server) -> Server:
    """The server has sent a message, so it is not suspected any more."""
    if not server.is_suspected:
        return server
    again = replace(server, away_since=None, is_suspected=False)
    turn.change(members=put_server(turn.state.members, again))
    return again
