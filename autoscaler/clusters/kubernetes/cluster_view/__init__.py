"""The planner's view, derived from the object cache; only what has changed since the last view is parsed again.

`view_builder` puts the view together from `job_view`, `pod_view`, `node_view` and `workload_view`.  What the operator
knows of a running job comes in as `JobRuntime`.
"""

from autoscaler.clusters.kubernetes.cluster_view.job_view import NEVER_S, JobRuntime, RuntimeOf
from autoscaler.clusters.kubernetes.cluster_view.view_builder import ViewBuilder

__all__ = ["NEVER_S", "JobRuntime", "RuntimeOf", "ViewBuilder"]
