"""Trainers and servers as pods of their TrainingJob, and the patch that removes a gang's gate.

EDL adds to the user's template: an owner, labels, a priority class, environment variables, credentials, defaults of
restricted pods, and node affinity.  EDL overrides: the priority class, the restart policy (EDL itself replaces a
trainer that ends), and the longer grace period of surplus.  Masters are in `master_deployment`.
"""

from __future__ import annotations

from typing import Any, Final

from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings
from autoscaler.clusters.kubernetes.builders.pod_environment import (
    DATA_PORT,
    IDENTITY_FOLDER,
    member_variables,
    merge_variables,
    serves_peers,
)
from autoscaler.clusters.kubernetes.builders.pod_security import with_restricted_defaults
from autoscaler.clusters.kubernetes.objects.fields import Raw, part, parts
from autoscaler.clusters.kubernetes.objects.labels import API_VERSION, GATE, pod_labels
from autoscaler.clusters.kubernetes.objects.names import member_secret, pod_name
from autoscaler.clusters.kubernetes.objects.node_affinity import require_allowed_nodes, tie_to_node
from autoscaler.clusters.kubernetes.parsing.priority_classes import LEVEL_SURPLUS, surplus_class
from autoscaler.clusters.kubernetes.parsing.role_templates import RoleTemplate
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import CreatePod, NodeName, Reclaim, Role, Tier

_IDENTITY_VOLUME: Final = "edl-identity"
_SERVER_COMMAND: Final = ("python", "-m", "trainer_sdk.pserver")
_SERVER_PROBE: Final = ("python", "-m", "trainer_sdk.pserver.alive")


def build_pod(
    job: KubeJob,
    placement: CreatePod,
    settings: BuildSettings,
    *,
    is_gated: bool,
    avoid: frozenset[NodeName] = frozenset(),
) -> dict[str, Any]:
    """Return the body of a trainer or server: gated without a node (`ungate_patch`), or tied to its node."""
    template = job.template(placement.role)
    grace_s = grace_period_s(template, placement.tier, settings)
    spec = require_allowed_nodes(template.spec, avoid=avoid)
    if is_gated:
        spec["schedulingGates"] = [{"name": GATE}]
    else:
        spec = tie_to_node(spec, placement.node)
    variables = member_variables(job, placement.role, ordinal=placement.ordinal, tier=placement.tier, grace_s=grace_s)
    spec = with_identity(spec, template, variables, secret=member_secret(job.name))
    if placement.role is Role.SERVER:
        container = spec["containers"][template.container]
        own = with_program(container, _SERVER_COMMAND, settings.image)
        spec["containers"][template.container] = {**_liveness(container), **own}
    if serves_peers(job, placement.role):
        container = spec["containers"][template.container]
        spec["containers"][template.container] = {**container, "ports": _ports(container)}
    spec |= {
        "priorityClassName": priority_class_of(job, placement, settings),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(grace_s),
    }
    labels = pod_labels(job.name, placement.role, ordinal=placement.ordinal, tier=placement.tier, grade=placement.grade)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template_metadata(template, labels),
            "name": pod_name(job.name, placement.role, placement.ordinal),
            "namespace": job.namespace,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": with_restricted_defaults(spec),
    }


def ungate_patch(pod: Raw, node: NodeName) -> dict[str, Any]:
    """Return a JSON merge patch that removes EDL's gate and ties the pod to its node in one write (rule 8).

    It must name this very object (UID and resourceVersion), because it replaces lists whole.
    """
    gates = [dict(gate) for gate in parts(pod, "spec", "schedulingGates") if gate.get("name") != GATE]
    tied = tie_to_node(part(pod, "spec"), node)
    return {"spec": {"schedulingGates": gates, "affinity": tied["affinity"]}}


def priority_class_of(job: KubeJob, placement: CreatePod, settings: BuildSettings) -> str:
    """Return the PriorityClass of a pod (`beside-the-scheduler.md` 1 to 4); its preemption policy comes with it.

    With `reclaim: planner` surplus has a class of core's value, so that the scheduler never preempts it.
    """
    if placement.tier is not Tier.SURPLUS:
        return job.spec.priority_class
    return LEVEL_SURPLUS if settings.reclaim is Reclaim.PLANNER else surplus_class(max(1, placement.grade))


def grace_period_s(template: RoleTemplate, tier: Tier, settings: BuildSettings) -> float:
    """Grace period in whole seconds: the value in the pod's spec and in its environment.

    Core keeps the user's grace period; surplus gets at most the cluster's (rule 7).
    """
    grace_s = min(template.grace_s, settings.surplus_grace_s) if tier is Tier.SURPLUS else template.grace_s
    return float(max(1, int(grace_s)))


def owner_reference(job: KubeJob) -> dict[str, Any]:
    """Return the reference of a job as the controller of its object, which blocks the job's foreground deletion."""
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def template_metadata(template: RoleTemplate, labels: Raw) -> dict[str, Any]:
    """Return the user's labels and annotations, overridden by EDL's."""
    metadata = part(template.raw, "metadata")
    built: dict[str, Any] = {"labels": {**part(metadata, "labels"), **labels}}
    if annotations := part(metadata, "annotations"):
        built["annotations"] = dict(annotations)
    return built


def with_identity(spec: Raw, template: RoleTemplate, variables: list[dict[str, Any]], *, secret: str) -> dict[str, Any]:
    """Return the pod's spec whose EDL container has these variables and a read-only volume of credentials."""
    containers = [dict(container) for container in parts(spec, "containers")]
    own = containers[template.container]
    mounts = [dict(mount) for mount in parts(own, "volumeMounts") if mount.get("name") != _IDENTITY_VOLUME]
    own["volumeMounts"] = [*mounts, {"name": _IDENTITY_VOLUME, "mountPath": IDENTITY_FOLDER, "readOnly": True}]
    own["env"] = merge_variables(variables, own, template)
    volumes = [dict(volume) for volume in parts(spec, "volumes") if volume.get("name") != _IDENTITY_VOLUME]
    identity = {"name": _IDENTITY_VOLUME, "secret": {"secretName": secret, "defaultMode": 0o444}}
    return {**spec, "containers": containers, "volumes": [*volumes, identity]}


def has_no_command(container: Raw) -> bool:
    """True if the user named neither a command nor arguments."""
    return not container.get("command") and not container.get("args")


def with_program(container: Raw, command: tuple[str, ...], image: str) -> dict[str, Any]:
    """Return the container with the role's own program and image where the user named none."""
    built = dict(container)
    if has_no_command(container):
        built["command"] = list(command)
    built.setdefault("image", image)
    return built


def _liveness(container: Raw) -> dict[str, Any]:
    """Return the liveness probe of a server that has not answered for two minutes: it is killed and replaced.

    The probe uses the data port up to the end of the handshake.  Images of users get no probe, since they may lack the
    program.  A server that hangs ignores SIGTERM too, so the probe's grace period is short.
    """
    if not has_no_command(container) or container.get("image"):
        return {}
    timing = {
        "initialDelaySeconds": 60,
        "periodSeconds": 30,
        "timeoutSeconds": 20,
        "failureThreshold": 4,
        "terminationGracePeriodSeconds": 10,
    }
    return {"livenessProbe": {"exec": {"command": list(_SERVER_PROBE)}, **timing}}


def _ports(container: Raw) -> list[dict[str, Any]]:
    own = [dict(port) for port in parts(container, "ports") if port.get("containerPort") != DATA_PORT]
    return [*own, {"name": "edl-data", "containerPort": DATA_PORT, "protocol": "TCP"}]
