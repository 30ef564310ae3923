"""Conversion of checked models to values: defaults are filled in, and accepted fields without effect get a notice."""

from __future__ import annotations

from typing import Final

from autoscaler.domain import Resources
from autoscaler.manifests import document_schema
from autoscaler.manifests.api_types import (
    TRAINERS_PER_SERVER,
    AfterServerLoss,
    CheckpointSpec,
    GroupShares,
    GroupSpec,
    JobSpec,
    MasterRole,
    Mode,
    PodTemplate,
    PriorityClass,
    ReplicaBounds,
    RunPolicy,
    ServerRole,
    Template,
    TrainerRole,
    TrainingJob,
    VirtualNode,
    WebDeployment,
)
from autoscaler.manifests.pod_schema import PodTemplateModel, ResourceAmounts
from master.api.identities import WhenUnreadable

MASTER_REQUESTS: Final = Resources(cpu_milli=100, memory_bytes=128 << 20)
"""Default requests of a master, which is idle most of the time."""


def build_job(model: document_schema.TrainingJobModel) -> tuple[TrainingJob, tuple[str, ...]]:
    """The job, and a notice for each field that has another meaning in a local run."""
    spec = model.spec
    job = build_spec(
        spec,
        name=model.metadata.name,
        namespace=model.metadata.namespace,
        trainer=build_trainer(spec.trainer, _build_template(spec.trainer.template)),
        server=None if spec.server is None else build_server(spec.server, _build_template(spec.server.template)),
        master=MasterRole(replicas=spec.master.replicas, template=_build_master_template(spec.master)),
    )
    return job, tuple(f"TrainingJob {job.name}: {text}" for text in _job_notices(job))


def build_spec(
    fields: document_schema.JobFields,
    *,
    name: str,
    namespace: str,
    trainer: TrainerRole[Template],
    server: ServerRole[Template] | None,
    master: MasterRole[Template],
) -> JobSpec[Template]:
    """The job of these fields and roles."""
    return JobSpec(
        name=name,
        namespace=namespace,
        priority_class=fields.priority_class,
        weight=fields.weight,
        run_policy=RunPolicy(
            backoff_limit=fields.run_policy.backoff_limit,
            active_deadline_s=fields.run_policy.active_deadline_s,
            ttl_after_finished_s=fields.run_policy.ttl_after_finished_s,
            suspend=fields.run_policy.suspend,
        ),
        trainer=trainer,
        server=server,
        group=None if fields.group is None else _build_group(fields.group),
        master=master,
        checkpoint=CheckpointSpec(
            uri=fields.checkpoint.uri,
            every_s=fields.checkpoint.every_s,
            start=fields.checkpoint.start,
            when_unreadable=WhenUnreadable(fields.checkpoint.when_unreadable),
        ),
        mode=Mode(fields.mode),
        queue_name=fields.queue_name,
    )


def _build_group(fields: document_schema.GroupModel) -> GroupSpec:
    return GroupSpec(global_batch=fields.global_batch, shares=GroupShares(fields.shares))


def build_trainer(sizes: document_schema.TrainerSizes, template: Template) -> TrainerRole[Template]:
    """The trainers; the default step is the trainers of one node."""
    return TrainerRole(
        replicas=ReplicaBounds(minimum=sizes.min_replicas, maximum=sizes.max_replicas, pinned=sizes.replicas),
        step=sizes.step or (1 if sizes.powers_of_two or sizes.sizes else sizes.per_node),
        powers_of_two=sizes.powers_of_two,
        sizes=sizes.sizes or (),
        per_node=sizes.per_node,
        resize_cost_s=sizes.resize_cost_s,
        min_run_s=sizes.min_run_s,
        idle_s=sizes.idle_s,
        efficiency=sizes.efficiency,
        template=template,
    )


def build_server(sizes: document_schema.ServerSizes, template: Template) -> ServerRole[Template]:
    """The parameter servers; without a maximum, the minimum is their number."""
    return ServerRole(
        replicas=ReplicaBounds(
            minimum=sizes.min_replicas,
            maximum=sizes.min_replicas if sizes.max_replicas is None else sizes.max_replicas,
            pinned=sizes.replicas,
        ),
        trainers_per_server=sizes.trainers_per_server or TRAINERS_PER_SERVER,
        is_ratio_measured=sizes.trainers_per_server is None,
        after_loss=AfterServerLoss(sizes.after_loss),
        copies=sizes.copies,
        template=template,
    )


def build_deployment(model: document_schema.DeploymentModel) -> WebDeployment:
    return WebDeployment(
        name=model.metadata.name,
        namespace=model.metadata.namespace,
        replicas=model.spec.replicas,
        template=_build_template(model.spec.template),
    )


def build_class(model: document_schema.PriorityClassModel) -> PriorityClass:
    return PriorityClass(
        name=model.metadata.name,
        value=model.value,
        is_default=model.global_default,
        may_preempt=model.preemption_policy != "Never",
    )


def build_nodes(model: document_schema.LocalClusterModel) -> tuple[VirtualNode, ...]:
    """The virtual nodes; those of a `count` above 1 are numbered from 1."""
    return tuple(
        make_virtual_node(
            node.name if node.count == 1 else f"{node.name}-{number}",
            Resources(cpu_milli=node.cpu, memory_bytes=node.memory, gpu_count=node.gpu_count),
            pod_limit=node.pod_limit,
        )
        for node in model.spec.nodes
        for number in range(1, node.count + 1)
    )


def make_virtual_node(name: str, capacity: Resources, *, pod_limit: int = 110) -> VirtualNode:
    """A node of this capacity that holds at most `pod_limit` pods (110: the kubelet's default)."""
    return VirtualNode(name=name, capacity=capacity + Resources(extended=(("pods", pod_limit),)))


def _build_master_template(model: document_schema.MasterModel) -> PodTemplate:
    if model.template is not None:
        return _build_template(model.template)
    return PodTemplate(
        container="master",
        command=(),
        env=(),
        working_dir=None,
        requests=_with_pod(MASTER_REQUESTS),
        container_port=None,
        grace_s=10.0,
        priority_class=None,
    )


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


def _requests(requests: ResourceAmounts, limits: ResourceAmounts) -> Resources:
    """Requests as Kubernetes defaults them: a limit without a request is the request."""
    cpu = requests.cpu if requests.cpu is not None else limits.cpu
    memory = requests.memory if requests.memory is not None else limits.memory
    gpus = requests.gpu_count if requests.gpu_count is not None else limits.gpu_count
    return Resources(cpu_milli=cpu or 0, memory_bytes=memory or 0, gpu_count=gpus or 0)


def _with_pod(requests: Resources) -> Resources:
    return requests + Resources(extended=(("pods", 1),))


def _job_notices(job: TrainingJob) -> list[str]:
    notices = [text] if (text := job.notice_of_no_model) else []
    if job.master.replicas > 1:
        notices.append(
            f"master.replicas {job.master.replicas} applies on Kubernetes; a local run has one master and a standby"
        )
    if job.mode is Mode.OBSERVE:
        notices.append("mode observe applies on Kubernetes; a local run runs the job")
    if job.server is not None and job.server.may_be_short_of_copies:
        notices.append(
            f"parameterServer.copies {job.server.copies} needs as many servers, and minReplicas "
            f"{job.server.replicas.minimum} allows fewer: then lost buckets are restored from the last checkpoint"
        )
    return notices
