"""Pod security: defaults of the restricted Pod Security Standard, for each field that the user left open.

What the user wrote stays, also where it is less strict: the namespace's policy then refuses it, and its message reaches
the user.  No default contradicts the user's fields (`runAsUser: 0`, `privileged`, added capabilities).
"""

from __future__ import annotations

from typing import Any

from autoscaler.clusters.kubernetes.objects.fields import Raw, part, parts


def with_restricted_defaults(spec: Raw) -> dict[str, Any]:
    """Return the pod's spec with the restricted defaults, and without a token of the API server."""
    found = dict(spec)
    found["securityContext"] = _of_pod(spec)
    for kind in ("containers", "initContainers"):
        if containers := parts(spec, kind):
            found[kind] = [{**container, "securityContext": _of_container(container)} for container in containers]
    found.setdefault("enableServiceLinks", False)
    if "serviceAccountName" not in spec:
        found.setdefault("automountServiceAccountToken", False)
    return found


def _of_pod(spec: Raw) -> dict[str, Any]:
    context = dict(part(spec, "securityContext"))
    users = [context.get("runAsUser"), *(part(c, "securityContext").get("runAsUser") for c in _all(spec))]
    if 0 not in users:
        context.setdefault("runAsNonRoot", True)
    context.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    return context


def _of_container(container: Raw) -> dict[str, Any]:
    context = dict(part(container, "securityContext"))
    if not context.get("privileged"):
        if not part(context, "capabilities").get("add"):
            context.setdefault("allowPrivilegeEscalation", False)
        context.setdefault("capabilities", {"drop": ["ALL"]})
    return context


def _all(spec: Raw) -> list[Raw]:
    return [*parts(spec, "containers"), *parts(spec, "initContainers")]
