"""The order of the phases; each stands in a file of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from autoscaler.domain import Bottleneck, ClusterView, Decision, JobName, Plan, Policy, Reason
from autoscaler.planner.exclusion import plan_without
from autoscaler.planner.phases.p1_external_pods import place_others
from autoscaler.planner.phases.p2_finish_moves import finish_moves
from autoscaler.planner.phases.p2_retain import keep_running_jobs, restore_cores
from autoscaler.planner.phases.p3_reclaim import make_room
from autoscaler.planner.phases.p4_gangs import admit_gangs, settle_headroom
from autoscaler.planner.phases.p6_begin_moves import begin_moves
from autoscaler.planner.phases.p6_transfer import share_out
from autoscaler.planner.phases.p7_actions import emit
from autoscaler.planner.sharing.elastic_servers import complete_servers
from autoscaler.planner.working_copy.memo import Memo
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.working_copy import Draft

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


def why_stale(snapshot: Draft) -> str:
    """Return why nothing may be written, or an empty text.  An age that is NaN is too old."""
    view, policy, now_s = snapshot.view, snapshot.policy, snapshot.now_s
    if not view.is_synced:
        return "the first listing of the cluster is not complete"
    if not now_s - view.observed_at_s <= policy.stale_limit_s:
        return f"the view is {now_s - view.observed_at_s:.1f} s old; at most {policy.stale_limit_s:g} s"
    lost = len(snapshot.rooms) - len(snapshot.rooms.ready)
    if lost * 100 > policy.lost_nodes_limit_percent * len(view.nodes):
        return f"{lost} of {len(view.nodes)} nodes are not ready at once"
    return ""


def stand_still(snapshot: Draft, why: str) -> Plan:
    """Return a plan that writes nothing and keeps every size and the whole memory."""
    return Plan(
        revision=snapshot.view.revision,
        planned_at_s=snapshot.now_s,
        decisions=tuple(unchanged(job, why) for job in snapshot.jobs.values()),
        history=snapshot.view.history,
    )


def unchanged(job: JobDraft, why: str) -> Decision:
    """Return the decision to leave a job as it is."""
    spec = job.job.trainer
    return Decision(
        job=job.job.name,
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
