"""What `edl what-if --submit FILE` reads for a cluster: jobs and Deployments as the operator would read them there."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.places import PlannedSubmission
from autoscaler.clusters.kubernetes.parsing.deployment_objects import read_workload
from autoscaler.clusters.kubernetes.parsing.priority_classes import PriorityClasses
from autoscaler.clusters.kubernetes.parsing.training_jobs import planned_job, read_job
from autoscaler.domain import Job, Workload
from autoscaler.errors import InvalidSpecError
from autoscaler.manifests.documents import read_documents


def read_cluster_submission(file: Path, *, namespace: str, classes: PriorityClasses, now_s: float) -> PlannedSubmission:
    """The file's TrainingJobs and Deployments, in `namespace` where they name none.  Raises CommandError."""
    documents, refusals = read_documents(file)
    if refusals:
        first = refusals[0]
        raise CommandError(Exit.REFUSED, f"{file}:{first.line}: {first.problem} ({first.hint})")
    jobs: list[Job] = []
    workloads: list[Workload] = []
    for document in documents:
        raw: dict[str, Any] = copy.deepcopy(dict(document.content))
        raw["metadata"] = {"namespace": namespace, **(raw.get("metadata") or {})}
        match raw.get("kind"):
            case "TrainingJob":
                jobs.append(_job(file, raw, classes, now_s))
            case "Deployment":
                if (workload := read_workload(raw, None, classes)) is not None:
                    workloads.append(workload)
            case _:
                pass  # Services and the like take no room
    if not jobs and not workloads:
        raise CommandError(Exit.REFUSED, f"{file} holds no TrainingJob and no Deployment: there is nothing to submit")
    return PlannedSubmission(jobs=tuple(jobs), workloads=tuple(workloads))


def _job(file: Path, raw: dict[str, Any], classes: PriorityClasses, now_s: float) -> Job:
    try:
        job = read_job(raw)
    except InvalidSpecError as error:
        raise CommandError(Exit.REFUSED, f"{file}: {error}") from None
    priority = classes.value_of(job.spec.priority_class)
    if priority is None:
        known = ", ".join(sorted(classes.by_name)) or "none"
        told = f"spec.priorityClassName: there is no class {job.spec.priority_class}; the cluster has {known}"
        raise CommandError(Exit.REFUSED, f"{file}: {told}")
    return planned_job(job, priority=priority, offset_s=now_s)
