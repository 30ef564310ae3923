"""Columns of a cluster's objects, for tables as kubectl prints them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from autoscaler.cli.kubernetes.gpu_tables import gpu_columns
from autoscaler.cli.output.object_tables import Cell, Column, Columns, PlainObject
from autoscaler.clusters.kubernetes.objects.fields import created_at_s, integer, part, parts, text, unix_s
from autoscaler.clusters.kubernetes.objects.labels import GRADE, JOB, ROLE, TIER
from autoscaler.clusters.kubernetes.objects.resource_amounts import amounts_of, to_resources
from autoscaler.domain import NOTHING, Resources
from autoscaler.quantities import format_cpu, format_memory
from autoscaler.views.jobs.remaining_time import format_remaining, remaining_of
from autoscaler.views.jobs.reported_metrics import job_metrics
from autoscaler.views.object_states import job_message, node_state, pod_state
from autoscaler.views.phrases import format_age, format_count

_NAME: Final = Column(title="NAME", cell=lambda o: text(o, "metadata", "name"))
_NAMESPACE: Final = Column(title="NAMESPACE", cell=lambda o: text(o, "metadata", "namespace"))


def cluster_columns(
    now_s: float, *, used: Mapping[str, Resources] | None = None, has_namespaces: bool = False
) -> Columns:
    """The columns of each kind of object at `now_s` (Unix time).

    `used`: requests of the pods on each node; None when they are unknown.  `has_namespaces`: with a column NAMESPACE.
    """
    names = (_NAMESPACE, _NAME) if has_namespaces else (_NAME,)
    age = Column(
        title="AGE", cell=lambda o: format_age(max(0.0, now_s - created_at_s(o))), key=lambda o: now_s - created_at_s(o)
    )
    checkpoint = Column(
        title="CHECKPOINT",
        cell=lambda o: format_age(_checkpoint_age_s(o, now_s)),
        key=lambda o: _checkpoint_age_s(o, now_s),
    )
    return {
        "TrainingJob": (*names, *_JOB, checkpoint, _REASON, age, *_WIDE_JOB),
        "Node": (
            _NAME,
            Column(title="STATUS", cell=node_state),
            Column(title="CPU", cell=_share_of("cpu", used)),
            Column(title="MEMORY", cell=_share_of("memory", used)),
            Column(title="GPU", cell=_share_of("gpu", used)),
            Column(title="PODS", cell=_share_of("pods", used)),
            age,
            Column(title="VERSION", cell=lambda o: text(o, "status", "nodeInfo", "kubeletVersion"), is_wide=True),
        ),
        "NodeGpus": gpu_columns(),
        "Pod": (*names, *_POD, age, *_WIDE_POD),
        "Deployment": (
            *names,
            Column(
                title="READY",
                cell=lambda o: f"{integer(o, 'status', 'readyReplicas')}/{integer(o, 'spec', 'replicas')}",
            ),
            Column(title="UNAVAILABLE", cell=lambda o: integer(o, "status", "unavailableReplicas")),
            age,
        ),
    }


def _checkpoint_age_s(job: PlainObject, now_s: float) -> float | None:
    at_s = unix_s(text(job, "status", "progress", "lastCheckpointTime"))
    return None if at_s is None else max(0.0, now_s - at_s)


def _number(*path: str) -> Cell:
    def cell(found: PlainObject) -> int | None:
        return integer(found, *path) if path[-1] in part(found, *path[:-1]) else None

    return cell


def _servers(job: PlainObject) -> str:
    return format_count(integer(job, "status", "servers", "ready"), integer(job, "status", "servers", "target"))


def _label(name: str) -> Cell:
    return lambda o: text(o, "metadata", "labels", name)


def _restarts(pod: PlainObject) -> int:
    return sum(integer(container, "restartCount") for container in parts(pod, "status", "containerStatuses"))


def _share_of(resource: str, used: Mapping[str, Resources] | None) -> Cell:
    """`3/16` of a node; `16` when its pods are unknown; empty when it offers none."""

    def cell(node: PlainObject) -> str:
        offered = to_resources(amounts_of(part(node, "status", "allocatable")))
        if not _amount(offered, resource):
            return ""
        total = _shown(offered, resource)
        if used is None:
            return total
        return f"{_shown(used.get(text(node, 'metadata', 'name'), NOTHING), resource)}/{total}"

    return cell


def _amount(resources: Resources, resource: str) -> int:
    match resource:
        case "cpu":
            return resources.cpu_milli
        case "memory":
            return resources.memory_bytes
        case "gpu":
            return resources.gpu_count
        case _:
            return dict(resources.extended).get(resource, 0)


def _shown(resources: Resources, resource: str) -> str:
    amount = _amount(resources, resource)
    return {"cpu": format_cpu, "memory": format_memory}.get(resource, str)(amount)


_JOB: Final = (
    Column(title="TRAINERS", cell=_number("status", "trainers", "ready")),
    Column(title="TARGET", cell=_number("status", "trainers", "target")),
    Column(title="MIN", cell=_number("spec", "trainer", "minReplicas")),
    Column(title="MAX", cell=_number("spec", "trainer", "maxReplicas")),
    Column(title="SERVERS", cell=_servers),
    Column(title="PROGRESS", cell=lambda o: text(o, "status", "progress", "percent")),
    Column(
        title="REMAINING",
        cell=lambda o: format_remaining(remaining_of(o)),
        key=lambda o: None if (found := remaining_of(o)) is None else found.seconds,
    ),
)
_REASON: Final = Column(title="REASON", cell=lambda o: text(o, "status", "reason"))
_WIDE_JOB: Final = (
    Column(title="PINNED", cell=lambda o: integer(o, "spec", "trainer", "replicas") or None, is_wide=True),
    Column(title="MIN-SERVERS", cell=_number("spec", "parameterServer", "minReplicas"), is_wide=True),
    Column(title="MAX-SERVERS", cell=_number("spec", "parameterServer", "maxReplicas"), is_wide=True),
    Column(
        title="PINNED-SERVERS", cell=lambda o: integer(o, "spec", "parameterServer", "replicas") or None, is_wide=True
    ),
    Column(title="PRIORITY", cell=lambda o: text(o, "spec", "priorityClassName"), is_wide=True),
    Column(title="WEIGHT", cell=_number("spec", "weight"), is_wide=True),
    Column(title="SHARE", cell=lambda o: text(o, "status", "share"), is_wide=True),
    Column(title="METRICS", cell=job_metrics, is_wide=True),
    Column(title="WHY", cell=job_message, is_wide=True),
)
_POD: Final = (
    Column(title="STATUS", cell=pod_state),
    Column(title="ROLE", cell=_label(ROLE)),
    Column(title="TIER", cell=_label(TIER)),
    Column(title="NODE", cell=lambda o: text(o, "spec", "nodeName")),
    Column(title="RESTARTS", cell=_restarts),
)
_WIDE_POD: Final = (
    Column(title="JOB", cell=_label(JOB), is_wide=True),
    Column(title="GRADE", cell=_label(GRADE), is_wide=True),
    Column(title="IP", cell=lambda o: text(o, "status", "podIP"), is_wide=True),
)
