"""A backup that stands still holds the pushes to what it is the backup of (rules 61, 62).

An owner never goes on without its backup by itself; it says that it is not answered, and goes on asking.  A backup that
does not answer the master either is lost like one whose stream broke, only sooner than a connection notices that nobody
is at its other end.  One that answers the master but not its owner is another's trouble, of the way between the two:
after a while the owner is left alone, and whoever copies to a new backup has its own patience (`lateness`).

Only those are suspected without which nothing is lost: others have all that they have.
"""

from __future__ import annotations

from dataclasses import replace

from master.api.messages import BackupSilent
from master.job.domain import SECOND
from master.job.moves import promotion, server_commands
from master.job.state import bucket_table
from master.job.state.job_state import Stage, Turn
from master.job.state.members import Server, put_server


def handle_silent(turn: Turn, owner: Server, said: BackupSilent) -> None:
    """The backup is asked something, and has to answer; or it has been silent for too long, whatever it answers us."""
    state, now = turn.state, turn.state.table
    if state.stage is not Stage.SERVING or said.lineage != state.number or now is None:
        return
    buckets = bucket_table.owned(now.route, owner.key.incarnation) & bucket_table.backed(now, said.backup)
    backup = next((one for one in state.members.servers.values() if one.key.incarnation == said.backup), None)
    if not buckets or backup is None:
        return
    if said.silent_s * SECOND >= state.config.apart_after_ns:
        turn.change(moves=replace(state.moves, apart=state.moves.apart | buckets))
    elif backup.is_connected and promotion.is_spare(state, backup.key):
        turn.change(members=put_server(state.members, replace(backup, away_since=turn.now, is_suspected=True)))
        server_commands.activate(turn, backup, buckets, is_backup=True)


def heard(turn: Turn, server: Server) -> Server:
    """It has said something: nobody that has been silent says a word."""
    if not server.is_suspected:
        return server
    again = replace(server, away_since=None, is_suspected=False)
    turn.change(members=put_server(turn.state.members, again))
    return again
