"""Errors of an API server as errors of a command: what the user can do, and the exit code."""

from __future__ import annotations

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.kubernetes.api.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RefusedBy,
    UnauthorizedError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import NODE_GPUS, TRAINING_JOBS, Kind
from autoscaler.errors import ClusterError

NO_DEFINITION = (
    "the cluster knows no TrainingJobs; install EDL there (helm install edl charts/edl), or name another --context"
)

_KUBELETS_LOGS = "/containerLogs/"
"""Part of the address at which the API server asks a kubelet for a log."""

NO_GPU_DEFINITION = "the cluster knows no NodeGpus; install this version of EDL's chart there, with agent.enabled=true"


def unknown_kind(kind: Kind, error: NotFoundError) -> CommandError:
    """The error for a 404 of a listing: the cluster does not have the kind."""
    messages = {TRAINING_JOBS: NO_DEFINITION, NODE_GPUS: NO_GPU_DEFINITION}
    return CommandError(Exit.NOT_FOUND, messages.get(kind, str(error)))


def to_command_error(error: ClusterError, title: str) -> CommandError:
    """The command's error for one of the cluster.  `title` names the cluster."""
    match error:
        case NotFoundError():
            return CommandError(Exit.NOT_FOUND, str(error))
        case UnauthorizedError():
            hint = "the cluster rejects the kubeconfig's credentials; they may have expired"
            return CommandError(Exit.REFUSED, f"{error}; {hint} ({title})")
        case ForbiddenError(refused_by=RefusedBy.RBAC):
            hint = "ask the cluster's administrator for that right (the roles view and edit include TrainingJobs)"
            return CommandError(Exit.REFUSED, f"{error}; {hint}")
        case ForbiddenError() | InvalidError():
            return CommandError(Exit.REFUSED, str(error))
        case ConflictError():
            return CommandError(
                Exit.FAILED, f"{error}; the object changed meanwhile and nothing was written; check it and try again"
            )
        case UnavailableError(may_have_happened=True):
            hint = "no answer came, so the write may have happened; check with edl get"
            return CommandError(Exit.FAILED, f"{error}; {hint} ({title})")
        case UnavailableError() if _KUBELETS_LOGS in str(error):
            hint = "the API server answers, and the kubelet of the pod's node does not answer it"
            return CommandError(Exit.FAILED, f"{error}; {hint} ({title})")
        case UnavailableError():
            hint = f"is the API server of {title} up?  Check with kubectl cluster-info"
            return CommandError(Exit.FAILED, f"{error}; {hint}")
        case _:
            return CommandError(Exit.FAILED, f"{error} ({title})")
