"""Deployment and HorizontalPodAutoscaler -> domain Workload: replicas that a web service will have soon, and at most.

EDL reads both and writes neither (A10).  An autoscaler whose target is a TrainingJob owns that job's size; EDL then
leaves the size alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import (
    EMPTY,
    Raw,
    condition_of,
    controller_of,
    integer,
    key_of,
    part,
    text,
)
from autoscaler.clusters.kubernetes.objects.labels import API_GROUP, JOB, ROLE
from autoscaler.clusters.kubernetes.parsing.pod_shapes import shape_of_template
from autoscaler.clusters.kubernetes.parsing.priority_classes import PriorityClasses
from autoscaler.domain import JobName, Role, Workload, WorkloadName

MOST_REPLICAS: Final = 10_000
"""Most replicas that the planner prepares for: each costs it time, and users may write 2^31 - 1."""

_DEPLOYMENT: Final = ("Deployment", "apps")
_JOB: Final = ("TrainingJob", API_GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTarget:
    """The target of an autoscaler.  `name`: NAMESPACE/NAME."""

    kind: str
    group: str
    name: str

    @property
    def workload(self) -> WorkloadName | None:
        """The Deployment, if the target is one."""
        return WorkloadName(self.name) if (self.kind, self.group) == _DEPLOYMENT else None


def parse_workload(deployment: Raw, hpa: Raw | None, classes: PriorityClasses) -> Workload | None:
    """Return the workload with its autoscaler, if it has one; None for a job's master.

    An autoscaler that wants more than the Deployment says announces growth; a Deployment at 0 switches it off.  A
    workload whose pods the API server refuses (a quota, a webhook), or whose controller creates none, announces
    nothing: its pods may never come, and trainers would give up capacity for nothing.
    """
    if job_of_master(deployment):
        return None
    spec, scaler = part(deployment, "spec"), EMPTY if hpa is None else hpa
    template = part(spec, "template")
    written = integer(spec, "replicas", default=1)
    wanted = max(written, integer(scaler, "status", "desiredReplicas")) if written else 0
    most = integer(scaler, "spec", "maxReplicas")
    if has_refused_pods(deployment):
        wanted = most = min(wanted, integer(deployment, "status", "replicas"))
    elif not is_reconciled(deployment):
        wanted = min(wanted, integer(deployment, "status", "replicas"))
    class_name = text(template, "spec", "priorityClassName")
    value = classes.value_of(class_name)
    return Workload(
        name=WorkloadName(key_of(deployment)),
        shape=shape_of_template(template),
        priority=classes.default if value is None else value,
        desired_replicas=min(wanted, MOST_REPLICAS),
        max_replicas=min(most, MOST_REPLICAS),
    )


def has_refused_pods(deployment: Raw) -> bool:
    """True if the API server refused the Deployment's newest pods."""
    failure = condition_of(deployment, "ReplicaFailure")
    return (text(failure, "status"), text(failure, "reason")) == ("True", "FailedCreate")


def is_reconciled(deployment: Raw) -> bool:
    """True if the Deployment's controller acts on its newest specification and will create pods.

    A paused Deployment may have no ReplicaSet, one that is being deleted grows no more, and one whose ReplicaSet a
    quota refuses is never observed.  A tenant can keep a Deployment in this state for ever at no cost.
    """
    meta, status = part(deployment, "metadata"), part(deployment, "status")
    is_observed = integer(status, "observedGeneration") >= integer(meta, "generation")
    is_paused = part(deployment, "spec").get("paused") is True
    return is_observed and not is_paused and "deletionTimestamp" not in meta


def job_of_master(deployment: Raw) -> str:
    """Return the UID of the TrainingJob whose master this Deployment is; empty if it is none."""
    owner = controller_of(deployment)
    labels = part(deployment, "metadata", "labels")
    is_ours = owner.get("kind") == "TrainingJob" and text(owner, "apiVersion").startswith(f"{API_GROUP}/")
    is_master = text(labels, ROLE) == Role.MASTER.value and bool(text(labels, JOB))
    return text(owner, "uid") if is_ours and is_master else ""


def hpa_target(hpa: Raw) -> ScaleTarget:
    """Return the target of an autoscaler."""
    target = part(hpa, "spec", "scaleTargetRef")
    group, slash, _ = text(target, "apiVersion").partition("/")
    namespace = text(hpa, "metadata", "namespace")
    return ScaleTarget(
        kind=text(target, "kind"), group=group if slash else "", name=f"{namespace}/{text(target, 'name')}"
    )


def conflicting_job(hpa: Raw) -> JobName | None:
    """Return the TrainingJob that an autoscaler targets; its condition is ConflictingAutoscaler (A10)."""
    target = hpa_target(hpa)
    return JobName(target.name) if (target.kind, target.group) == _JOB else None
