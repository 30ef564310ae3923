"""Convergence: plan and apply on a copy of the view until a plan has no actions.

This is the shortest of simulations: no time passes, pods start and leave at once and external pods are bound where the
plan expects them. Windows are off, since they are over once the cluster has converged. How long that takes, and what
happens on the way, is the simulated cluster's subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from autoscaler.domain import (
    Action,
    AdmitGang,
    ClusterView,
    CreatePod,
    DeletePod,
    DemandState,
    Job,
    NodeName,
    Plan,
    Pod,
    PodName,
    PodPhase,
    Quota,
    Reclaim,
    Role,
    Tier,
)
from autoscaler.planner import Memo, plan, record_applied
from autoscaler.planner.counterfactual.change import PlanInputs, without_run_times, without_windows
from autoscaler.planner.working_copy.grades import grade_of_pod

ROUNDS: Final = 200  # plans; each one ends at least one job's or pod's waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Converged:
    """The converged inputs and the last plan there. `is_reached`: that plan has no actions."""

    inputs: PlanInputs
    plan: Plan
    is_reached: bool


def converge(inputs: PlanInputs, *, goes_on: Callable[[], bool] = lambda: True) -> Converged:
    """Return where the cluster ends if nothing else happens; a stale view counts as one of now.

    `goes_on` is asked before each plan: once it says no, what was planned so far is returned as not reached.
    """
    memo, policy = Memo(), without_windows(inputs.policy)
    leaving = [pod for pod in inputs.view.pods if pod.phase is PodPhase.TERMINATING]
    view = without_run_times(inputs.view).evolve(
        observed_at_s=inputs.now_s,
        is_synced=True,
        gone_pods=[pod.name for pod in leaving],
        quotas=with_quota_usage(inputs.view, came=(), left=leaving),
    )
    inputs = replace(inputs, view=view)
    # Transfers come last: each repeats the whole water-filling, and early ones could be reversed.
    without_transfers = replace(policy, transfers_per_minute=0, transfers_percent_per_minute=0)
    for _ in range(ROUNDS):
        if not goes_on():
            break
        view = apply_plan(inputs, plan(inputs.view, without_transfers, inputs.now_s, memo=memo))
        if view is inputs.view:
            decided = plan(inputs.view, policy, inputs.now_s, memo=memo)
            view = apply_plan(inputs, decided)
            if view is inputs.view:
                return Converged(inputs=inputs, plan=decided, is_reached=True)
        inputs = replace(inputs, view=view)
    return Converged(inputs=inputs, plan=plan(inputs.view, policy, inputs.now_s, memo=memo), is_reached=False)


def apply_plan(inputs: PlanInputs, decided: Plan) -> ClusterView:
    """Return the view after all of a plan has come true; the same one if it asks for nothing."""
    view = inputs.view
    gone = {action.pod for action in decided.actions if isinstance(action, DeletePod)}
    jobs = {job.name: job for job in view.jobs}
    is_graded = inputs.policy.reclaim is Reclaim.SCHEDULER
    created = [created_pod(jobs[pod.job], pod, inputs.now_s, is_graded=is_graded) for pod in creations(decided.actions)]
    bound = list(bound_external_pods(view, decided))
    if not (gone or created or bound):
        return view
    history = decided.history
    for action in decided.actions:
        history = record_applied(history, action, inputs.now_s)
    return view.evolve(
        pods=[*created, *bound],
        gone_pods=gone,
        quotas=with_quota_usage(view, came=created, left=[pod for pod in view.pods if pod.name in gone]),
        history=replace(history, unused_capacity=()),  # every pod takes its capacity at once
        revision=view.revision + 1,
    )


def with_quota_usage(view: ClusterView, *, came: Sequence[Pod], left: Sequence[Pod]) -> list[Quota] | None:
    """Return the quotas with what these pods of jobs add to what is used, and what those take away; None: none are."""
    jobs = {job.name: job for job in view.jobs} if view.quotas else {}
    moves = [(jobs[pod.job], pod, sign) for pods, sign in ((came, 1), (left, -1)) for pod in pods if pod.job in jobs]
    return [with_moves(quota, moves) for quota in view.quotas] if moves else None


def with_moves(quota: Quota, moves: Sequence[tuple[Job, Pod, int]]) -> Quota:
    """Return one quota after pods have come (1) and gone (-1)."""
    counted = [
        (pod.requests, sign)
        for job, pod, sign in moves
        if job.namespace == quota.namespace and quota.counts(job, pod.role, grade_of_pod(pod))
    ]
    limits = (
        replace(limit, used=limit.used + sum(sign * requests.amount(limit.resource) for requests, sign in counted))
        for limit in quota.limits
    )
    return replace(quota, limits=tuple(limits))


def creations(actions: Iterable[Action]) -> Iterable[CreatePod]:
    """Yield every pod that is created, those of gangs too."""
    for action in actions:
        match action:
            case CreatePod():
                yield action
            case AdmitGang():
                yield from action.pods
            case DeletePod():
                pass
            case _:
                assert_never(action)


def created_pod(job: Job, wanted: CreatePod, now_s: float, *, is_graded: bool) -> Pod:
    """Return the pod of a creation, ready at once. Surplus carries its grade where a scheduler chooses victims."""
    shapes = {Role.TRAINER: job.trainer.shape, Role.MASTER: job.master.shape}
    if job.servers is not None:
        shapes[Role.SERVER] = job.servers.shape
    return Pod(
        name=PodName(f"{job.name}-{wanted.role}-{wanted.ordinal}"),
        role=wanted.role,
        tier=wanted.tier,
        shape=shapes[wanted.role],
        phase=PodPhase.READY,
        priority=-wanted.grade if wanted.tier is Tier.SURPLUS and is_graded else job.priority,
        node=wanted.node,
        job=job.name,
        ordinal=wanted.ordinal,
        created_at_s=now_s,
    )


def bound_external_pods(view: ClusterView, decided: Plan) -> Iterable[Pod]:
    """Yield the waiting external pods that fit now, bound."""
    capacity: dict[PodName, NodeName] = {
        demand.pod: demand.node
        for demand in decided.demands
        if demand.state is DemandState.CAPACITY_FREE and demand.node is not None
    }
    for pod in view.pods:
        if pod.phase is PodPhase.PENDING and pod.role is Role.EXTERNAL and pod.name in capacity:
            yield replace(pod, phase=PodPhase.READY, node=capacity[pod.name], unschedulable_since_s=None)
