"""From the store to the planner's view, and from one view to the next: only what has changed is read again.

`views` puts together what `jobs`, `pods`, `nodes` and `workloads` bring, each of which knows what its own things rest
on.  What objects mean is in `reading`; what a job's own life adds comes from the operator, as `Facts`.
"""

from autoscaler.clusters.kubernetes.cluster_view.job_view import NEVER_S, JobRuntime, RuntimeOf
from autoscaler.clusters.kubernetes.cluster_view.view_builder import ViewBuilder

__all__ = ["NEVER_S", "JobRuntime", "RuntimeOf", "ViewBuilder"]
