"""Variables that EDL sets for a pod of a job, version 1; docs/environment.md is the published list.

A pod inherits the environment of `edl run` (`machine.process_environment`), then gets what its template says, and at
last these variables, which nothing overrides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autoscaler.clusters.local.machine.process_environment import device_list
from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.domain import Role
from autoscaler.jobs.server_count import SPARE_ORDINALS
from autoscaler.manifests.api_types import PodTemplate, ReplicaBounds, ServerRole, TrainingJob

ENVIRONMENT_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """Where a job's parts meet: `unix:PATH`, of the servers a folder; without `etcd` masters keep state in memory."""

    master: str
    servers: str
    etcd: str
    checkpoint_uri: str
    token_file: Path
    token: str = field(repr=False)  # what the file holds
    history: str = ""  # of what the job commits where it has no other one (`_master_environment`)
    is_claimed: bool = True  # the checkpoint folder, by this run: no other one writes there


def web_environment(pod: LocalPod) -> dict[str, str]:
    """A web pod: its name, and the port that it is to serve on."""
    named = {"EDL_NAME": pod.name, "HOSTNAME": pod.name}
    return named | ({"PORT": str(pod.port)} if pod.port is not None else {}) | _gpus(pod)


def job_environment(pod: LocalPod, job: TrainingJob, place: JobPlace) -> dict[str, str]:
    """A pod of a job, any role."""
    told = {
        "EDL_ENV_VERSION": ENVIRONMENT_VERSION,
        "EDL_JOB": job.name,
        "EDL_ROLE": pod.role,
        "EDL_NAME": pod.name,
        "EDL_ORDINAL": str(pod.ordinal),
        "EDL_MASTER": place.master,
        "EDL_GRACE_S": _number(pod.grace_s),
        "EDL_TIER": pod.tier,
        "EDL_TOKEN_FILE": str(place.token_file),
        "EDL_CHECKPOINT_URI": place.checkpoint_uri,
        "EDL_CHECKPOINT_EVERY_S": _number(job.checkpoint.every_s),
        "HOSTNAME": pod.name,
    } | _gpus(pod)
    match pod.role:
        case Role.MASTER:
            return told | _master_environment(job, place)
        case Role.SERVER:
            return told | {"EDL_LISTEN": place.servers}
        case _:
            return told


def _master_environment(job: TrainingJob, place: JobPlace) -> dict[str, str]:
    """Without a history of its own the job goes on in that of its folder, which this run alone has.

    An object store cannot be claimed: another run there would go on in the same history, and each delete the other's.
    """
    servers = ReplicaBounds(minimum=0, maximum=0) if job.server is None else job.server.replicas
    of_servers = {} if job.server is None else _of_servers(job.server)
    return of_servers | {
        "EDL_ETCD_ENDPOINTS": place.etcd,
        "EDL_LISTEN": place.master,
        "EDL_SERVERS": str(servers.minimum),
        "EDL_MAX_SERVERS": str(servers.maximum + SPARE_ORDINALS if servers.maximum else 0),
        "EDL_BACKOFF_LIMIT": str(job.run_policy.backoff_limit),
        "EDL_HISTORY": place.history if job.checkpoint.start or not place.is_claimed else "",
        "EDL_CHECKPOINT_START": job.checkpoint.start,
        "EDL_WHEN_UNREADABLE": job.checkpoint.when_unreadable.value,
    }


def _of_servers(server: ServerRole[PodTemplate]) -> dict[str, str]:
    return {"EDL_AFTER_LOSS": server.after_loss.value, "EDL_COPIES": str(server.copies)}


def _gpus(pod: LocalPod) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": device_list(pod.gpus)}


def _number(value: float) -> str:
    return f"{value:g}"
