"""The user's files: TrainingJob, Deployment, PriorityClass and LocalCluster documents, checked at the edge.

`parse_files` is the door; it answers `api_types.Manifests` or raises RefusedInputError with everything that is wrong.
"""

from autoscaler.manifests.api_types import Manifests, PriorityClass, TrainingJob, VirtualNode, WebDeployment
from autoscaler.manifests.field_errors import FieldError, InvalidManifestError
from autoscaler.manifests.parsing import parse_files

__all__ = [
    "FieldError",
    "InvalidManifestError",
    "Manifests",
    "PriorityClass",
    "TrainingJob",
    "VirtualNode",
    "WebDeployment",
    "parse_files",
]
