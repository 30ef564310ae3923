"""Who gets how many trainers, and on which nodes: `plan(view, policy, now_s) -> Plan`, pure.

Start at `plan`, which calls the phases in their order:

==== ============= ==============================================================================================
P0   `snapshot`    the view as a working copy (`draft`: rooms free and later; `memo`: from the last one)
P1   `others`      pods of others that have no node yet are set where the scheduler would put them
P2   `keep`        what jobs keep; running ones get their core back (`core`)
P3   `forced`      surplus leaves for pods of others that fit nowhere (`victims`: which)
P4   `gangs`       waiting jobs start whole (`seating`: where)
P5   `share`       what is left, by lowest weighted dominant share
P6   `transfer`    from rich to poor, as a separate voluntary step (`pairing`: who, `step_down`, `clearance`)
     `moving`      servers go where they waste least now (`better_places`), if the cluster can move them
P7   `emit`        what is done now and what waits (`windows`, `explain`, `story`, `memory`)
==== ============= ==============================================================================================

The copy is arrays over all nodes (`rooms`, `shapes`, `supply`; ADR 0112), with trials that are undone; whoever
plans again and again keeps a `memo`.  Amounts and shares are whole numbers, so no rounding decides.  What the words
mean stands in `autoscaler.domain`; `autoscaler.loop` carries plans out.
"""

from autoscaler.planner.next_history import record_applied
from autoscaler.planner.plan import plan
from autoscaler.planner.revalidate import still_valid
from autoscaler.planner.working_copy.memo import Memo

__all__ = ["Memo", "plan", "record_applied", "still_valid"]
