"""Reports of `edl why` and `edl plan`, for people and for scripts: pure functions of the planner's values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from autoscaler.cli.output.formats import section
from autoscaler.cli.output.object_tables import align_columns
from autoscaler.domain import (
    Action,
    AdmitGang,
    CreatePod,
    Decision,
    DeletePod,
    DemandAnswer,
    DemandState,
    Job,
    JobName,
    Plan,
    ServerSpec,
)
from autoscaler.planner.counterfactual import Counterfactual, Explanation
from autoscaler.planner.formatting import listed
from autoscaler.snapshots.codec import encode
from autoscaler.views.jobs.remaining_time import format_remaining, planned_remaining
from autoscaler.views.phrases import format_server_bounds
from autoscaler.views.planning.why import data_hint, server_hint

# ---- why ------------------------------------------------------------------------------------------------------------


def why_lines(
    explanation: Explanation,
    more_than: int,
    job: Job,
    *,
    is_ratio_measured: bool = False,
    idle: str = "",
    not_training: str = "",
) -> list[str]:
    """The answer for people: the sizes, the bottleneck, and the changes that would lift it.

    `is_ratio_measured`: EDL measures the ratio of servers to trainers; the planner gets the number alone (ADR 0117).
    `idle`: which trainers do no work, in the words of the job's status, which say more than the planner's view;
    `not_training`: what keeps all of them from training.
    """
    decision = explanation.decision
    goes = "" if decision.now == decision.target else f", going to {decision.target}"
    trainers = "trainer" if decision.now == 1 else "trainers"
    lines = [
        f"tj/{decision.job} has {decision.now} {trainers}{goes} ({decision.min} to {decision.max} allowed)",
        *(
            [_server_line(decision, job.servers, is_ratio_measured=is_ratio_measured)]
            if job.servers is not None
            else []
        ),
        *([f"This plan: {decision.message}"] if decision.limit else []),
        f"{decision.bottleneck}: {decision.bottleneck_message}",
    ]
    if decision.progress is not None:
        lines.append(f"Progress: {decision.progress:.2f} of its throughput alone on its part of the cluster")
    if not_training:
        lines.append(f"Training: {not_training}")
    if hint := server_hint(explanation, job):
        lines.append(f"Servers: {hint}")
    if hint := data_hint(job):
        lines.append(f"Data: {hint}")
    if idle:
        lines.append(f"Idle: {idle}")
    elif job.idle:
        lines.append(f"Idle: {listed([one.pod for one in job.idle])} completed no batch for the job's window")
    if explanation.settled.bottleneck is not decision.bottleneck:
        lines.append(f"then {explanation.settled.bottleneck}: {explanation.settled.bottleneck_message}")
    answers = explanation.answers
    if answers:
        lines += ["", "more with any one of these:" if len(answers) > 1 else "more with:"]
        lines += [f"  {_gain(answer, explanation):<12} {_words(answer)}" for answer in answers]
    else:
        lines += ["", f"no change that was tried, and no pair of them, gives more than {more_than}"]
    if explanation.is_cut:
        lines.append(f"(stopped after {explanation.plans} plans: there may be more)")
    return lines


def _server_line(decision: Decision, servers: ServerSpec, *, is_ratio_measured: bool) -> str:
    goes = "" if decision.servers == decision.servers_target else f", going to {decision.servers_target}"
    bounds = format_server_bounds(
        low=servers.min_replicas,
        high=servers.max_replicas,
        pinned=servers.pinned_replicas,
        trainers_per_server=servers.trainers_per_server,
        is_measured=is_ratio_measured,
    )
    note = f"; {decision.notice}" if decision.notice else ""
    role = "parameter server" if decision.servers == 1 else "parameter servers"
    return f"and {decision.servers} {role}{goes} ({bounds}){note}"


def _gain(answer: Counterfactual, explanation: Explanation) -> str:
    gain = answer.size - explanation.decision.now
    return f"{gain} more: {answer.size}" if gain > 0 else f"stays {answer.size}" if gain == 0 else str(answer.size)


def _words(answer: Counterfactual) -> str:
    return " and ".join(change.describe() for change in answer.changes)


# ---- plan -----------------------------------------------------------------------------------------------------------


def plan_lines(plan: Plan, jobs: Mapping[JobName, Job], *, is_wide: bool) -> list[str]:
    """Decisions, then the actions in order, the jobs that wait, and external pods.  `jobs`: those of the view."""
    wide = ("SERVERS", "SHARE", "CAUSE") if is_wide else ()
    rows = [["JOB", "MIN", "NOW", "TARGET", "MAX", "REMAINING", *wide, "REASON", "BOTTLENECK", "WHY"]]
    for d in plan.decisions:
        more = [f"{d.servers}/{d.servers_target}", f"{d.share:.3f}", str(d.cause or "-")] if is_wide else []
        sizes = [str(number) for number in (d.min, d.now, d.target, d.max)]
        remaining = format_remaining(planned_remaining(jobs[d.job], d)) or "-"
        rows.append([d.job, *sizes, remaining, *more, d.reason, d.bottleneck, d.message])
    lines = align_columns(rows) if plan.decisions else ["no jobs"]
    lines += section(
        "actions, in this order",
        align_columns([_action_row(action) for action in _single_actions(plan.actions)]),
        is_spaced=True,
    )
    lines += section(
        "waits", align_columns([[wait.job, wait.bottleneck, wait.message] for wait in plan.waits]), is_spaced=True
    )
    demands = plan.demands if is_wide else [d for d in plan.demands if d.state is not DemandState.CAPACITY_FREE]
    lines += section("external pods", align_columns([_demand_row(demand) for demand in demands]), is_spaced=True)
    if plan.replan_at_s is not None:
        lines += ["", f"a new plan is due in {plan.replan_at_s - plan.planned_at_s:.1f} s, even without a change"]
    return lines


def plan_content(plan: Plan, jobs: Mapping[JobName, Job]) -> Any:
    """The whole plan as plain values; each decision with how long its job takes at the target, null: not known."""
    content = encode(plan, Plan)
    for told, decision in zip(content["decisions"], plan.decisions, strict=True):
        found = planned_remaining(jobs[decision.job], decision)
        told["remaining"] = None if found is None else asdict(found)
    return content


def _single_actions(actions: Iterable[Action]) -> Iterable[CreatePod | DeletePod]:
    for action in actions:
        if isinstance(action, AdmitGang):
            yield from action.pods
        else:
            yield action


def _action_row(action: CreatePod | DeletePod) -> list[str]:
    if isinstance(action, CreatePod):
        pod = f"{action.job}-{action.role}-{action.ordinal}"
        return ["create", pod, f"on {action.node}", str(action.cause), str(action.tier)]
    whom = f"for {action.beneficiary}" if action.beneficiary else ""
    return ["delete", action.pod, f"on {action.node or '-'}", str(action.cause), whom]


def _demand_row(demand: DemandAnswer) -> list[str]:
    victims = f"takes {', '.join(demand.victims)}" if demand.victims else ""
    return [demand.pod, str(demand.state), f"on {demand.node}" if demand.node else "-", victims]
