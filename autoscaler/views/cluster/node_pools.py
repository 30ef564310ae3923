"""Node pools: which pool a node belongs to, by the label that its provider or its provisioner gives it."""

from __future__ import annotations

from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, part, text

POOL_LABELS: Final = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",  # where nobody names pools, nodes of one type are alike
)
"""Labels that name a pool, the first that a node has counts."""


def pool_of(node: Raw) -> str:
    """Return the name of the node's pool; empty for a node of none."""
    labels = part(node, "metadata", "labels")
    return next((name for label in POOL_LABELS if (name := text(labels, label))), "")
