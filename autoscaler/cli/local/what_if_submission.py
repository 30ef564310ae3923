"""A file of jobs as the planner would see it in a local run: for `edl what-if --submit FILE`, which starts nothing."""

from __future__ import annotations

from pathlib import Path

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.place_values import PlannedSubmission
from autoscaler.domain import Shape, Workload, WorkloadName
from autoscaler.manifests import InvalidManifestError, parse_files
from autoscaler.manifests.planner_job import planned_job


def read_local_submission(file: Path, now_s: float) -> PlannedSubmission:
    """The file's jobs, submitted at `now_s`, and its deployments.  Raises CommandError."""
    try:
        manifests = parse_files([file])
    except InvalidManifestError as error:
        raise CommandError(Exit.REFUSED, str(error)) from None
    workloads = [
        Workload(
            name=WorkloadName(deployment.name),
            shape=Shape(requests=deployment.template.requests),
            priority=manifests.priority_of(deployment.template.priority_class),
            desired_replicas=deployment.replicas,
        )
        for deployment in manifests.deployments
    ]
    jobs = [
        planned_job(
            job,
            priority=manifests.priority_of(job.priority_class),
            pinned=job.trainer.replicas.pinned,
            submitted_at_s=now_s,
        )
        for job in manifests.jobs
    ]
    return PlannedSubmission(jobs=tuple(jobs), workloads=tuple(workloads))
