"""Validation of files as the definition and the operator would validate them; no cluster is contacted.

What only a cluster has is accepted here (several containers, volumes, no command).  A field that no Kubernetes known to
this version has is reported, since an API server drops it silently (ADR 0161).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.errors import InvalidSpecError
from autoscaler.manifests import FieldError, InvalidManifestError
from autoscaler.manifests.checks import check_templates
from autoscaler.manifests.documents import Document, read_documents

_STEP: Final = re.compile(r"[^.\[\]]+")
_JOB: Final = "TrainingJob"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidFiles:
    """Names of the valid jobs, and notices: documents of another kind, jobs that keep no model."""

    jobs: tuple[str, ...]
    notices: tuple[str, ...]


def validate_files(files: Iterable[Path]) -> ValidFiles:
    """The jobs of these files that a cluster would accept.  Raises InvalidManifestError with every error."""
    jobs: list[str] = []
    notices: list[str] = []
    errors: list[FieldError] = []
    for file in files:
        documents, wrong = read_documents(file)
        errors += wrong
        for document in documents:
            if document.kind == _JOB:
                found, notice = _validate(document)
                errors += found
                notices += [f"TrainingJob {document.name}: {notice}"] if notice else []
                jobs.append(document.name)
            else:
                notices.append(
                    f"{document.file}: {document.kind} {document.name} is not checked: EDL checks TrainingJobs alone"
                )
    if errors:
        raise InvalidManifestError(errors)
    return ValidFiles(jobs=tuple(jobs), notices=tuple(notices))


def validate_document(document: Document) -> Sequence[FieldError]:
    """Errors of a TrainingJob that a cluster would not accept."""
    errors, _ = _validate(document)
    return errors


def _validate(document: Document) -> tuple[Sequence[FieldError], str]:
    """The errors of a job, and what its owner should know though it is valid."""
    found, notice = list(check_templates(document)), ""
    raw: dict[str, Any] = copy.deepcopy(dict(document.content))
    raw.pop("status", None)
    metadata = raw.get("metadata")
    raw["metadata"] = {"namespace": "default", **(metadata if isinstance(metadata, dict) else {})}
    try:
        notice = parse_job(raw).spec.notice_of_no_model
    except InvalidSpecError as error:
        if error.path not in {one.path for one in found}:
            found.append(_to_field_error(document, error))
    return sorted(found, key=lambda one: one.line), notice


def _to_field_error(document: Document, error: InvalidSpecError) -> FieldError:
    like = document.field_error(tuple(_steps_of(error.path)), error.problem, error.hint)
    return FieldError(
        file=like.file, line=like.line, document=like.document, path=error.path, problem=like.problem, hint=like.hint
    )


def _steps_of(path: str) -> Iterator[str | int]:
    """Steps of a path, to find its line; a name with a dot ends the search at the field above it."""
    for step in _STEP.findall(path):
        yield int(step) if step.isdecimal() else step
