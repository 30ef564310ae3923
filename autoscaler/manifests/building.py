"""From checked models to values: defaults filled in, and a notice for whatever is accepted but not done."""

from __future__ import annotations

from typing import Final

from autoscaler.domain import Resources
from autoscaler.manifests import schema
from autoscaler.manifests.pod_schema import Amounts, PodTemplateModel
from autoscaler.manifests.values import (
    CheckpointSpec,
    Deployment,
    Machine,
    MasterSpec,
    PodTemplate,
    PriorityClass,
    Replicas,
    RunPolicy,
    ServerSpec,
    TrainerSpec,
    TrainingJob,
)

MASTER_REQUESTS: Final = Resources(cpu_milli=100, memory_bytes=128 << 20)
"""What a job's master takes when its owner says nothing: it sleeps most of the time."""


def build_job(model: schema.TrainingJobModel) -> tuple[TrainingJob, tuple[str, ...]]:
    """The job, and a notice for each thing it asks for that comes in a later version."""
    spec = model.spec
    job = TrainingJob(
        name=model.metadata.name,
        namespace=model.metadata.namespace,
        priority_class=spec.priority_class,
        weight=spec.weight,
        run_policy=RunPolicy(
            backoff_limit=spec.run_policy.backoff_limit,
            active_deadline_s=spec.run_policy.active_deadline_s,
            ttl_after_finished_s=spec.run_policy.ttl_after_finished_s,
            suspend=spec.run_policy.suspend,
        ),
        trainer=_build_trainer(spec.trainer),
        server=None if spec.server is None else _build_server(spec.server),
        master=_build_master(spec.master),
        checkpoint=CheckpointSpec(uri=spec.checkpoint.uri, every_s=spec.checkpoint.every_s),
    )
    return job, tuple(f"TrainingJob {job.name}: {text}" for text in _job_notices(job))


def build_deployment(model: schema.DeploymentModel) -> Deployment:
    return Deployment(
        name=model.metadata.name,
        namespace=model.metadata.namespace,
        replicas=model.spec.replicas,
        template=_build_template(model.spec.template),
    )


def build_class(model: schema.PriorityClassModel) -> PriorityClass:
    return PriorityClass(
        name=model.metadata.name,
        value=model.value,
        is_default=model.global_default,
        may_preempt=model.preemption_policy != "Never",
    )


def build_machines(model: schema.LocalClusterModel) -> tuple[Machine, ...]:
    """One machine per node; a `count` above 1 numbers them from 1."""
    return tuple(
        make_machine(
            node.name if node.count == 1 else f"{node.name}-{number}",
            Resources(cpu_milli=node.cpu, memory_bytes=node.memory, gpu_count=node.gpu_count),
            pod_limit=node.pod_limit,
        )
        for node in model.spec.nodes
        for number in range(1, node.count + 1)
    )


def make_machine(name: str, capacity: Resources, *, pod_limit: int = 110) -> Machine:
    """A node of this capacity that holds at most `pod_limit` pods (110: the kubelet's default)."""
    return Machine(name=name, capacity=capacity + Resources(extended=(("pods", pod_limit),)))


def _build_trainer(model: schema.TrainerModel) -> TrainerSpec:
    return TrainerSpec(
        replicas=Replicas(minimum=model.min_replicas, maximum=model.max_replicas, pinned=model.replicas),
        step=model.step or (1 if model.powers_of_two else model.per_node),
        powers_of_two=model.powers_of_two,
        per_node=model.per_node,
        resize_cost_s=model.resize_cost_s,
        template=_build_template(model.template),
    )


def _build_server(model: schema.ServerModel) -> ServerSpec:
    return ServerSpec(
        replicas=Replicas(
            minimum=model.min_replicas,
            maximum=model.min_replicas if model.max_replicas is None else model.max_replicas,
            pinned=model.replicas,
        ),
        trainers_per_server=model.trainers_per_server,
        template=_build_template(model.template),
    )


def _build_master(model: schema.MasterModel) -> MasterSpec:
    if model.template is None:
        template = PodTemplate(
            container="master",
            command=(),
            env=(),
            working_dir=None,
            requests=_with_pod(MASTER_REQUESTS),
            container_port=None,
            grace_s=10.0,
            priority_class=None,
        )
    else:
        template = _build_template(model.template)
    return MasterSpec(replicas=model.replicas, template=template)


def _build_template(model: PodTemplateModel) -> PodTemplate:
    container = model.spec.containers[0]
    return PodTemplate(
        container=container.name,
        command=(*container.command, *container.args),
        env=tuple((variable.name, variable.value) for variable in container.env),
        working_dir=container.working_dir,
        requests=_with_pod(_requests(container.resources.requests, container.resources.limits)),
        container_port=container.ports[0].container_port if container.ports else None,
        grace_s=model.spec.grace_s,
        priority_class=model.spec.priority_class,
    )


def _requests(requests: Amounts, limits: Amounts) -> Resources:
    """As Kubernetes: a limit without a request is the request."""
    cpu = requests.cpu if requests.cpu is not None else limits.cpu
    memory = requests.memory if requests.memory is not None else limits.memory
    gpus = requests.gpu_count if requests.gpu_count is not None else limits.gpu_count
    return Resources(cpu_milli=cpu or 0, memory_bytes=memory or 0, gpu_count=gpus or 0)


def _with_pod(requests: Resources) -> Resources:
    return requests + Resources(extended=(("pods", 1),))


def _job_notices(job: TrainingJob) -> list[str]:
    notices = []
    if job.master.replicas > 1:
        notices.append(f"master.replicas {job.master.replicas} is accepted; this version runs 1 and restarts it")
    if job.server is not None and job.server.replicas.maximum > job.server.replicas.minimum:
        notices.append(f"parameter servers stay at minReplicas {job.server.replicas.minimum} in this version")
    return notices
