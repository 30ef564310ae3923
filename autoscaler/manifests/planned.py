"""A job file's job as the planner sees it, before it has lived: pure."""

from __future__ import annotations

from autoscaler.domain import Job, JobName, JobState, MasterSpec, ServerSpec, Shape, TrainerSpec
from autoscaler.manifests.values import TrainingJob


def planned_job(job: TrainingJob, *, priority: int, pinned: int, submitted_at_s: float) -> Job:
    """Return the planner's job.  `pinned`: the size that the user holds it at, 0 for EDL's choice."""
    trainer, server = job.trainer, job.server
    return Job(
        name=JobName(job.name),
        namespace=job.namespace,
        trainer=TrainerSpec(
            shape=Shape(requests=trainer.template.requests),
            min_replicas=trainer.replicas.minimum,
            max_replicas=trainer.replicas.maximum,
            step=trainer.step,
            powers_of_two=trainer.powers_of_two,
            per_node=trainer.per_node,
            pinned_replicas=pinned,
        ),
        master=MasterSpec(shape=Shape(requests=job.master.template.requests)),
        servers=None
        if server is None
        else ServerSpec(
            shape=Shape(requests=server.template.requests),
            min_replicas=server.replicas.minimum,
            max_replicas=server.replicas.maximum,
            trainers_per_server=server.trainers_per_server,
            pinned_replicas=server.replicas.pinned,
        ),
        priority=priority,
        weight=job.weight,
        resize_cost_s=trainer.resize_cost_s,
        submitted_at_s=submitted_at_s,
        state=JobState.SUSPENDED if job.run_policy.suspend else JobState.ACTIVE,
        grace_s=trainer.template.grace_s,
    )
