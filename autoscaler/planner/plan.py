"""The order of the phases; each stands in a file of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from autoscaler.domain import ClusterView, JobName, Plan, Policy
from autoscaler.planner.core import restore_cores
from autoscaler.planner.draft import Draft
from autoscaler.planner.elastic import complete_servers
from autoscaler.planner.emit import emit
from autoscaler.planner.exclusion import plan_without
from autoscaler.planner.forced import make_room
from autoscaler.planner.gangs import admit_gangs, settle_headroom
from autoscaler.planner.keep import keep_running_jobs
from autoscaler.planner.memo import Memo
from autoscaler.planner.moving import begin_moves, finish_moves
from autoscaler.planner.others import place_others
from autoscaler.planner.stale import stand_still, why_stale
from autoscaler.planner.transfer import share_out

NOBODY: Final[Mapping[JobName, str]] = MappingProxyType({})


def plan(
    view: ClusterView,
    policy: Policy,
    now_s: float,
    *,
    memo: Memo | None = None,
    excluded: Mapping[JobName, str] = NOBODY,
    unmodelled: Collection[JobName] = (),
) -> Plan:
    """Return what to do now, what waits, and why: a pure function of view, policy and instant (A5).

    `now_s` is the cluster's clock.  Carrying out `actions` in any prefix keeps every node within its capacity (A2);
    planning again on the result asks for nothing but what this plan said waits.  Who plans again and again gives a
    `memo`, which makes the same answer cheap.  A job with which planning fails is left out and named in the plan (A11);
    `excluded` are those that are not to be tried again yet, and why; `unmodelled` those whose surplus cannot be planned
    either.
    """
    memo = Memo() if memo is None else memo

    def decide(seen: ClusterView) -> Plan:
        draft = memo.begin(seen, policy, now_s)  # P0
        why = why_stale(draft)
        decided = stand_still(draft, why) if why else decide_on(draft)
        memo.end(draft)
        return decided

    return plan_without(view, excluded, unmodelled, now_s, decide)


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
