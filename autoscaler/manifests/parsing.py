"""Parsing of files: read, drop ignored fields, check, convert; refused as a whole, with every error at once.

`documents` reads YAML, `document_schema` and `checks` check it, `api_types` has the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from autoscaler.manifests import checks, document_schema
from autoscaler.manifests.api_types import Manifests
from autoscaler.manifests.conversion import build_class, build_deployment, build_job, build_nodes
from autoscaler.manifests.documents import Document, PathStep, read_documents
from autoscaler.manifests.field_errors import FieldError, InvalidManifestError, did_you_mean
from autoscaler.manifests.ignored_fields import drop_ignored_fields

_HINTS: Final[Mapping[str, str]] = {
    "initContainers": "a local pod is one process; do the preparation in its command",
    "envFrom": "write the variables under env",
    "valueFrom": "write the value itself; the local cluster has no ConfigMaps and no Secrets",
    "ephemeral-storage": "the local cluster counts cpu, memory and nvidia.com/gpu",
    "hugepages-2Mi": "the local cluster counts cpu, memory and nvidia.com/gpu",
    "hostNetwork": "local pods are processes of this machine: they share its network anyway",
}

_WANTED: Final[Mapping[str, str]] = {
    "string_type": 'text; write it in quotes, "..."',
    "tuple_type": "a list, [a, b]",
    "model_type": "a mapping of fields",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "bool_type": "true or false, without quotes",
}
"""Replacement texts for pydantic errors that mention Python types."""

_LONGEST_SHOWN: Final = 60
_MOST_ERRORS: Final = 50
"""Most errors reported for one document."""


def parse_files(paths: Sequence[Path]) -> Manifests:
    """All documents of these files, checked one by one and together.  Raises InvalidManifestError with every error."""
    documents: list[Document] = []
    errors: list[FieldError] = []
    for path in paths:
        found, wrong = read_documents(path)
        documents += found
        errors += wrong
    return parse_documents(documents, errors)


def parse_documents(documents: Sequence[Document], errors: Iterable[FieldError] = ()) -> Manifests:
    """The values of these documents.  Raises InvalidManifestError with every error, `errors` included."""
    found = list(errors)
    notices: list[str] = []
    models: list[BaseModel] = []
    contents: list[dict[str, Any]] = []
    for document in documents:
        content, dropped = drop_ignored_fields(document)
        notices += dropped
        contents.append(content)
        model, wrong = _validate(document, content)
        found += [*wrong, *checks.check_document(document)]
        reported = {error.path for error in wrong}
        found += islice((r for r in checks.check_templates(document) if r.path not in reported), _MOST_ERRORS)
        models += [model] if model is not None else []
    found += checks.check_together(documents)
    if found:
        raise InvalidManifestError(_in_order(found))
    return _build(models, notices, contents)


def _validate(document: Document, content: dict[str, Any]) -> tuple[BaseModel | None, list[FieldError]]:
    model = document_schema.KINDS.get(document.kind)
    if model is None:
        if not document.content.get("kind"):
            known = ", ".join(document_schema.KINDS)
            return None, [document.field_error(("kind",), "is missing", f"add one of {known}")]
        hint = did_you_mean(document.kind, list(document_schema.KINDS))
        return None, [document.field_error(("kind",), f"EDL does not run a {document.kind}", hint)]
    try:
        return model.model_validate(content), []
    except ValidationError as error:
        found = error.errors()[:_MOST_ERRORS]
        places = {details["loc"] for details in found}
        return None, [
            _explain(document, model, details) for details in found if not _is_follow_up_error(details, places)
        ]


def _is_follow_up_error(details: ErrorDetails, places: set[tuple[PathStep, ...]]) -> bool:
    """True if a list counts as too short only because its items were refused."""
    place = details["loc"]
    return details["type"] == "too_short" and any(p[: len(place)] == place and p != place for p in places)


def _explain(document: Document, model: type[BaseModel], details: ErrorDetails) -> FieldError:
    path: tuple[PathStep, ...] = details["loc"]
    given = details["input"]
    match details["type"]:
        case "extra_forbidden":
            hint = _HINTS.get(str(path[-1])) or did_you_mean(str(path[-1]), _known_fields(model, path[:-1]))
            return document.field_error(path, "unknown field", hint)
        case "missing":
            return document.field_error(path, "is missing", _hint_for_missing(model, path))
        case "value_error":
            return document.field_error(path, details["msg"].removeprefix("Value error, "), "")
        case "too_short" if path[-1] == "containers":
            return document.field_error(path, "has no container", "add one container with its requests")
        case "too_long" if path[-1] == "containers":
            return document.field_error(path, "a local pod is one process", "keep one container")
        case "string_pattern_mismatch":
            return document.field_error(path, f"{given!r} is not a Kubernetes name", "lower case letters, digits and -")
        case "string_too_long":
            return document.field_error(
                path, f"{_shown(given)} is too long", f"at most {details['ctx']['max_length']} characters"
            )
        case "invalid_key":
            return document.field_error(path[:-1], f"{given!r} is not a field name", "field names are text")
        case _:
            wanted = _WANTED.get(details["type"]) or details["msg"].removeprefix("Input should be ")
            problem = "has no value" if given is None else f"{_shown(given)} is not allowed"
            return document.field_error(path, problem, f"should be {wanted}")


def _shown(given: Any) -> str:
    """The value in the file, shortened."""
    text = repr(given) if isinstance(given, (str, int, float)) else str(given)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _hint_for_missing(model: type[BaseModel], path: Sequence[PathStep]) -> str:
    field = next((f for name, f in model.model_fields.items() if (f.alias or name) == path[0]), None)
    choices = get_args(field.annotation) if field is not None and len(path) == 1 else ()
    return f"add {path[0]}: {choices[0]}" if choices else ""


def _known_fields(model: type[BaseModel], path: Sequence[PathStep]) -> list[str]:
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


def _in_order(errors: Iterable[FieldError]) -> list[FieldError]:
    """Errors by file and line; of two for the same field, the one with the longer hint."""
    unique: dict[tuple[str, int, str, str], FieldError] = {}
    for error in errors:
        key = (error.file, error.line, error.document, error.path)
        if key not in unique or len(error.hint) > len(unique[key].hint):
            unique[key] = error
    return sorted(unique.values(), key=lambda error: (error.file, error.line))


def _build(models: Sequence[BaseModel], notices: Sequence[str], contents: Sequence[Mapping[str, Any]]) -> Manifests:
    jobs = [build_job(m) for m in models if isinstance(m, document_schema.TrainingJobModel)]
    return Manifests(
        jobs=tuple(job for job, _ in jobs),
        deployments=tuple(build_deployment(m) for m in models if isinstance(m, document_schema.DeploymentModel)),
        classes=tuple(build_class(m) for m in models if isinstance(m, document_schema.PriorityClassModel)),
        nodes=tuple(n for m in models if isinstance(m, document_schema.LocalClusterModel) for n in build_nodes(m)),
        notices=(*notices, *(notice for _, job_notices in jobs for notice in job_notices)),
        contents=tuple(contents),
    )
