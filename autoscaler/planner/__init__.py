"""The planner: how many trainers each job has, and on which nodes: `plan(view, policy, now_s) -> Plan`, pure.

Start at `plan`, which calls the phases in this order:

==== ============================ =====================================================================================
P0   `working_copy.memo`          the view becomes a working copy, brought up to date from the last one
P1   `phases.p1_external_pods`    pending external pods are placed where the scheduler would put them
P2   `phases.p2_retain`           what jobs retain; running ones get their core back
     `phases.p2_finish_moves`     servers whose replacement is ready leave
P3   `phases.p3_reclaim`          surplus leaves for external pods that fit nowhere
P4   `phases.p4_gangs`            waiting jobs start whole (`p4_gang_capacity`: in which capacity)
P5   `phases.p5_water_filling`    free capacity goes to the lowest weighted dominant share (called by P6)
P6   `phases.p6_transfer`         a step goes from a rich job to a poor one, voluntarily
     `phases.p2_retain`           surplus trainers that make up a minimum are replaced by core ones (`restore_cores`)
     `sharing.elastic_servers`    servers follow their trainers (`complete_servers`)
     `phases.p6_begin_moves`      servers begin to move to where they waste less
P7   `phases.p7_actions`          what is done now, and what waits
==== ============================ =====================================================================================

`sharing` computes entitlements and when sizes may change, `placement` chooses nodes and victims,
`working_copy` is the state that all phases write.  `explain` says why each job has its size, `counterfactual` what
would change it.  Before the actions are written `revalidate` drops those that a fresher view no longer needs;
`autoscaler.loop` carries out the others.  Amounts and shares are whole numbers, so that no rounding decides.
A1 to A12 in comments are the promises of `docs/invariants.md`, words such as *offer* or *fairness key* those of
`docs/glossary.md`.
"""

from autoscaler.planner.next_history import record_applied
from autoscaler.planner.plan import plan
from autoscaler.planner.revalidate import still_valid
from autoscaler.planner.working_copy.memo import Memo

__all__ = ["Memo", "plan", "record_applied", "still_valid"]
