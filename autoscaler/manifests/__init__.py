"""The user's files: TrainingJob, Deployment, PriorityClass and LocalCluster documents, checked at the edge.

`parse_files` is the door; it answers `values.Manifests` or raises RefusedInputError with everything that is wrong.
"""

from autoscaler.manifests.parsing import parse_files
from autoscaler.manifests.refusals import Refusal, RefusedInputError
from autoscaler.manifests.values import Deployment, Machine, Manifests, PriorityClass, TrainingJob

__all__ = [
    "Deployment",
    "Machine",
    "Manifests",
    "PriorityClass",
    "Refusal",
    "RefusedInputError",
    "TrainingJob",
    "parse_files",
]
