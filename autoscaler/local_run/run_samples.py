"""Samples of a run over time: a snapshot shortened to the numbers of the figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from autoscaler.domain import Role
from autoscaler.local_run.run_snapshot import DeploymentLine, JobLine, NodeLine, RunSnapshot

SAMPLE_EVERY_S: Final = 0.25
_KINDS: Final = {Role.EXTERNAL: "web", Role.TRAINER: "trainers", Role.SERVER: "servers", Role.MASTER: "masters"}


def sample_of(snapshot: RunSnapshot) -> dict[str, Any]:
    """One line of samples.jsonl, `t_s` apart: millicores per node and kind, sizes and progress per job."""
    return {
        "nodes": {node.name: _node(node) for node in snapshot.nodes},
        "jobs": {job.name: _job(job) for job in snapshot.jobs},
        "workloads": {deployment.name: _workload(deployment) for deployment in snapshot.deployments},
    }


def _node(node: NodeLine) -> Mapping[str, int]:
    used = dict.fromkeys(_KINDS.values(), 0)
    for pod in node.pods:
        used[_KINDS[pod.role]] += pod.requests.cpu_milli
    return {"capacity_millicores": node.capacity.cpu_milli, **used}


def _job(job: JobLine) -> Mapping[str, Any]:
    progress = job.progress
    return {
        "condition": job.condition,
        "trainers": job.now,
        "target": job.target,
        "min": job.min,
        "max": job.max,
        "servers": job.servers,
        "servers_target": job.servers_target,
        "committed": progress.committed if progress else 0,
        "done": progress.done if progress else 0,
        "total": progress.total if progress else 0,
        "epoch": progress.epoch if progress else 0,
        "loss": _finite(progress.loss) if progress else None,
        "samples_per_s": _finite(progress.samples_per_s) if progress else 0.0,
    }


def _finite(value: float | None) -> float | None:
    """A diverged loss is no number, and JSON has no word for it."""
    return value if value is not None and math.isfinite(value) else None


def _workload(deployment: DeploymentLine) -> Mapping[str, int]:
    return {
        "desired": deployment.wanted,
        "ready": deployment.ready,
        "pending": deployment.pending,
        "starting": deployment.starting,
    }
