"""Dry run of a gang: would the API server accept its objects?  Asked before any of them is created (ADR 0159).

Only the API server knows whether it refuses what a user wrote into a template or what an administrator set for the
namespace.  A refusal after the gang is bound would hold the gang's capacity without end.  A dry run needs no right
beyond that to create.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from autoscaler.bounded_gather import gather_bounded
from autoscaler.clusters.kubernetes.api.api_port import Api, Raw
from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, BadRequestError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, Kind
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings
from autoscaler.clusters.kubernetes.builders.master_deployment import build_master
from autoscaler.clusters.kubernetes.builders.member_pods import build_pod, owner_reference
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.clusters.kubernetes.writes.object_ownership import check_own
from autoscaler.domain import CreatePod, NodeName, Role

NO_DRY_RUN_SUPPORT = "does not support dry run"
"""Part of the API server's message about a webhook without dry-run support; only the real write then shows whether
it is accepted.
"""


async def check_gang(
    api: Api, job: KubeJob, placements: Iterable[CreatePod], settings: BuildSettings, *, avoid: frozenset[NodeName]
) -> None:
    """Dry-run the master's Deployment, a pod of it, and the first pod of each other role.

    Raises ClusterError: InvalidError or ForbiddenError with the API server's message, NameTakenError for a Deployment
    of somebody else.
    """
    deployment = build_master(job, settings)
    firsts: dict[Role, CreatePod] = {}
    for placement in placements:
        if placement.role is not Role.MASTER:
            firsts.setdefault(placement.role, placement)
    pods = [build_pod(job, placement, settings, is_gated=True, avoid=avoid) for placement in firsts.values()]
    bodies = [(DEPLOYMENTS, deployment), *((PODS, pod) for pod in (_pod_of(job, deployment), *pods))]
    await gather_bounded((partial(_check, api, job, kind, body) for kind, body in bodies), at_once=len(bodies))


async def _check(api: Api, job: KubeJob, kind: Kind, body: Raw) -> None:
    metadata = body["metadata"]
    try:
        await api.check_create(kind, body)
    except AlreadyExistsError:  # a pod of a partly created gang; `create_gated` checks its owner
        if kind == DEPLOYMENTS:
            check_own(await api.get(kind, metadata["name"], namespace=metadata["namespace"]), kind, job)
    except BadRequestError as error:
        if NO_DRY_RUN_SUPPORT not in str(error):
            raise


def _pod_of(job: KubeJob, deployment: Raw) -> Raw:
    """Return a master's pod as its ReplicaSet will create it: the server accepts a Deployment whose pods it refuses."""
    template = deployment["spec"]["template"]
    named = {"name": deployment["metadata"]["name"], "namespace": job.namespace}
    metadata = {**template["metadata"], **named, "ownerReferences": [owner_reference(job)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
