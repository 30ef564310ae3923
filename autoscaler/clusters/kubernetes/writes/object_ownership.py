"""Whose an object under one of a job's names is: names prove nothing (ADR 0150).

What stands under the name and is not the job's is left as it is, and the job waits; what an earlier job of the name has
left is waited out.
"""

from __future__ import annotations

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.errors import ConflictError
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.objects.fields import controller_of
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.errors import PermanentError


class NameTakenError(PermanentError):
    """An object of that name stands already, and it is not the one that was meant: plan again."""


def is_own(raw: Raw, job: KubeJob) -> bool:
    """Whether this very job controls the object."""
    return controller_of(raw).get("uid") == job.uid


def check_own(raw: Raw, kind: Kind, job: KubeJob) -> None:
    """Raise NameTakenError for what is somebody else's, ConflictError for what an earlier job of the name left."""
    owner, name = controller_of(raw), f"{kind.kind} {job.namespace}/{raw['metadata']['name']}"
    if is_own(raw, job):
        return
    if owner.get("kind") == TRAINING_JOBS.kind and owner.get("name") == job.name:
        raise ConflictError(f"{name} is still an earlier job's")
    raise NameTakenError(f"{name} stands and belongs to somebody else; rename one of the two")
