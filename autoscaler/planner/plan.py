"""The order of the phases; each stands in a file of its own."""

from __future__ import annotations

from autoscaler.domain import ClusterView, Plan, Policy
from autoscaler.planner.core import restore_cores
from autoscaler.planner.draft import Draft
from autoscaler.planner.elastic import complete_servers
from autoscaler.planner.emit import emit
from autoscaler.planner.forced import make_room
from autoscaler.planner.gangs import admit_gangs, settle_headroom
from autoscaler.planner.keep import keep_running_jobs
from autoscaler.planner.memo import Memo
from autoscaler.planner.moving import begin_moves, finish_moves
from autoscaler.planner.others import place_others
from autoscaler.planner.stale import stand_still, why_stale
from autoscaler.planner.transfer import share_out


def plan(view: ClusterView, policy: Policy, now_s: float, *, memo: Memo | None = None) -> Plan:
    """Return what to do now, what waits, and why: a pure function of view, policy and instant (A5).

    `now_s` is the cluster's clock.  Carrying out `actions` in any prefix keeps every node within its capacity (A2);
    planning again on the result asks for nothing but what this plan said waits.  Who plans again and again gives a
    `memo`, which makes the same answer cheap.
    """
    memo = Memo() if memo is None else memo
    draft = memo.begin(view, policy, now_s)  # P0
    why = why_stale(draft)
    decided = stand_still(draft, why) if why else decide_on(draft)
    memo.end(draft)
    return decided


def decide_on(draft: Draft) -> Plan:
    """Return the plan for a fresh draft."""
    place_others(draft)  # P1
    keep_running_jobs(draft)  # P2
    finish_moves(draft)
    make_room(draft)  # P3
    admit_gangs(draft)  # P4
    settle_headroom(draft)
    share_out(draft)  # P5, P6
    restore_cores(draft)
    complete_servers(draft)
    begin_moves(draft)
    return emit(draft)  # P7
