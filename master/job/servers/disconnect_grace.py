"""How long a server that is not heard is waited for (rules 18, 62; ADR 0318).

One whose stream broke may come back with its model.  Without second copies everybody waits for it: ten seconds.  With
them it is given up at once, if all that it has is on servers that are heard; but where all streams break together, as
they do when it is the master that cannot be reached, nobody has anything of anybody, and to give one up would make the
next one's copy the only one.  So it is asked of the state again whenever that changes, and answered at the end only.

Not here: what a loss means (`servers`), who is suspected without a broken stream (`silence`).
"""

from __future__ import annotations

from master.job.domain import Instant
from master.job.moves import promotion
from master.job.state.job_state import JobState
from master.job.state.members import Server


def ends(state: JobState, server: Server) -> Instant | None:
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
