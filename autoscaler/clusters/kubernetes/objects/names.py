"""How everything that belongs to a job is called.  A name is the promise that a repeated create makes nothing twice."""

from __future__ import annotations

from autoscaler.domain import JobName, PodName, Role


def job_key(namespace: str, name: str) -> JobName:
    """How views name a job."""
    return JobName(f"{namespace}/{name}")


def split_key(key: str) -> tuple[str, str]:
    """Namespace and name of a job or pod of a view."""
    namespace, _, name = key.partition("/")
    return namespace, name


def pod_name(job: str, role: Role, ordinal: int) -> str:
    """`digits-trainer-3`."""
    return f"{job}-{role}-{ordinal}"


def pod_key(namespace: str, job: str, role: Role, ordinal: int) -> PodName:
    """How views name a trainer or server."""
    return PodName(f"{namespace}/{pod_name(job, role, ordinal)}")


def master_name(job: str) -> str:
    """The master's Deployment and its Service."""
    return f"{job}-master"


def master_host(namespace: str, job: str) -> str:
    """Where a job's pods find its master; the domain of the cluster is left to the resolver's search list."""
    return f"{master_name(job)}.{namespace}.svc"


def budget_name(job: str) -> str:
    """The PodDisruptionBudget over the core."""
    return f"{job}-core"


def authority_secret(job: str) -> str:
    """Holds the key of the job's certificate authority; no pod mounts it."""
    return f"{job}-authority"


def member_secret(job: str) -> str:
    """What trainers and servers are known by."""
    return f"{job}-member"


def master_secret(job: str) -> str:
    """What the job's masters are known by, to members and to etcd."""
    return f"{job}-master"


def store_name(namespace: str, job: str, uid: str) -> str:
    """`EDL_JOB`: what the job's durable values lie under in etcd.

    With the start of its UID, so that a job that is deleted and made again under its name starts afresh from its
    checkpoint folder and never meets what the other one left.
    """
    return f"{namespace}.{job}.{uid[:8]}"


def split_store_name(name: str) -> tuple[str, str, str]:
    """Namespace, job and start of its UID: a namespace holds no dot, nor does a UID."""
    namespace, _, rest = name.partition(".")
    job, _, uid = rest.rpartition(".")
    return namespace, job, uid
