"""Takes out of a document what Kubernetes knows and a process does not, and says so.

The tables stand in `pod_schema`; this module only finds the places where pods are described.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from autoscaler.manifests.documents import Document, PathStep, format_path
from autoscaler.manifests.pod_schema import IGNORED_FIELDS, IGNORED_SILENTLY

_TEMPLATES: Final[Mapping[str, Sequence[tuple[PathStep, ...]]]] = {
    "TrainingJob": (
        ("spec", "trainer", "template"),
        ("spec", "parameterServer", "template"),
        ("spec", "master", "template"),
    ),
    "Deployment": (("spec", "template"),),
}
_DEPLOYMENT_SPEC: Final = frozenset(
    {"selector", "strategy", "revisionHistoryLimit", "minReadySeconds", "progressDeadlineSeconds", "paused"}
)
_EXPECTED: Final = IGNORED_SILENTLY | {"selector", "strategy"}


def template_paths(kind: str) -> Sequence[tuple[PathStep, ...]]:
    """Where documents of this kind describe pods."""
    return _TEMPLATES.get(kind, ())


def drop_ignored_fields(document: Document) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The content without those fields, and one notice for each that somebody might miss."""
    content = copy.deepcopy(dict(document.content))
    content.pop("status", None)
    taken: list[tuple[PathStep, ...]] = []
    for path, known in _ignored_places(document.kind, content):
        mapping = value_at(content, path)
        if isinstance(mapping, dict):
            taken += [(*path, key) for key in list(mapping) if key in known and mapping.pop(key, known) is not known]
    where = f"{document.file} {document.kind} {document.name}"
    return content, tuple(
        f"{where}: {format_path(path)} is not used by the local cluster" for path in taken if path[-1] not in _EXPECTED
    )


def value_at(content: Any, path: Sequence[PathStep]) -> Any:
    """What stands there; None when it is absent or something on the way is no mapping."""
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
        yield ("spec",), _DEPLOYMENT_SPEC
    if kind == "PriorityClass":
        yield (), frozenset({"description"})
    for template in template_paths(kind):
        yield (*template, "metadata"), IGNORED_FIELDS["metadata"]
        yield (*template, "spec"), IGNORED_FIELDS["pod"]
        containers = value_at(content, (*template, "spec", "containers"))
        for index in range(len(containers) if isinstance(containers, list) else 0):
            yield (*template, "spec", "containers", index), IGNORED_FIELDS["container"]
