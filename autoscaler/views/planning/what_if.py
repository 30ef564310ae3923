"""What a change would do: sizes now, and where the cluster converges with and without the changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.domain import Bottleneck, Decision, PodPhase, Role, WorkloadName
from autoscaler.planner.counterfactual import Converged, PlanInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfComparison:
    """Two converged clusters: without and with the changes."""

    changes: tuple[str, ...]
    inputs: PlanInputs  # now
    before: Converged
    after: Converged


def comparison_content(found: WhatIfComparison) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "asked": list(found.changes),
        "jobs": [_row_content(row) for row in job_rows(found)],
        "servers": [_row_content(row) for row in server_rows(found)],
        "deployments": [_row_content(row) for row in web_rows(found)],
        "waiting": [dict(zip(("name", "reason", "why"), row, strict=True)) for row in waiting_rows(found.after)],
        "is_converged": found.before.is_reached and found.after.is_reached,
    }


def job_rows(found: WhatIfComparison) -> list[list[str]]:
    """Rows of jobs: trainers now, converged without the changes, converged with them, and the reason."""
    before = {decision.job: decision for decision in found.before.plan.decisions}
    rows = []
    for decision in found.after.plan.decisions:
        old = before.get(decision.job)
        sizes = ["-", "-"] if old is None else [str(_now(found.inputs, decision, Role.TRAINER)), str(old.target)]
        rows.append([f"tj/{decision.job}", *sizes, str(decision.target), decision.message])
    return rows


def server_rows(found: WhatIfComparison) -> list[list[str]]:
    """Rows of parameter servers; the row of the job's trainers has the reason."""
    before = {decision.job: decision for decision in found.before.plan.decisions}
    rows = []
    for decision in found.after.plan.decisions:
        old = before.get(decision.job)
        now = 0 if old is None else _now(found.inputs, decision, Role.SERVER)
        if now or decision.servers_target or (old and old.servers_target):
            sizes = ["-", "-"] if old is None else [str(now), str(old.servers_target)]
            rows.append([f"tj/{decision.job}", *sizes, str(decision.servers_target), ""])
    return rows


def web_rows(found: WhatIfComparison) -> list[list[str]]:
    """Rows of deployments: pods with a node, and wanted pods."""
    known = {workload.name for workload in found.inputs.view.workloads}
    rows = []
    for workload in found.after.inputs.view.workloads:
        name = workload.name
        old = [_running(found.inputs, name), _running(found.before.inputs, name)] if name in known else ["-", "-"]
        rows.append([f"deployment/{name}", *old, _running(found.after.inputs, name), ""])
    return rows


def waiting_rows(converged: Converged) -> list[list[str]]:
    """Rows of what would wait, and why: jobs that cannot start or lack core pods, external pods without a node.

    Jobs that are over or suspended wait for nothing.
    """
    active = [d for d in converged.plan.decisions if d.bottleneck is not Bottleneck.NOT_ACTIVE]
    lacking = [d for d in active if d.target == 0 or d.is_degraded]
    rows = [[f"tj/{d.job}", "Degraded" if d.is_degraded else str(d.bottleneck), d.bottleneck_message] for d in lacking]
    states: dict[tuple[str, str], int] = {}
    owners = {pod.name: str(pod.workload or pod.name) for pod in converged.inputs.view.pods}
    for demand in converged.plan.demands:
        owner = owners.get(demand.pod, demand.pod.rpartition("+")[0] or demand.pod)
        states[owner, demand.state] = states.get((owner, demand.state), 0) + 1
    rows += [[f"deployment/{owner}", str(state), f"{count} pods"] for (owner, state), count in states.items()]
    return rows


def _now(inputs: PlanInputs, decision: Decision, role: Role) -> int:
    live_phases = (PodPhase.PENDING, PodPhase.STARTING, PodPhase.READY)
    return sum(p.job == decision.job and p.role is role and p.phase in live_phases for p in inputs.view.pods)


def _running(inputs: PlanInputs, name: WorkloadName) -> str:
    pods = [p for p in inputs.view.pods if p.workload == name and p.phase is not PodPhase.TERMINATING]
    wanted = next((w.desired_replicas for w in inputs.view.workloads if w.name == name), 0)
    return f"{sum(pod.node is not None for pod in pods)}/{max(wanted, len(pods))}"


def _row_content(row: Sequence[str]) -> dict[str, Any]:
    """Sizes as numbers, null for what is not there; `2/6` of a deployment as running and wanted."""
    name, *sizes, why = row
    return {"name": name, **dict(zip(("now", "before", "after"), map(_counted, sizes), strict=True)), "why": why}


def _counted(cell: str) -> Any:
    running, slash, wanted = cell.partition("/")
    if cell == "-":
        return None
    return {"running": int(running), "wanted": int(wanted)} if slash else int(cell)
