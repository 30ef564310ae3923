"""The user's files: TrainingJob, Deployment, PriorityClass and LocalCluster documents, parsed once, at the edge.

`parse_files` returns `api_types.Manifests`, or raises InvalidManifestError with every error.
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
