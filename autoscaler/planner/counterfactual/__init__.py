"""Why has a job this size, and what would change it?  Asked on demand, answered by planning anew; pure.

`search` is the door: `explain(moment, job)`.  `change` holds the values, one file each kind of change: `sizes` (the
job's own document), `claims` (whose room it is), `room` (what there is), `timing`.  It stands on `plan` alone and knows
nothing of how that decides, so no answer can differ from what the planner would do.  ADR 0120.

What if?  `edits` changes a moment as a user words it, `rest` says where it ends.
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
