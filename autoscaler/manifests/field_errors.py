"""Field errors of a file: each has place, problem and hint; all are reported together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One wrong field of one document.  `path` (`spec.trainer.minReplicas`) is empty for the document itself."""

    file: str
    line: int
    document: str  # "document 2, TrainingJob digits"
    path: str
    problem: str
    hint: str

    def __str__(self) -> str:
        field = f"{self.path}: " if self.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.file}:{self.line} ({self.document}) {field}{self.problem}{hint}"


class InvalidManifestError(ValueError):
    """Files that EDL refuses.  Nothing was started; `errors` has every error."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint for a misspelt name: the nearest known one, or the list of all."""
    exact = {k.lower(): k for k in known}
    near = [exact[n] for n in get_close_matches(name.lower(), list(exact), n=1, cutoff=0.6)]
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
