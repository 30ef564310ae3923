"""Names of a job's objects.  They are fixed, so that a repeated creation creates nothing twice."""

from __future__ import annotations

from autoscaler.domain import JobName, Role


def job_key(namespace: str, name: str) -> JobName:
    """Return a job's name in views."""
    return JobName(f"{namespace}/{name}")


def split_key(key: str) -> tuple[str, str]:
    """Return namespace and name of a job or pod of a view."""
    namespace, _, name = key.partition("/")
    return namespace, name


def pod_name(job: str, role: Role, ordinal: int) -> str:
    """`digits-trainer-3`."""
    return f"{job}-{role}-{ordinal}"


def master_name(job: str) -> str:
    """Return the name of the master's Deployment and Service."""
    return f"{job}-master"


def master_host(namespace: str, job: str) -> str:
    """Return the host name of a job's master; the resolver's search list adds the cluster domain."""
    return f"{master_name(job)}.{namespace}.svc"


def budget_name(job: str) -> str:
    """Return the name of the PodDisruptionBudget over the core pods."""
    return f"{job}-core"


def authority_secret(job: str) -> str:
    """Return the name of the Secret with the key of the job's certificate authority; no pod mounts it."""
    return f"{job}-authority"


def member_secret(job: str) -> str:
    """Return the name of the Secret with the credentials of trainers and servers."""
    return f"{job}-member"


def master_secret(job: str) -> str:
    """Return the name of the Secret with the masters' credentials, for members and for etcd."""
    return f"{job}-master"


def store_name(namespace: str, job: str, uid: str) -> str:
    """Return `EDL_JOB`: the prefix of the job's durable values in etcd.

    It contains the start of the job's UID.  A job that is deleted and created again starts from its checkpoint folder
    and never meets the values of its predecessor.
    """
    return f"{namespace}.{job}.{uid[:8]}"


def split_store_name(name: str) -> tuple[str, str, str]:
    """Return namespace, job and start of the UID; a namespace and a UID contain no dot."""
    namespace, _, rest = name.partition(".")
    job, _, uid = rest.rpartition(".")
    return namespace, job, uid
