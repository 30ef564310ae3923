"""Master of a job: a Deployment of one to three replicas, and the headless Service at which members find it.

A Deployment replaces a lost master while the operator is down (`beside-the-scheduler.md` 8).  Its pods have no gate and
are not tied to a node; capacity for them was proved with the gang's, and they prefer those nodes.  Standbys prefer
other nodes and zones.  The Service lists masters that are not ready too, since members try each until they meet the
leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings
from autoscaler.clusters.kubernetes.builders.member_pods import (
    has_no_command,
    owner_reference,
    template_metadata,
    with_identity,
    with_program,
)
from autoscaler.clusters.kubernetes.builders.pod_environment import (
    MASTER_PORT,
    METRICS_PORT,
    master_variables,
)
from autoscaler.clusters.kubernetes.builders.pod_security import with_restricted_defaults
from autoscaler.clusters.kubernetes.objects.fields import Raw, parts
from autoscaler.clusters.kubernetes.objects.labels import master_selector, pod_labels, role_labels
from autoscaler.clusters.kubernetes.objects.names import master_name, master_secret
from autoscaler.clusters.kubernetes.objects.node_affinity import prefer_nodes, prefer_spread, require_allowed_nodes
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import NodeName, Role, Tier

_COMMAND: Final = ("python", "-m", "master.supervisor")  # a master, and one that stands by (ADR 0203)
_PORTS: Final = (("edl-members", MASTER_PORT), ("edl-metrics", METRICS_PORT))


def build_master(
    job: KubeJob, settings: BuildSettings, *, avoid: frozenset[NodeName] = frozenset(), nodes: Sequence[NodeName] = ()
) -> dict[str, Any]:
    """Return the Deployment's body.  An update replaces one master at a time, in the capacity of the one before.

    `nodes`: nodes with proved capacity.  Its pods prefer them and are not tied: the master of a lost node must come
    back elsewhere.
    """
    template = job.template(Role.MASTER)
    labels = pod_labels(job.name, Role.MASTER, ordinal=None, tier=Tier.CORE)
    spec = prefer_spread(require_allowed_nodes(template.spec, avoid=avoid), master_selector(job.name))
    spec = prefer_nodes(spec, nodes) if nodes else spec
    spec = with_identity(spec, template, master_variables(job, settings.etcd), secret=master_secret(job.name))
    container = spec["containers"][template.container]
    own = with_program(container, _COMMAND, settings.image)
    probes = {"readinessProbe": _readiness()} | ({"livenessProbe": _liveness()} if has_no_command(container) else {})
    spec["containers"][template.container] = {**probes, **own, "ports": _ports(own)}
    spec |= {
        "priorityClassName": job.spec.priority_class,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": int(template.grace_s),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": master_name(job.name),
            "namespace": job.namespace,
            "labels": role_labels(job.name, Role.MASTER),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "replicas": job.spec.master.replicas,
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": master_selector(job.name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {"metadata": template_metadata(template, labels), "spec": with_restricted_defaults(spec)},
        },
    }


def build_service(job: KubeJob) -> dict[str, Any]:
    """Return the headless Service's body."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": master_name(job.name),
            "namespace": job.namespace,
            "labels": role_labels(job.name, Role.MASTER),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": master_selector(job.name),
            "ports": [{"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in _PORTS],
        },
    }


def _readiness() -> dict[str, Any]:
    """Return the readiness probe: the port is open.  Masters elect their leader in etcd."""
    return {"tcpSocket": {"port": MASTER_PORT}, "periodSeconds": 2, "timeoutSeconds": 1}


def _liveness() -> dict[str, Any]:
    """Return the liveness probe: a process that hangs keeps its port open, so it has to answer within two minutes.

    A thread of its own serves the metrics, so that neither a long commit nor a missing etcd looks like a hang.
    """
    timing = {
        "initialDelaySeconds": 60,
        "periodSeconds": 20,
        "timeoutSeconds": 15,
        "failureThreshold": 6,
        "terminationGracePeriodSeconds": 10,
    }
    return {"httpGet": {"path": "/metrics", "port": METRICS_PORT}, **timing}


def _ports(container: Raw) -> list[dict[str, Any]]:
    taken = [port for _, port in _PORTS]  # no set: values of a template need not be hashable
    own = [dict(port) for port in parts(container, "ports") if port.get("containerPort") not in taken]
    return [*own, *({"name": name, "containerPort": port, "protocol": "TCP"} for name, port in _PORTS)]
