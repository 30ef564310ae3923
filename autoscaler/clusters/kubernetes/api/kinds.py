"""Kinds of Kubernetes resources that EDL reads or writes, and their paths in the API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from autoscaler.clusters.kubernetes.api.errors import NotFoundError

_NAME: Final = re.compile(r"[A-Za-z0-9._:-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind: `group` is empty for the core group, `plural` is its name in paths.

    A review (`is_review`) is a question to the server: its creation returns the answer, and nothing is stored.
    """

    group: str = ""
    version: str = "v1"
    plural: str
    kind: str
    is_namespaced: bool = True
    is_review: bool = False

    @property
    def api_version(self) -> str:
        """The value of `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Path of an object.  Without `name`: of the collection; without `namespace`: across all namespaces.

        Raises NotFoundError for what cannot be a name: `pods/..` would be the path of the namespace itself.
        """
        for given in (namespace, name):
            if given and (given in {".", ".."} or not _NAME.fullmatch(given)):
                raise NotFoundError(f"{self.plural}: {given!r} is not a valid object name")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.is_namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


PODS: Final = Kind(plural="pods", kind="Pod")
NODES: Final = Kind(plural="nodes", kind="Node", is_namespaced=False)
NAMESPACES: Final = Kind(plural="namespaces", kind="Namespace", is_namespaced=False)
SERVICES: Final = Kind(plural="services", kind="Service")
SECRETS: Final = Kind(plural="secrets", kind="Secret")
CONFIG_MAPS: Final = Kind(plural="configmaps", kind="ConfigMap")
SERVICE_ACCOUNTS: Final = Kind(plural="serviceaccounts", kind="ServiceAccount")
RESOURCE_QUOTAS: Final = Kind(plural="resourcequotas", kind="ResourceQuota")
LIMIT_RANGES: Final = Kind(plural="limitranges", kind="LimitRange")
DEPLOYMENTS: Final = Kind(group="apps", plural="deployments", kind="Deployment")
REPLICA_SETS: Final = Kind(group="apps", plural="replicasets", kind="ReplicaSet")
STATEFUL_SETS: Final = Kind(group="apps", plural="statefulsets", kind="StatefulSet")
DAEMON_SETS: Final = Kind(group="apps", plural="daemonsets", kind="DaemonSet")
POD_AUTOSCALERS: Final = Kind(
    group="autoscaling", version="v2", plural="horizontalpodautoscalers", kind="HorizontalPodAutoscaler"
)
DISRUPTION_BUDGETS: Final = Kind(group="policy", plural="poddisruptionbudgets", kind="PodDisruptionBudget")
PRIORITY_CLASSES: Final = Kind(
    group="scheduling.k8s.io", plural="priorityclasses", kind="PriorityClass", is_namespaced=False
)
NETWORK_POLICIES: Final = Kind(group="networking.k8s.io", plural="networkpolicies", kind="NetworkPolicy")
LEASES: Final = Kind(group="coordination.k8s.io", plural="leases", kind="Lease")
EVENTS: Final = Kind(group="events.k8s.io", plural="events", kind="Event")
CUSTOM_RESOURCE_DEFINITIONS: Final = Kind(
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    is_namespaced=False,
)
EVICTIONS: Final = Kind(group="policy", version="v1", plural="evictions", kind="Eviction")
"""Of a pod of the same name: created at the pod, and subject to PodDisruptionBudgets."""
TRAINING_JOBS: Final = Kind(group="edl.dev", version="v1alpha1", plural="trainingjobs", kind="TrainingJob")
NODE_GPUS: Final = Kind(group="edl.dev", version="v1alpha1", plural="nodegpus", kind="NodeGpus", is_namespaced=False)
NODE_METRICS: Final = Kind(
    group="metrics.k8s.io", version="v1beta1", plural="nodes", kind="NodeMetrics", is_namespaced=False
)
POD_METRICS: Final = Kind(group="metrics.k8s.io", version="v1beta1", plural="pods", kind="PodMetrics")
TOKEN_REVIEWS: Final = Kind(
    group="authentication.k8s.io", plural="tokenreviews", kind="TokenReview", is_namespaced=False, is_review=True
)
ACCESS_REVIEWS: Final = Kind(
    group="authorization.k8s.io",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    is_namespaced=False,
    is_review=True,
)
OWN_ACCESS_REVIEWS: Final = Kind(
    group="authorization.k8s.io",
    plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview",
    is_namespaced=False,
    is_review=True,
)
