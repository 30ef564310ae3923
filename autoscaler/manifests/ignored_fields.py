"""Ignored fields: valid in Kubernetes and meaningless for a process; they are dropped with a notice."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from autoscaler.manifests.documents import Document, PathStep, format_path

IGNORED_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "metadata": frozenset(["annotations", "labels", "namespace", "name", "creationTimestamp", "uid", "generation"]),
    "pod": frozenset(
        [
            "affinity",
            "automountServiceAccountToken",
            "dnsConfig",
            "dnsPolicy",
            "enableServiceLinks",
            "hostAliases",
            "hostname",
            "imagePullSecrets",
            "nodeSelector",
            "os",
            "overhead",
            "preemptionPolicy",
            "readinessGates",
            "restartPolicy",
            "runtimeClassName",
            "schedulerName",
            "securityContext",
            "serviceAccountName",
            "setHostnameAsFQDN",
            "shareProcessNamespace",
            "subdomain",
            "tolerations",
            "topologySpreadConstraints",
            "volumes",
        ]
    ),
    "container": frozenset(
        [
            "image",
            "imagePullPolicy",
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "securityContext",
            "startupProbe",
            "stdin",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "tty",
            "volumeDevices",
            "volumeMounts",
        ]
    ),
}
"""By the part of a pod template."""

IGNORED_SILENTLY: Final = frozenset(["image", "imagePullPolicy", "labels", "name", "namespace", "restartPolicy"])
"""Dropped without a notice: every manifest has them, and no user expects a process to use them."""

_TEMPLATES: Final[Mapping[str, Sequence[tuple[PathStep, ...]]]] = {
    "TrainingJob": (
        ("spec", "trainer", "template"),
        ("spec", "parameterServer", "template"),
        ("spec", "master", "template"),
    ),
    "Deployment": (("spec", "template"),),
}
_IGNORED_OF_DEPLOYMENTS: Final = frozenset(
    {"selector", "strategy", "revisionHistoryLimit", "minReadySeconds", "progressDeadlineSeconds", "paused"}
)
_WITHOUT_NOTICE: Final = IGNORED_SILENTLY | {"selector", "strategy"}


def template_paths(kind: str) -> Sequence[tuple[PathStep, ...]]:
    """Paths of the pod templates in documents of this kind."""
    return _TEMPLATES.get(kind, ())


def drop_ignored_fields(document: Document) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The content without these fields, and a notice for each one that a user might count on."""
    content = copy.deepcopy(dict(document.content))
    content.pop("status", None)
    dropped: list[tuple[PathStep, ...]] = []
    for path, known in _ignored_places(document.kind, content):
        mapping = value_at(content, path)
        if isinstance(mapping, dict):
            dropped += [(*path, key) for key in list(mapping) if key in known and mapping.pop(key, known) is not known]
    where = f"{document.file} {document.kind} {document.name}"
    return content, tuple(
        f"{where}: {format_path(path)} is not used by the local cluster"
        for path in dropped
        if path[-1] not in _WITHOUT_NOTICE
    )


def value_at(content: Any, path: Sequence[PathStep]) -> Any:
    """The value at a path; None when it is absent, or something on the way is not a mapping or list."""
    for step in path:
        match content:
            case dict():
                content = content.get(step)
            case list() if isinstance(step, int) and step < len(content):
                content = content[step]
            case _:
                return None
    return content


def _ignored_places(kind: str, content: Mapping[str, Any]) -> Iterator[tuple[tuple[PathStep, ...], frozenset[str]]]:
    yield ("metadata",), IGNORED_FIELDS["metadata"] - {"name", "namespace"}
    if kind == "Deployment":
        yield ("spec",), _IGNORED_OF_DEPLOYMENTS
    if kind == "PriorityClass":
        yield (), frozenset({"description"})
    for template in template_paths(kind):
        yield (*template, "metadata"), IGNORED_FIELDS["metadata"]
        yield (*template, "spec"), IGNORED_FIELDS["pod"]
        containers = value_at(content, (*template, "spec", "containers"))
        for index in range(len(containers) if isinstance(containers, list) else 0):
            yield (*template, "spec", "containers", index), IGNORED_FIELDS["container"]
