"""The planner's `Job` of a submitted job, before it has any pod.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from autoscaler.domain import Job, JobName, JobState, MasterSpec, Role, ServerSpec, Shape, TrainerSpec, Trait
from autoscaler.manifests.api_types import JobSpec, Template, TrainingJob

Traits = Mapping[Role, frozenset[Trait]]
NO_TRAITS: Final[Traits] = MappingProxyType(dict.fromkeys((Role.TRAINER, Role.SERVER, Role.MASTER), frozenset[Trait]()))


def planned_job(job: TrainingJob, *, priority: int, pinned: int, submitted_at_s: float) -> Job:
    """The planner's job where a pod is a process.  `pinned`: the user's fixed size, 0 for EDL's choice.

    It has one master whatever its file says, since a local run starts a lost master again at once.
    """
    shapes = {
        Role.TRAINER: Shape(requests=job.trainer.template.requests),
        Role.MASTER: Shape(requests=job.master.template.requests),
    }
    if job.server is not None:
        shapes[Role.SERVER] = Shape(requests=job.server.template.requests)
    return build_planner_job(
        job,
        name=JobName(job.name),
        shapes=shapes,
        masters=1,
        grace_s=job.trainer.template.grace_s,
        server_grace_s=0.0 if job.server is None else job.server.template.grace_s,
        priority=priority,
        pinned=pinned,
        submitted_at_s=submitted_at_s,
    )


def build_planner_job(
    spec: JobSpec[Template],
    *,
    name: JobName,
    shapes: Mapping[Role, Shape],
    masters: int,
    grace_s: float,
    server_grace_s: float,
    priority: int,
    pinned: int,
    submitted_at_s: float,
    priority_class: str = "",
    traits: Traits = NO_TRAITS,
) -> Job:
    """The planner's job of these shapes.  Raises InvalidSpecError for sizes that contradict each other.

    Quotas select pods by `priority_class` and `traits`.
    """
    trainer, server = spec.trainer, spec.server
    return Job(
        name=name,
        namespace=spec.namespace,
        trainer=TrainerSpec(
            shape=shapes[Role.TRAINER],
            min_replicas=trainer.replicas.minimum,
            max_replicas=trainer.replicas.maximum,
            step=trainer.step,
            powers_of_two=trainer.powers_of_two,
            sizes=trainer.sizes,
            per_node=trainer.per_node,
            pinned_replicas=pinned,
            min_run_s=trainer.min_run_s,
            efficiency=trainer.efficiency,
            traits=traits[Role.TRAINER],
        ),
        master=MasterSpec(shape=shapes[Role.MASTER], replicas=masters, traits=traits[Role.MASTER]),
        servers=None
        if server is None
        else ServerSpec(
            shape=shapes[Role.SERVER],
            min_replicas=server.replicas.minimum,
            max_replicas=server.replicas.maximum,
            trainers_per_server=server.trainers_per_server,
            pinned_replicas=server.replicas.pinned,
            grace_s=server_grace_s,
            prefers_anti_affinity=server.copies > 1,
            traits=traits[Role.SERVER],
        ),
        priority=priority,
        priority_class=priority_class,
        weight=spec.weight,
        resize_cost_s=trainer.resize_cost_s,
        submitted_at_s=submitted_at_s,
        state=JobState.SUSPENDED if spec.run_policy.suspend else JobState.ACTIVE,
        grace_s=grace_s,
    )
