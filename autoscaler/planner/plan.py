"""A plan: the phases in their order on one working copy, and when a view is too old to act on (A7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from autoscaler.domain import Bottleneck, ClusterView, Decision, JobName, Plan, Policy, Reason
from autoscaler.planner.exclusion import plan_without
from autoscaler.planner.explain.decisions import explain_sizes
from autoscaler.planner.next_history import next_history
from autoscaler.planner.phases.p1_external_pods import place_external_pods
from autoscaler.planner.phases.p2_finish_moves import finish_moves
from autoscaler.planner.phases.p2_retain import restore_cores, retain_running_jobs
from autoscaler.planner.phases.p3_reclaim import reclaim_surplus
from autoscaler.planner.phases.p4_gangs import admit_gangs, reserve_headroom
from autoscaler.planner.phases.p6_begin_moves import begin_moves
from autoscaler.planner.phases.p6_transfer import share_capacity
from autoscaler.planner.phases.p7_actions import next_instant, plan_actions
from autoscaler.planner.phases.p8_idle_pods import reclaim_idle_pods
from autoscaler.planner.sharing.elastic_servers import complete_servers
from autoscaler.planner.working_copy.memo import Memo
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

NONE_EXCLUDED: Final[Mapping[JobName, str]] = MappingProxyType({})


def plan(
    view: ClusterView,
    policy: Policy,
    now_s: float,
    *,
    memo: Memo | None = None,
    excluded: Mapping[JobName, str] = NONE_EXCLUDED,
    unmodelled: Collection[JobName] = (),
) -> Plan:
    """Return what to do now, what waits, and why: a pure function of view, policy and instant (A5).

    `now_s` is the cluster's clock.  Carrying out `actions` in any prefix keeps every node within its capacity (A2); a
    plan of the resulting view has no actions except those deferred here.  Pass a `memo` to plan repeatedly: it
    changes the cost, not the answer.  A job with which planning fails is left out and named in the plan (A11);
    `excluded` are those that are not to be tried again yet, and why; `unmodelled` those whose surplus cannot be
    planned either.
    """
    memo = Memo() if memo is None else memo

    def decide_on(seen: ClusterView) -> Plan:
        copy = memo.begin(seen, policy, now_s)  # P0
        why = staleness_problem(copy)
        decided = plan_nothing(copy, why) if why else run_phases(copy)
        memo.end(copy)
        return decided

    return plan_without(view, excluded, unmodelled, now_s, decide_on)


def run_phases(copy: WorkingCopy) -> Plan:
    """Return the plan for a fresh working copy."""
    place_external_pods(copy)  # P1
    retain_running_jobs(copy)  # P2
    finish_moves(copy)
    reclaim_surplus(copy)  # P3
    queue = admit_gangs(copy)  # P4
    reserve_headroom(copy)
    share_capacity(copy)  # P5, P6
    restore_cores(copy)
    complete_servers(copy)
    begin_moves(copy)
    actions, waits = plan_actions(copy)  # P7
    reclaims = reclaim_idle_pods(copy)  # P8
    return Plan(
        revision=copy.view.revision,
        planned_at_s=copy.now_s,
        decisions=explain_sizes(copy),
        actions=actions,
        waits=waits,
        queue=queue,
        demands=tuple(copy.external.answers),
        idle_reclaims=reclaims,
        history=next_history(copy),
        replan_at_s=next_instant(copy),
    )


def staleness_problem(copy: WorkingCopy) -> str:
    """Return why this view allows no action, or an empty text. An age that is NaN is too old."""
    view, policy, now_s = copy.view, copy.policy, copy.now_s
    if not view.is_synced:
        return "the first listing of the cluster is not complete"
    if not now_s - view.observed_at_s <= policy.stale_limit_s:
        return f"the view is {now_s - view.observed_at_s:.1f} s old; at most {policy.stale_limit_s:g} s"
    lost = len(copy.capacity) - len(copy.capacity.ready)
    if lost * 100 > policy.lost_nodes_limit_percent * len(view.nodes):
        return f"{lost} of {len(view.nodes)} nodes are not ready at once"
    return ""


def plan_nothing(copy: WorkingCopy, why: str) -> Plan:
    """Return a plan without actions that keeps every size and the history."""
    return Plan(
        revision=copy.view.revision,
        planned_at_s=copy.now_s,
        decisions=tuple(unchanged(job, why) for job in copy.jobs.values()),
        history=copy.view.history,
    )


def unchanged(job: PlannedJob, why: str) -> Decision:
    """Return the decision to leave a job as it is."""
    spec = job.spec.trainer
    return Decision(
        job=job.spec.name,
        now=job.now,
        target=spec.largest_allowed(job.now) if job.now else 0,
        min=spec.min_replicas,
        max=spec.max_replicas,
        servers=job.servers_now,
        servers_target=job.servers_now,
        reason=Reason.STALE_VIEW,
        bottleneck=Bottleneck.STALE_VIEW,
        message=why,
        is_degraded=job.is_degraded,
    )
