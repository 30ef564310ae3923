"""PodDisruptionBudget of a job: over its core pods, which may be evicted one at a time (`beside-the-scheduler.md` 18).

The operator maintains an integer `minAvailable`: a percentage or `maxUnavailable` would count against the job's
`/scale`, which knows trainers only.
"""

from __future__ import annotations

from typing import Any

from autoscaler.clusters.kubernetes.builders.member_pods import owner_reference
from autoscaler.clusters.kubernetes.objects.labels import core_selector, job_labels
from autoscaler.clusters.kubernetes.objects.names import budget_name
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob


def build_budget(job: KubeJob, core_pods: int) -> dict[str, Any]:
    """Return the budget's body for this number of core pods, masters included."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": budget_name(job.name),
            "namespace": job.namespace,
            "labels": job_labels(job.name),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "minAvailable": max(0, core_pods - 1),
            "selector": {"matchLabels": core_selector(job.name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
