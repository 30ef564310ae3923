"""From files to values: read, set aside, check, build; refused as a whole, with everything that is wrong.

`documents` reads YAML, `schema` and `checks` judge it, `values` is the result.  Nothing here starts anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from autoscaler.manifests import checks, schema
from autoscaler.manifests.building import build_class, build_deployment, build_job, build_machines
from autoscaler.manifests.documents import Document, Step, read_documents
from autoscaler.manifests.refusals import Refusal, RefusedInputError, did_you_mean
from autoscaler.manifests.set_aside import set_aside
from autoscaler.manifests.values import Manifests

_HINTS: Final[Mapping[str, str]] = {
    "initContainers": "a local pod is one process; do the preparation in its command",
    "envFrom": "write the variables under env",
    "valueFrom": "write the value itself; the local cluster has no ConfigMaps and no Secrets",
    "ephemeral-storage": "the local cluster counts cpu, memory and nvidia.com/gpu",
    "hugepages-2Mi": "the local cluster counts cpu, memory and nvidia.com/gpu",
    "hostNetwork": "local pods are processes of this machine: they share its network anyway",
}


def parse_files(paths: Sequence[Path]) -> Manifests:
    """All documents of these files, checked one by one and together.  Raises RefusedInputError with every refusal."""
    documents: list[Document] = []
    refusals: list[Refusal] = []
    for path in paths:
        found, wrong = read_documents(path)
        documents += found
        refusals += wrong
    return parse_documents(documents, refusals)


def parse_documents(documents: Sequence[Document], refusals: Iterable[Refusal] = ()) -> Manifests:
    """The values of these documents.  Raises RefusedInputError with every refusal, those given included."""
    found = list(refusals)
    notices: list[str] = []
    models: list[BaseModel] = []
    for document in documents:
        content, aside = set_aside(document)
        notices += aside
        model, wrong = _validate(document, content)
        found += [*wrong, *checks.check_document(document)]
        models += [model] if model is not None else []
    found += checks.check_together(documents)
    if found:
        raise RefusedInputError(_in_order(found))
    return _build(models, notices)


def _validate(document: Document, content: dict[str, Any]) -> tuple[BaseModel | None, list[Refusal]]:
    model = schema.KINDS.get(document.kind)
    if model is None:
        hint = did_you_mean(document.kind, list(schema.KINDS))
        return None, [document.refuse(("kind",), f"EDL runs no {document.kind}", hint)]
    try:
        return model.model_validate(content), []
    except ValidationError as error:
        return None, [_explain(document, model, details) for details in error.errors()]


def _explain(document: Document, model: type[BaseModel], details: ErrorDetails) -> Refusal:
    path: tuple[Step, ...] = details["loc"]
    given = details["input"]
    match details["type"]:
        case "extra_forbidden":
            hint = _HINTS.get(str(path[-1])) or did_you_mean(str(path[-1]), _known_fields(model, path[:-1]))
            return document.refuse(path, "unknown field", hint)
        case "missing":
            return document.refuse(path, "is missing", "")
        case "value_error":
            return document.refuse(path, details["msg"].removeprefix("Value error, "), "")
        case "too_long" if path[-1] == "containers":
            return document.refuse(path, "a local pod is one process", "keep one container")
        case "string_pattern_mismatch":
            return document.refuse(path, f"{given!r} is no Kubernetes name", "lower case letters, digits and -")
        case _:
            shown = f"{given!r}" if isinstance(given, (str, int, float, bool, type(None))) else "this"
            wanted = details["msg"].removeprefix("Input should be ")
            return document.refuse(path, f"{shown} is refused", f"should be {wanted}")


def _known_fields(model: type[BaseModel], path: Sequence[Step]) -> list[str]:
    for step in path:
        if isinstance(step, int):
            continue
        field = next((f for name, f in model.model_fields.items() if (f.alias or name) == step), None)
        inner = _model_in(field.annotation) if field is not None else None
        if inner is None:
            return []
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _model_in(part))), None)


def _in_order(refusals: Iterable[Refusal]) -> list[Refusal]:
    """By file and line; what two checks found alike is said once."""
    unique: dict[tuple[str, int, str, str], Refusal] = {}
    for refusal in refusals:
        key = (refusal.file, refusal.line, refusal.document, refusal.path)
        if key not in unique or len(refusal.hint) > len(unique[key].hint):
            unique[key] = refusal
    return sorted(unique.values(), key=lambda r: (r.file, r.line))


def _build(models: Sequence[BaseModel], notices: Sequence[str]) -> Manifests:
    jobs = [build_job(m) for m in models if isinstance(m, schema.TrainingJobModel)]
    return Manifests(
        jobs=tuple(job for job, _ in jobs),
        deployments=tuple(build_deployment(m) for m in models if isinstance(m, schema.DeploymentModel)),
        classes=tuple(build_class(m) for m in models if isinstance(m, schema.PriorityClassModel)),
        machines=tuple(n for m in models if isinstance(m, schema.LocalClusterModel) for n in build_machines(m)),
        notices=(*notices, *(notice for _, job_notices in jobs for notice in job_notices)),
    )
