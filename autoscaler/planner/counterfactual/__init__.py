"""Counterfactuals: what would change a job's size, and what-if questions, answered by planning anew; pure (ADR 0120).

`search` is the entry: `explain(inputs, job)`. `change` holds the values, and the changes stand in a module for each
kind: `job_changes` (the job's own document), `priority_changes` (whose room it is), `cluster_changes` (what there is),
`time_changes`. All of it rests on `plan` alone and knows nothing of how that decides, so no answer can differ from what
the planner would do. `edits` changes the inputs as a user words it, and `convergence` says where the cluster ends.
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
