"""Ownership of objects: whether an object under one of a job's names is the job's own (ADR 0150).

A name proves nothing; the controller reference does.  EDL leaves objects of others alone, and the job waits.  EDL
waits until the objects of an earlier job of the same name are gone.
"""

from __future__ import annotations

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.errors import ConflictError
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.objects.fields import controller_of
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.errors import PermanentError


class NameTakenError(PermanentError):
    """An object of that name exists and is not the one that was meant: plan again."""


def is_own(raw: Raw, job: KubeJob) -> bool:
    """True if this very job controls the object."""
    return controller_of(raw).get("uid") == job.uid


def check_own(raw: Raw, kind: Kind, job: KubeJob) -> None:
    """Raise NameTakenError for an object of somebody else, ConflictError for one of an earlier job of this name."""
    owner, name = controller_of(raw), f"{kind.kind} {job.namespace}/{raw['metadata']['name']}"
    if is_own(raw, job):
        return
    if owner.get("kind") == TRAINING_JOBS.kind and owner.get("name") == job.name:
        raise ConflictError(f"{name} still belongs to an earlier job of this name")
    raise NameTakenError(f"{name} exists and is not owned by this job; rename one of the two")
