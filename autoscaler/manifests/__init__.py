"""The user's files: TrainingJob, Deployment, PriorityClass and LocalCluster documents, checked at the edge.

`parse_files` is the door; it answers `api_types.Manifests` or raises RefusedInputError with everything that is wrong.
"""

from autoscaler.manifests.api_types import Deployment, Machine, Manifests, PriorityClass, TrainingJob
from autoscaler.manifests.field_errors import Refusal, RefusedInputError
from autoscaler.manifests.parsing import parse_files

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
