"""The master of a group as a pure state machine: trainers that each hold the whole model (rules 63 to 98).

    initial(config, durable, term, now)  the state of a new master, from what is durable
    handle(state, event, now)            the state after one event, and the effects that the shell carries out, in order
    deadlines(state)                     the deadlines that are pending, with the event that each feeds back
    check_invariants(state)              raises unless all invariants hold
    status(state, now)                   the job's status for people and for the cluster side

The same face, events, effects and durable records as `master.job`, whose `domain` and failure counts it uses, and
nothing else of it.  Read `machine`, then `generations` (changes without a plan), `plans` (planned ones), `commits`,
`suspects` (poison records) and `ending`; `reports` and `declaration` take what members say, `membership` tells who is
lost.  The shell is `master.term.term_runtime`.
"""

from master.group.group_invariants import check_invariants
from master.group.group_status import status
from master.group.group_timers import deadlines
from master.group.machine import handle, initial

__all__ = ["check_invariants", "deadlines", "handle", "initial", "status"]
