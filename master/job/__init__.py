"""The master of one job as a pure state machine: events in, effects out.  Read this page, then `machine`.

    initial(config, durable, term, now)  the state of a new master, from what is durable (rule 17)
    handle(state, event, now)            the state after one event, and the effects that the shell carries out, in order
    deadlines(state)                     the deadlines that are pending, with the event that each feeds back
    check_invariants(state)              raises unless all invariants hold
    status(state, now)                   the job's status for people and for the cluster side
    promotions(state, old, new)          buckets of lost servers that a change of the table gives to their backups

Everything in this package is pure: no clock, no chance, no I/O.  The shell around it is `master.term.term_runtime`.
From the bottom (ADR 0229): `placement` computes which server owns a bucket; `domain` has events, effects, settings
and durable records; `state` is the frozen state with its tables; `dispatch` sizes leases, keeps the high-water mark
and agrees on skips; `moves` carries buckets between servers; `recovery` leads from a new master or a lost server to a
model that serves; `trainers`, `commit` and `servers` handle members' messages.
"""

from master.job.machine import handle, initial
from master.job.moves.promotion import promotions
from master.job.state_invariants import check_invariants
from master.job.status_report import status
from master.job.timers import deadlines

__all__ = ["check_invariants", "deadlines", "handle", "initial", "promotions", "status"]
