"""Labels, annotations and the scheduling gate of EDL.

A pod's role, ordinal, tier and grade are labels that are fixed at its creation, so that a new leader learns everything
about a pod from the pod.
"""

from __future__ import annotations

from typing import Final

from autoscaler.domain import Role, Tier

JOB: Final = "edl.dev/job"
ROLE: Final = "edl.dev/role"
ORDINAL: Final = "edl.dev/ordinal"
TIER: Final = "edl.dev/tier"
GRADE: Final = "edl.dev/grade"

GATE: Final = "edl.dev/gang"
"""The scheduling gate of a gang's core pods (`beside-the-scheduler.md` 8)."""

OPT_OUT: Final = "edl.dev/opt-out"
"""Node label, with any value: EDL places nothing on the node (`beside-the-scheduler.md` 20)."""

DRAIN: Final = "edl.dev/drain"
"""Node label, with any value: EDL's pods leave the node."""

MASTER_NODES: Final = "edl.dev/master-nodes"
"""An annotation on a gang's pods: the nodes reserved for the masters, which are created once the gang is bound."""

COMPARE: Final = "edl.dev/compare-replicas"
"""An annotation on a TrainingJob: the name of a request for a comparison of its replicas (ADR 0291)."""

REPLACES: Final = "edl.dev/replaces"
"""An annotation on a server's pod: NAME/UID of the server that it replaces (ADR 0118)."""

IDLE_RECLAIM: Final = "edl.dev/idle-reclaim"
"""An annotation on a pod of others, its Deployment or StatefulSet, or its Namespace: after so long without use its GPUs
may be given back, `30m`; the word off: they may not (ADR 0288, 0260).
"""

IDLE_MINIMUM: Final = "edl.dev/idle-min-replicas"
"""An annotation at the same places: how many replicas EDL leaves to the Deployment or StatefulSet (ADR 0293)."""

KEEP_UNTIL: Final = "edl.dev/keep-until"
"""An annotation on such a pod: until this time it is left alone (`edl keep`)."""

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own annotation on a pod: of the Ready pods of a ReplicaSet the cheapest leaves first; 0 unless set."""

FORMER_COST: Final = "edl.dev/former-deletion-cost"
"""An annotation that EDL writes on a pod of others together with the lowest deletion cost: the cost that it had; empty:
none.  So whoever leads next can take it back (ADR 0293).
"""

API_GROUP: Final = "edl.dev"
API_VERSION: Final = "edl.dev/v1alpha1"


def job_labels(job: str) -> dict[str, str]:
    """Return the labels of every object of a job."""
    return {
        "app.kubernetes.io/name": "trainingjob",
        "app.kubernetes.io/instance": job,
        "app.kubernetes.io/managed-by": "edl",
        JOB: job,
    }


def role_labels(job: str, role: Role) -> dict[str, str]:
    """Return the labels that distinguish the pods of a role."""
    return {**job_labels(job), "app.kubernetes.io/component": role.value, ROLE: role.value}


def pod_labels(job: str, role: Role, *, ordinal: int | None, tier: Tier, grade: int = 0) -> dict[str, str]:
    """Return the labels of a pod.  A Deployment creates masters, which have no ordinal; core pods have no grade."""
    labels = {**role_labels(job, role), TIER: tier.value}
    if ordinal is not None:
        labels[ORDINAL] = str(ordinal)
    if grade:
        labels[GRADE] = str(grade)
    return labels


def master_selector(job: str) -> dict[str, str]:
    """Return the selector of the master's Deployment and Service; immutable once the Deployment exists."""
    return {JOB: job, ROLE: Role.MASTER.value}


def core_selector(job: str) -> dict[str, str]:
    """Return the selector of the pods that a job cannot run without."""
    return {JOB: job, TIER: Tier.CORE.value}
