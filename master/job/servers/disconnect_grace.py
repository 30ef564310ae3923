"""How long a server that is not heard is waited for (rules 18, 62; ADR 0318).

One whose stream broke may come back with its model.  Without second copies everybody waits for it: ten seconds.  With
them it is given up at once, if all that it has is on servers that are heard; but where all streams break together, as
they do when it is the master that cannot be reached, nobody has anything of anybody, and to give one up would make the
next one's copy the only one.  So it is asked of the state again whenever that changes, and answered at the end only.

Not here: what a loss means (`servers`), who is suspected without a broken stream (`silence`).
"""

from __future__ import annotations

from dataclasses import replace

from master.api.messages import BackupSilent
from master.job.domain import SECOND, Instant
from master.job.moves import promotion, server_commands
from master.job.state import bucket_table
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server, put_server
from master.job.state.protocol_state import RecoveryStage


def ends_at(state: MasterState, server: Server) -> Instant | None:
    """When it is lost, as things stand now; None: it is heard."""
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


def handle_silent(turn: Turn, owner: Server, said: BackupSilent) -> None:
    """The backup is asked something, and has to answer; or it has been silent for too long, whatever it answers us."""
    state, now = turn.state, turn.state.table
    if state.stage is not RecoveryStage.SERVING or said.lineage != state.number or now is None:
        return
    buckets = bucket_table.owned(now.route, owner.key.incarnation) & bucket_table.backed(now, said.backup)
    backup = next((one for one in state.members.servers.values() if one.key.incarnation == said.backup), None)
    if not buckets or backup is None:
        return
    if said.silent_s * SECOND >= state.config.apart_after_ns:
        turn.change(moves=replace(state.moves, unreachable_backups=state.moves.unreachable_backups | buckets))
    elif backup.is_connected and promotion.is_spare(state, backup.key):
        turn.change(members=put_server(state.members, replace(backup, away_since=turn.now, is_suspected=True)))
        server_commands.activate(turn, backup, buckets, is_backup=True)


def clear_suspicion(turn: Turn, server: Server) -> Server:
    """It has said something: nobody that has been silent says a word."""
    if not server.is_suspected:
        return server
    again = replace(server, away_since=None, is_suspected=False)
    turn.change(members=put_server(turn.state.members, again))
    return again
