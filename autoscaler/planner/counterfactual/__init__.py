"""Counterfactuals: what would change a job's size, and what-if questions, answered by more plans; pure (ADR 0120).

`search` is the entry: `explain(inputs, job)`. `change` has the values; there is a module for each kind of change:
`job_changes` (the job's own document), `priority_changes` (weight, priority, headroom), `cluster_changes` (nodes,
quotas), `time_changes`. All of it rests on `plan` alone and knows nothing of how that decides, so no answer can
differ from what the planner would do. `edits` changes the inputs as a user asks for it, and `convergence` plans until
nothing changes.
"""

from autoscaler.planner.counterfactual.change import (
    ChangeKind,
    Counterfactual,
    Explanation,
    HypotheticalChange,
    PlanInputs,
    without_windows,
)
from autoscaler.planner.counterfactual.convergence import Converged, converge
from autoscaler.planner.counterfactual.search import explain, size_after

__all__ = [
    "ChangeKind",
    "Converged",
    "Counterfactual",
    "Explanation",
    "HypotheticalChange",
    "PlanInputs",
    "converge",
    "explain",
    "size_after",
    "without_windows",
]
