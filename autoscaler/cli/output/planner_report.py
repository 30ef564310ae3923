"""What `edl why`, `edl plan` and `edl what-if` print: pure, from the planner's values to text and plain content."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.cli.output.phrases import format_server_bounds
from autoscaler.domain import (
    Action,
    AdmitGang,
    CreatePod,
    Decision,
    DeletePod,
    Demand,
    DemandState,
    Job,
    Plan,
    PodPhase,
    Role,
    ServerSpec,
    WorkloadName,
)
from autoscaler.jobs.bottleneck import find_hint
from autoscaler.planner.counterfactual import Answer, Explanation, Moment, Rest
from autoscaler.snapshots.codec import encode, encode_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfComparison:
    """Where a cluster comes to rest as it is, and where with what was asked about."""

    changes: tuple[str, ...]
    moment: Moment  # now
    before: Rest
    after: Rest


# ---- why ------------------------------------------------------------------------------------------------------------


def why_lines(explanation: Explanation, more_than: int, job: Job, *, is_ratio_measured: bool = False) -> list[str]:
    """The answer for people: the sizes, the constraint, and what would lift it.

    `is_ratio_measured`: of servers to trainers; the planner never learns where that number came from (ADR 0117).
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
        f"{decision.bottleneck}: {decision.message}",
    ]
    if hint := _server_hint(explanation, job):
        lines.append(f"Servers: {hint}")
    if explanation.settled.bottleneck is not decision.bottleneck:
        lines.append(f"then {explanation.settled.bottleneck}: {explanation.settled.message}")
    answers = explanation.answers
    if answers:
        lines += ["", "more with any one of these:" if len(answers) > 1 else "more with:"]
        lines += [f"  {_gain(answer, explanation):<12} {_told(answer)}" for answer in answers]
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


def _server_hint(explanation: Explanation, job: Job) -> str:
    hint = find_hint(servers=explanation.decision.servers, waiting_share=job.waiting_share)
    return "" if hint is None or job.servers is None else hint.tell(job.servers.max_replicas)


def why_content(explanation: Explanation, job: Job) -> dict[str, Any]:
    """The answer for scripts."""
    return {
        "servers_hint": _server_hint(explanation, job),
        "decision": encode(explanation.decision, Decision),
        "settled": encode(explanation.settled, Decision),
        "answers": [
            {
                "size": answer.size,
                "changes": [{**encode_fields(c, ""), "amount": c.amount, "words": c.tell()} for c in answer.changes],
            }
            for answer in explanation.answers
        ],
        "plans": explanation.plans,
        "is_cut": explanation.is_cut,
    }


def _gain(answer: Answer, explanation: Explanation) -> str:
    gain = answer.size - explanation.decision.now
    return f"{gain} more: {answer.size}" if gain > 0 else f"stays {answer.size}" if gain == 0 else str(answer.size)


def _told(answer: Answer) -> str:
    return " and ".join(change.tell() for change in answer.changes)


# ---- plan -----------------------------------------------------------------------------------------------------------


def plan_lines(plan: Plan, *, is_wide: bool) -> list[str]:
    """Decisions, then what is done now, what waits, and what becomes of others' pods."""
    wide = ("SERVERS", "SHARE", "CAUSE") if is_wide else ()
    rows = [["JOB", "MIN", "NOW", "TARGET", "MAX", *wide, "REASON", "BOTTLENECK", "WHY"]]
    for d in plan.decisions:
        more = [f"{d.servers}/{d.servers_target}", f"{d.share:.3f}", str(d.cause or "-")] if is_wide else []
        sizes = [str(number) for number in (d.min, d.now, d.target, d.max)]
        rows.append([d.job, *sizes, *more, d.reason, d.bottleneck, d.message])
    lines = _aligned(rows) if plan.decisions else ["no jobs"]
    lines += _part("actions, in this order", _aligned([_action_row(action) for action in _spread(plan.actions)]))
    lines += _part("waits", _aligned([[wait.job, wait.bottleneck, wait.message] for wait in plan.waits]))
    demands = plan.demands if is_wide else [d for d in plan.demands if d.state is not DemandState.ROOM_FREE]
    lines += _part("pods of others", _aligned([_demand_row(demand) for demand in demands]))
    if plan.replan_at_s is not None:
        lines += ["", f"time alone changes this in {plan.replan_at_s - plan.planned_at_s:.1f} s"]
    return lines


def plan_content(plan: Plan) -> Any:
    """The whole plan as plain values."""
    return encode(plan, Plan)


def _spread(actions: Iterable[Action]) -> Iterable[CreatePod | DeletePod]:
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


def _demand_row(demand: Demand) -> list[str]:
    victims = f"takes {', '.join(demand.victims)}" if demand.victims else ""
    return [demand.pod, str(demand.state), f"on {demand.node}" if demand.node else "-", victims]


# ---- what-if --------------------------------------------------------------------------------------------------------


def comparison_lines(found: WhatIfComparison) -> list[str]:
    """Jobs and web before and after, then what waits and why."""
    servers = [[f"{name} servers", *cells] for name, *cells in server_rows(found)]
    rows = [["NAME", "NOW", "BEFORE", "AFTER", "WHY"], *job_rows(found), *servers, *web_rows(found)]
    lines = [f"with {', '.join(found.changes)}:" if found.changes else "with nothing changed:", *_aligned(rows)]
    lines += _part("would wait", _aligned(waiting_rows(found.after)))
    if not (found.before.is_reached and found.after.is_reached):
        lines += ["", "(no rest was reached: the last plan still asks for something)"]
    return lines


def comparison_content(found: WhatIfComparison) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "asked": list(found.changes),
        "jobs": [_named(row) for row in job_rows(found)],
        "servers": [_named(row) for row in server_rows(found)],
        "deployments": [_named(row) for row in web_rows(found)],
        "waiting": [dict(zip(("name", "reason", "why"), row, strict=True)) for row in waiting_rows(found.after)],
        "is_at_rest": found.before.is_reached and found.after.is_reached,
    }


def job_rows(found: WhatIfComparison) -> list[list[str]]:
    """A job a row: trainers now, at rest as things are, at rest with what was asked, and what keeps it there."""
    before = {decision.job: decision for decision in found.before.plan.decisions}
    rows = []
    for decision in found.after.plan.decisions:
        old = before.get(decision.job)
        sizes = ["-", "-"] if old is None else [str(_now(found.moment, decision, Role.TRAINER)), str(old.target)]
        rows.append([f"tj/{decision.job}", *sizes, str(decision.target), decision.message])
    return rows


def server_rows(found: WhatIfComparison) -> list[list[str]]:
    """The same of the parameter servers of jobs that have them; why is told with their trainers."""
    before = {decision.job: decision for decision in found.before.plan.decisions}
    rows = []
    for decision in found.after.plan.decisions:
        old = before.get(decision.job)
        now = 0 if old is None else _now(found.moment, decision, Role.SERVER)
        if now or decision.servers_target or (old and old.servers_target):
            sizes = ["-", "-"] if old is None else [str(now), str(old.servers_target)]
            rows.append([f"tj/{decision.job}", *sizes, str(decision.servers_target), ""])
    return rows


def web_rows(found: WhatIfComparison) -> list[list[str]]:
    """A deployment a row: pods with a node of those that are wanted."""
    known = {workload.name for workload in found.moment.view.workloads}
    rows = []
    for workload in found.after.moment.view.workloads:
        name = workload.name
        old = [_running(found.moment, name), _running(found.before.moment, name)] if name in known else ["-", "-"]
        rows.append([f"deployment/{name}", *old, _running(found.after.moment, name), ""])
    return rows


def waiting_rows(rest: Rest) -> list[list[str]]:
    """Who would wait, and why: jobs that cannot start or lack core pods, pods of others without a node."""
    lacking = [d for d in rest.plan.decisions if d.target == 0 or d.is_degraded]
    rows = [[f"tj/{d.job}", "Degraded" if d.is_degraded else str(d.bottleneck), d.message] for d in lacking]
    states: dict[tuple[str, str], int] = {}
    owners = {pod.name: str(pod.workload or pod.name) for pod in rest.moment.view.pods}
    for demand in rest.plan.demands:
        owner = owners.get(demand.pod, demand.pod.rpartition("+")[0] or demand.pod)
        states[owner, demand.state] = states.get((owner, demand.state), 0) + 1
    rows += [[f"deployment/{owner}", str(state), f"{count} pods"] for (owner, state), count in states.items()]
    return rows


def _now(moment: Moment, decision: Decision, role: Role) -> int:
    standing = (PodPhase.PENDING, PodPhase.STARTING, PodPhase.READY)
    return sum(p.job == decision.job and p.role is role and p.phase in standing for p in moment.view.pods)


def _running(moment: Moment, name: WorkloadName) -> str:
    pods = [p for p in moment.view.pods if p.workload == name and p.phase is not PodPhase.TERMINATING]
    wanted = next((w.desired_replicas for w in moment.view.workloads if w.name == name), 0)
    return f"{sum(pod.node is not None for pod in pods)}/{max(wanted, len(pods))}"


def _named(row: Sequence[str]) -> dict[str, Any]:
    """Sizes as numbers, null for what is not there; `2/6` of a deployment as running and wanted."""
    name, *sizes, why = row
    return {"name": name, **dict(zip(("now", "before", "after"), map(_counted, sizes), strict=True)), "why": why}


def _counted(cell: str) -> Any:
    running, slash, wanted = cell.partition("/")
    if cell == "-":
        return None
    return {"running": int(running), "wanted": int(wanted)} if slash else int(cell)


# ---- text -----------------------------------------------------------------------------------------------------------


def render(content: Any, output: str) -> str:
    """Plain content as JSON or YAML."""
    if output == "json":
        return json.dumps(content, indent=2)
    import yaml  # noqa: PLC0415 - only here, and not for --help

    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip())


def _part(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {line}" for line in lines)] if lines else []


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
