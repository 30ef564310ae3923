"""Environment variables of a job's pods on Kubernetes: the same published list as on one machine (docs/environment.md).

EDL's variables come first, so that the user's may refer to them, and override the user's of the same name, which a new
job is refused for (`manifests.edl_variables`).  Addresses are known only when the pod runs; they come through the
downward API.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from autoscaler.clusters.kubernetes.builders.build_settings import EtcdAccess
from autoscaler.clusters.kubernetes.objects.fields import Raw, parts, text
from autoscaler.clusters.kubernetes.objects.names import master_host, store_name
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.kubernetes.parsing.role_templates import RoleTemplate
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Role, Tier
from autoscaler.jobs.server_count import SPARE_ORDINALS

ENVIRONMENT_VERSION: Final = "1"
MASTER_PORT: Final = 7164
METRICS_PORT: Final = 7165
DATA_PORT: Final = 7166
"""Of parameter servers, and of the trainers of a group."""

IDENTITY_FOLDER: Final = "/var/run/edl/identity"
TOKEN: Final = "token"  # noqa: S105  a key of a secret, no secret
ETCD_KEYS: Final = {
    "ca": "etcd-ca.crt",
    "certificate": "etcd-tls.crt",
    "key": "etcd-tls.key",
}
SHARED_PASSWORD: Final = "etcd-password"  # noqa: S105  as above
OWN_PASSWORD: Final = "etcd-own-password"  # noqa: S105
"""A key of its own: running masters continue to use the shared password."""

_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def member_variables(job: KubeJob, role: Role, *, ordinal: int, tier: Tier, grace_s: float) -> list[dict[str, Any]]:
    """Return the variables of a trainer or server."""
    values = _job_variables(job, role) | {
        "EDL_ORDINAL": str(ordinal),
        "EDL_TIER": tier.value,
        "EDL_GRACE_S": _number(grace_s),
    }
    values |= _group_variables(job)
    is_listening = serves_peers(job, role)
    if is_listening:
        values["EDL_LISTEN"] = f"0.0.0.0:{DATA_PORT}"
    variables = [_from_field("EDL_NAME", "metadata.name"), *_as_env_list(values)]
    return [*variables, _from_field("EDL_ADVERTISE", "status.podIP")] if is_listening else variables


def serves_peers(job: KubeJob, role: Role) -> bool:
    """True if other members connect to the data port of a pod of this role: of servers, and of a group's trainers."""
    return role is Role.SERVER or (role is Role.TRAINER and job.spec.group is not None)


def master_variables(job: KubeJob, etcd: EtcdAccess) -> list[dict[str, Any]]:
    """Return the variables of a master."""
    spec = job.spec
    values = _job_variables(job, Role.MASTER) | {
        "EDL_LISTEN": f"0.0.0.0:{MASTER_PORT}",
        "EDL_METRICS_LISTEN": f"0.0.0.0:{METRICS_PORT}",
        "EDL_CHECKPOINT_EVERY_S": _number(spec.checkpoint.every_s),
        "EDL_SERVERS": str(0 if spec.server is None else spec.server.replicas.minimum),
        "EDL_MAX_SERVERS": str(0 if spec.server is None else spec.server.replicas.maximum + SPARE_ORDINALS),
        "EDL_BACKOFF_LIMIT": str(spec.run_policy.backoff_limit),
        "EDL_MASTERS": str(spec.master.replicas),
        "EDL_ETCD_ENDPOINTS": etcd.endpoints,
        "EDL_HISTORY": job.uid,  # differs when the job is deleted and created again
        "EDL_CHECKPOINT_START": spec.checkpoint.start,
        "EDL_WHEN_UNREADABLE": spec.checkpoint.when_unreadable.value,
    }
    files = {
        "EDL_ETCD_CA_FILE": etcd.ca and ETCD_KEYS["ca"],
        "EDL_ETCD_CERT_FILE": etcd.certificate and ETCD_KEYS["certificate"],
        "EDL_ETCD_KEY_FILE": etcd.key and ETCD_KEYS["key"],
        "EDL_ETCD_PASSWORD_FILE": password_file(etcd) if etcd.password or etcd.is_separate else "",
    }
    values |= {name: f"{IDENTITY_FOLDER}/{file}" for name, file in files.items() if file}
    if spec.server is not None:
        values |= {"EDL_AFTER_LOSS": spec.server.after_loss.value, "EDL_COPIES": str(spec.server.copies)}
    values |= _group_variables(job)
    if spec.group is not None:
        values["EDL_SHARES"] = spec.group.shares.value
    if etcd.user or etcd.is_separate:
        values["EDL_ETCD_USER"] = store_name(job.namespace, job.name, job.uid) if etcd.is_separate else etcd.user
    return [_from_field("EDL_NAME", "metadata.name"), *_as_env_list(values)]


def password_file(etcd: EtcdAccess) -> str:
    """Return the key of the etcd password in the master's Secret: the job's own password, or the shared one."""
    return OWN_PASSWORD if etcd.is_separate else SHARED_PASSWORD


def merge_variables(edl_variables: Sequence[Raw], container: Raw, template: RoleTemplate) -> list[dict[str, Any]]:
    """Return EDL's variables, the user's, and thread counts by the CPU request unless either sets them."""
    names = {text(variable, "name") for variable in edl_variables}
    own = [dict(variable) for variable in parts(container, "env") if text(variable, "name") not in names]
    names |= {text(variable, "name") for variable in own}
    threads = str(max(1, math.ceil(pod_request(template.spec).cpu_milli / 1000)))
    defaults = {"PYTHONUNBUFFERED": "1"} | dict.fromkeys(_THREAD_VARIABLES, threads)
    missing = {name: value for name, value in defaults.items() if name not in names}
    return [*map(dict, edl_variables), *own, *_as_env_list(missing)]


def _group_variables(job: KubeJob) -> dict[str, str]:
    """Return what the master and the trainers of a group are told; nothing for other jobs."""
    group = job.spec.group
    if group is None:
        return {}
    batch = {} if group.global_batch is None else {"EDL_GLOBAL_BATCH": str(group.global_batch)}
    return {"EDL_GROUP": "1"} | batch


def _job_variables(job: KubeJob, role: Role) -> dict[str, str]:
    return {
        "EDL_ENV_VERSION": ENVIRONMENT_VERSION,
        "EDL_JOB": store_name(job.namespace, job.name, job.uid),
        "EDL_ROLE": role.value,
        "EDL_MASTER": f"{master_host(job.namespace, job.name)}:{MASTER_PORT}",
        "EDL_CHECKPOINT_URI": job.spec.checkpoint.uri,
        "EDL_TOKEN_FILE": f"{IDENTITY_FOLDER}/{TOKEN}",
        "EDL_TLS_DIR": IDENTITY_FOLDER,
    }


def _as_env_list(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _number(value: float) -> str:
    return f"{value:g}"
