"""The TrainingJob of `edl launch`: what was said on the command line as a document of a job file.  Pure.

`parsing` checks the document as it checks any file, so that what `--dry-run` prints is what `edl run` takes.
`option_of` names the option that a refused field came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

LONGEST_NAME: Final = 50
"""As `document_schema` has it, for names of pods are made from a job's."""

SERVER_REQUESTS: Final[Mapping[str, str]] = {"cpu": "500m", "memory": "256Mi"}
"""Requests of one parameter server: of a model that fits into memory many times; a larger one needs a file."""

_OPTIONS: Final[Mapping[str, str]] = {
    "metadata.name": "--name",
    "metadata.namespace": "--namespace",
    "spec.parameterServer": "--servers",
    "spec.group.globalBatch": "--global-batch",
    "spec.group": "--group",
    "spec.checkpoint.everySeconds": "--checkpoint-every",
    "spec.checkpoint": "--checkpoint",
    "spec.runPolicy": "--max-restarts",
    "spec.trainer.template.spec.containers[0].env": "--env",
    "spec.trainer.template.spec.containers[0].image": "--image",
    "spec.trainer.template.spec.containers[0].resources.requests.cpu": "--cpu",
    "spec.trainer.template.spec.containers[0].resources.requests.memory": "--memory",
    "spec.trainer.template.spec.containers[0].resources.limits": "--gpu",
    "spec.trainer.template.spec.containers[0].command": "SCRIPT ARGS...",
    "spec.trainer.sizes": "--sizes",
    "spec.trainer": "--trainers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRange:
    """Least and most of something; equal for a fixed number."""

    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedJob:
    """Job as the command line of `edl launch` describes it.

    `cpu` and `memory`: Kubernetes quantities, of each trainer; `gpu_count` likewise.  `sizes`: allowed numbers of
    trainers; empty for all of the range.  `servers`: None for a job without parameter servers.  `global_batch`: records
    of a group's step; None: the script names them.  `max_restarts`: trainer failures in a row that the job survives.
    `image` and `namespace`: empty on this machine.
    """

    name: str
    command: tuple[str, ...]
    trainers: CountRange
    cpu: str
    memory: str
    gpu_count: int = 0
    sizes: tuple[int, ...] = ()
    servers: CountRange | None = None
    is_group: bool = False
    global_batch: int | None = None
    env: tuple[tuple[str, str], ...] = ()
    checkpoint_uri: str = ""
    checkpoint_every_s: float | None = None
    max_restarts: int = 3
    image: str = ""
    namespace: str = ""


def build_document(job: LaunchedJob, *, has_values: bool = True) -> dict[str, Any]:
    """The TrainingJob, as a job file would have it: plain values alone, defaults left out.

    Without `has_values` its variables have names alone, for a record of the job that others may read.
    """
    checkpoint: dict[str, Any] = {"uri": job.checkpoint_uri} if job.checkpoint_uri else {}
    if job.checkpoint_every_s is not None:
        checkpoint["everySeconds"] = job.checkpoint_every_s
    spec: dict[str, Any] = {
        # backoffLimit is the failure in a row that ends the job, so one more than the failures that it survives
        "runPolicy": {"backoffLimit": job.max_restarts + 1},
        "trainer": {
            "minReplicas": job.trainers.least,
            "maxReplicas": job.trainers.most,
            "template": {"spec": {"containers": [_trainer_container(job, has_values=has_values)]}},
        },
    }
    if job.sizes:
        spec["trainer"]["sizes"] = list(job.sizes)
    if job.is_group:
        spec["group"] = {} if job.global_batch is None else {"globalBatch": job.global_batch}
    if job.servers is not None:
        server = {"name": "server", "resources": {"requests": dict(SERVER_REQUESTS)}}
        spec["parameterServer"] = {
            "minReplicas": job.servers.least,
            "maxReplicas": job.servers.most,
            "template": {"spec": {"containers": [server]}},
        }
    if checkpoint:
        spec["checkpoint"] = checkpoint
    metadata = {"name": job.name} | ({"namespace": job.namespace} if job.namespace else {})
    return {"apiVersion": "edl.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}


def _trainer_container(job: LaunchedJob, *, has_values: bool) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": job.cpu, "memory": job.memory}}
    if job.gpu_count:
        resources["limits"] = {"nvidia.com/gpu": job.gpu_count}
    container: dict[str, Any] = {"name": "trainer"}
    if job.image:
        container["image"] = job.image
    container["command"] = list(job.command)
    if job.env:
        container["env"] = [{"name": name} | ({"value": value} if has_values else {}) for name, value in job.env]
    container["resources"] = resources
    return container


def hide_values(words: Sequence[str], env: Iterable[tuple[str, str]]) -> list[str]:
    """The command line, for a record of it, with the names of variables alone: their values may be secrets."""
    hidden: dict[str, str] = {}
    for name, value in env:
        hidden |= {f"{name}={value}": name, f"--env={name}={value}": f"--env={name}"}
    return [hidden.get(word, word) for word in words]


def job_name_of(program: str) -> str:
    """A job's legal name by its script or module: the file's name, or the last part of the module's."""
    last = re.split(r"[/\\]", program.removesuffix(".py"))[-1].rpartition(".")[2]
    slug = re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-").lstrip("0123456789-")
    return slug[:LONGEST_NAME].rstrip("-") or "job"


def option_of(path: str) -> str:
    """The option of `edl launch` that sets this field; empty for a field that no option sets."""
    return next((option for field, option in _OPTIONS.items() if _is_within(path, field)), "")


def _is_within(path: str, field: str) -> bool:
    return path == field or path.startswith((f"{field}.", f"{field}["))
