"""From the store to the planner's view, and from one view to the next: only what has changed is read again.

`views` puts together what `jobs`, `pods`, `nodes` and `workloads` bring, each of which knows what its own things rest
on.  What objects mean is in `reading`; what a job's own life adds comes from the operator, as `Facts`.
"""

from autoscaler.clusters.kubernetes.views.jobs import NEVER_S, Facts, FactsOf
from autoscaler.clusters.kubernetes.views.views import AGEING, KINDS, Views

__all__ = ["AGEING", "KINDS", "NEVER_S", "Facts", "FactsOf", "Views"]
