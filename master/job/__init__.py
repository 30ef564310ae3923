"""The master of one job as a pure state machine: events in, effects out.  Start reading here, then `machine`.

    initial(config, durable, term, now)  a new master, from what is durable (rule 17)
    handle(state, event, now)            one event: the state after it, and what the shell does now, in order
    deadlines(state)                     what to feed back, and when
    check_invariants(state)              what must hold after every step
    status(state, now)                   what people and the cluster side see
    promotions(state, old, new)          what of lost servers goes on elsewhere by a change of the table

Everything in this package is pure: no clock, no chance, no I/O.  `domain` has its words (events, effects, settings),
`state` its value.  Parts: `dispatch` and `shards` (who trains what), `membership`, `trainers`, `departures`, `servers`
(who is here), `declaring`, `checkpoint` with `cuts` and `commit_end` (the commit), `recovery` with `quorum`,
`rollback` and `restoring` (take-over, roll-back), `table`, `moves` with `admission` and `orders`, `resizing` and
`placement` (servers that come and go), `skipping` and `quarantine`, `ownership` (without servers).  The shell around it
is `master.term.term_runtime`.
"""

from master.job.machine import handle, initial
from master.job.moves.promotion import promotions
from master.job.state_invariants import check_invariants
from master.job.status_report import status
from master.job.timers import deadlines

__all__ = ["check_invariants", "deadlines", "handle", "initial", "promotions", "status"]
