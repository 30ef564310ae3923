"""A scenario's nodes, web and jobs as objects of the API; pods live as the simulator's physics has it.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE
from autoscaler.clusters.simulated import DurationRange, Physics
from autoscaler.domain import Job, JobName, Node, Resources, Role, Shape
from experiments.arms.pass_setup import NEVER_S, SYSTEM
from experiments.scenarios.schema import PodShapeSpec, WebSpec
from tests.cluster.kwok_nodes import GPU, IMAGE, Life, NodeShape, make_pod
from tests.cluster.trainingjobs import make_job

GRACE_S: Final = 30  # Kubernetes' default
SYSTEM_CLASS: Final = "system-node-critical"
COPIES_OF_2017: Final = 10**6  # failures that a batch Job may count: killed trainers are replaced for ever


def node_shape(node: Node) -> NodeShape:
    """Allocatable resources of the node."""
    offer = node.allocatable
    pods = dict(offer.extended).get("pods", 110)
    return NodeShape(cpu=f"{offer.cpu_milli}m", memory=str(offer.memory_bytes), pods=pods, gpus=offer.gpu_count)


def system_pod(node: str) -> dict[str, Any]:
    """Pods that every node of the mixes of 2017 runs already."""
    requests = written(SYSTEM.requests)
    return make_pod(f"system-{node}", requests=requests, nodeName=node, priorityClassName=SYSTEM_CLASS)


def web_deployment(spec: WebSpec, physics: Physics) -> dict[str, Any]:
    """The web's Deployment; its pods carry its name as `app`."""
    labels = {"app": spec.name}
    template = pod_template(shape_of(spec.pod), life_of(physics.start, physics.web_drain), labels)
    return {
        "metadata": {"name": spec.name},
        "spec": {"replicas": spec.replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def training_job(job: Job, physics: Physics) -> dict[str, Any]:
    """The job as its user writes it for EDL."""
    life = life_of(physics.start, physics.drain)
    sizes = {"minReplicas": job.trainer.min_replicas, "maxReplicas": job.trainer.max_replicas}
    fields = {
        "metadata.name": str(job.name),
        "spec.trainer": {**sizes, "template": pod_template(job.trainer.shape, life)},
        "spec.master": {"replicas": job.master.replicas, "template": pod_template(job.master.shape, life)},
    }
    body = make_job(**fields)
    del body["spec"]["parameterServer"]
    if job.servers is not None:
        sizes = {"minReplicas": job.servers.min_replicas, "maxReplicas": job.servers.max_replicas}
        body["spec"]["parameterServer"] = {**sizes, "template": pod_template(job.servers.shape, life)}
    return body


def controller_of_2017(job: Job, role: Role, replicas: int, physics: Physics) -> dict[str, Any]:
    """Controller of a role's pods in 2017: a batch Job for trainers, else a ReplicaSet."""
    labels = {JOB: str(job.name), ROLE: role.value}
    template = pod_template(shape_of_role(job, role), life_of(physics.start, physics.drain), labels)
    metadata = {"name": controller_name(job.name, role)}
    if role is Role.TRAINER:
        template["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": replicas, "backoffLimit": COPIES_OF_2017, "template": template}
        return {"metadata": metadata, "spec": spec}
    return {
        "metadata": metadata,
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def controller_name(job: JobName, role: Role) -> str:
    """Of that object."""
    return f"{job}-{role.value}"


def shape_of_role(job: Job, role: Role) -> Shape:
    """Requests of one of the role's pods."""
    match role:
        case Role.TRAINER:
            return job.trainer.shape
        case Role.SERVER if job.servers is not None:
            return job.servers.shape
        case _:
            return job.master.shape


def pod_template(shape: Shape, life: Life, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A template of one container that lives so."""
    container = {"name": "main", "image": IMAGE, "resources": {"requests": written(shape.requests)}}
    return {
        "metadata": {"annotations": life.annotations(), "labels": dict(labels or {})},
        "spec": {"terminationGracePeriodSeconds": GRACE_S, "containers": [container]},
    }


def life_of(start: DurationRange, leave: DurationRange) -> Life:
    """Life of such a pod.  Stand-ins end after the middle of a spread; one that never ends ignores SIGTERM."""
    leave_s = (leave.low_s + leave.high_s) / 2
    return Life(
        start_after_s=start.low_s,
        start_before_s=start.high_s,
        leave_after_s=None if leave_s >= NEVER_S else leave_s,
    )


def shape_of(pod: PodShapeSpec) -> Shape:
    """Requests of a pod of the scenario."""
    return Shape(requests=Resources(cpu_milli=pod.cpu, memory_bytes=pod.memory, gpu_count=pod.gpu))


def written(requests: Resources) -> dict[str, str]:
    """Requests in Kubernetes' quantities."""
    amounts = {"cpu": f"{requests.cpu_milli}m"}
    if requests.memory_bytes:
        amounts["memory"] = str(requests.memory_bytes)
    return amounts | ({GPU: str(requests.gpu_count)} if requests.gpu_count else {})
