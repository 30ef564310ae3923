"""Whether the API server would take what a gang is made of, asked before anything of it is made (dry run, ADR 0159).

What a user wrote into a template, and what an administrator set for the namespace, is refused by the API server alone.
Met only when the gang is bound, such a refusal would hold the gang's room without end.  The right to create is all
that asking needs.
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
"""The API server's words about an admission webhook with side effects: then the write itself is the first question."""


async def check_gang(
    api: Api, job: KubeJob, seats: Iterable[CreatePod], settings: BuildSettings, *, avoid: frozenset[NodeName]
) -> None:
    """Have the master's Deployment, a pod of it, and the first pod of each other role judged.

    Raises ClusterError: InvalidError or ForbiddenError with the API server's words, NameTakenError for a Deployment
    that is somebody else's.
    """
    deployment = build_master(job, settings)
    firsts: dict[Role, CreatePod] = {}
    for seat in seats:
        if seat.role is not Role.MASTER:
            firsts.setdefault(seat.role, seat)
    pods = [build_pod(job, seat, settings, is_gated=True, avoid=avoid) for seat in firsts.values()]
    bodies = [(DEPLOYMENTS, deployment), *((PODS, pod) for pod in (_pod_of(job, deployment), *pods))]
    await gather_bounded((partial(_check, api, job, kind, body) for kind, body in bodies), at_once=len(bodies))


async def _check(api: Api, job: KubeJob, kind: Kind, body: Raw) -> None:
    metadata = body["metadata"]
    try:
        await api.check_create(kind, body)
    except AlreadyExistsError:  # a pod of a gang that was left half made; `create_gated` asks whose it is
        if kind == DEPLOYMENTS:
            check_own(await api.get(kind, metadata["name"], namespace=metadata["namespace"]), kind, job)
    except BadRequestError as error:
        if NO_DRY_RUN_SUPPORT not in str(error):
            raise


def _pod_of(job: KubeJob, deployment: Raw) -> Raw:
    """A master's pod as its ReplicaSet will make it: a Deployment is taken whatever becomes of its pods."""
    template = deployment["spec"]["template"]
    named = {"name": deployment["metadata"]["name"], "namespace": job.namespace}
    metadata = {**template["metadata"], **named, "ownerReferences": [owner_reference(job)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
