"""Submission: the documents of a run's files as objects of its API server.  Pure.

The files have been checked (`manifests`).  What a cluster's own defaults would fill in is filled in here, and what
means nothing on one machine is left out, so that the operator reads a job as on any cluster.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PRIORITY_CLASSES, TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.objects.fields import part
from autoscaler.manifests.api_types import CORE_CLASS, Manifests, TrainingJob
from autoscaler.manifests.ignored_fields import template_paths, value_at

IMAGE: Final = "local"
"""Named in containers because an object needs an image; a process runs none."""


def build_objects(manifests: Manifests, checkpoints: Path) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """The bodies to create, in this order.  `checkpoints`: for jobs that name no folder of their own."""
    jobs = {job.name: job for job in manifests.jobs}
    for content in sorted(manifests.contents, key=lambda content: _ORDER.get(content["kind"], 0)):
        body = _with_defaults(content)
        match content["kind"]:
            case "PriorityClass":
                yield PRIORITY_CLASSES, body
            case "Deployment":
                yield DEPLOYMENTS, body
            case "TrainingJob":
                yield TRAINING_JOBS, _job_body(body, jobs[body["metadata"]["name"]], checkpoints)


def check_objects(objects: Iterable[tuple[Kind, Mapping[str, Any]]]) -> None:
    """Raise InvalidSpecError for a job that the operator would refuse, and would so leave waiting for ever."""
    from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job  # noqa: PLC0415 - with the operator

    for kind, body in objects:
        if kind == TRAINING_JOBS:
            parse_job(body)


_ORDER: Final = {"PriorityClass": 1, "Deployment": 2, "TrainingJob": 3}
"""Classes come before the pods that name them, and web services before the jobs that use what they leave."""


def _with_defaults(content: Mapping[str, Any]) -> dict[str, Any]:
    body = copy.deepcopy(dict(content))
    if body["kind"] == "PriorityClass":
        return body
    body["metadata"].setdefault("namespace", "default")
    for path in template_paths(body["kind"]):
        for container in value_at(body, (*path, "spec", "containers")) or ():
            _fill_container(container)
    return body


def _fill_container(container: dict[str, Any]) -> None:
    if container.get("command") or container.get("args"):
        container["image"] = IMAGE  # without a program of its own it is EDL's, in EDL's image
    for variable in container.get("env") or ():
        variable.setdefault("value", "")
    for amounts in (container.get("resources") or {}).values():
        amounts.update({name: str(amount) for name, amount in (amounts or {}).items() if amount is not None})


def _job_body(body: dict[str, Any], job: TrainingJob, checkpoints: Path) -> dict[str, Any]:
    """The job; the command line may have set where it begins."""
    spec, checkpoint = body["spec"], job.checkpoint
    spec.setdefault("priorityClassName", CORE_CLASS)
    spec.pop("mode", None)
    if spec.get("master") is not None:
        spec["master"] = {**spec["master"], "replicas": 1}
    if spec.get("parameterServer") is not None:
        servers = spec["parameterServer"]
        servers.setdefault("maxReplicas", servers["minReplicas"])
    spec["checkpoint"] = {
        **part(spec, "checkpoint"),
        "uri": checkpoint.uri or str(checkpoints / job.name),
        "start": checkpoint.start,
        "whenUnreadable": checkpoint.when_unreadable.value,
    }
    return body
