"""What `edl validate --on kubernetes` says of files: what definition and operator would, and no cluster is asked.

Beside `edl run`'s own checks it takes what only a cluster has (several containers, volumes, no command), and tells a
field too that no Kubernetes known to this version has, which an API server drops without a word (ADR 0161).
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
    """Names of the jobs that would be taken, and what was not judged."""

    jobs: tuple[str, ...]
    notices: tuple[str, ...]


def validate_files(files: Iterable[Path]) -> ValidFiles:
    """The jobs of these files as a cluster would take them.  Raises RefusedInputError with every refusal."""
    jobs: list[str] = []
    notices: list[str] = []
    refusals: list[FieldError] = []
    for file in files:
        documents, wrong = read_documents(file)
        refusals += wrong
        for document in documents:
            if document.kind == _JOB:
                refusals += _validate(document)
                jobs.append(document.name)
            else:
                notices.append(f"{document.file}: {document.kind} {document.name} is not EDL's to judge")
    if refusals:
        raise InvalidManifestError(refusals)
    return ValidFiles(jobs=tuple(jobs), notices=tuple(notices))


def _validate(document: Document) -> Sequence[FieldError]:
    found = list(check_templates(document))
    raw: dict[str, Any] = copy.deepcopy(dict(document.content))
    raw.pop("status", None)
    metadata = raw.get("metadata")
    raw["metadata"] = {"namespace": "default", **(metadata if isinstance(metadata, dict) else {})}
    try:
        parse_job(raw)
    except InvalidSpecError as error:
        if error.path not in {refusal.path for refusal in found}:
            found.append(_refuse(document, error))
    return sorted(found, key=lambda refusal: refusal.line)


def _refuse(document: Document, error: InvalidSpecError) -> FieldError:
    like = document.field_error(tuple(_steps_of(error.path)), error.problem, error.hint)
    return FieldError(
        file=like.file, line=like.line, document=like.document, path=error.path, problem=like.problem, hint=like.hint
    )


def _steps_of(path: str) -> Iterator[str | int]:
    """To find the line; a name with a dot in it ends the search at what holds it."""
    for step in _STEP.findall(path):
        yield int(step) if step.isdecimal() else step
