"""CoreDNS as a cluster has it: pods behind the Service that the kubelets name in every pod.  Pure."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.addresses import DNS_SERVICE
from tests.e2e.images import NAMES

NAMESPACE: Final = "kube-system"
NAME: Final = "coredns"
REPLICAS: Final = 2
"""One on each node, so that names resolve while one is drained."""

PORT: Final = 5353  # above 1024: no right is needed
READY_PORT: Final = 8181
COREFILE: Final = f"""\
.:{PORT} {{
    errors
    ready :{READY_PORT}
    kubernetes cluster.local in-addr.arpa {{
        pods insecure
        ttl 1
    }}
}}
"""


def manifests() -> list[dict[str, Any]]:
    labels = {"app": NAME}
    metadata = {"name": NAME, "namespace": NAMESPACE}
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    ports = [
        {"name": f"dns-{protocol.lower()}", "port": 53, "targetPort": PORT, "protocol": protocol}
        for protocol in ("UDP", "TCP")
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"Corefile": COREFILE}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": NAMESPACE},
            "spec": {"clusterIP": DNS_SERVICE, "selector": labels, "ports": ports},
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": _deployment(labels)},
    ]


def _deployment(labels: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": NAMES["coredns"],
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": READY_PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    pod = {
        "serviceAccountName": NAME,
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"runAsUser": 65532},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
    return {
        "replicas": REPLICAS,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
