"""How a user hears that a file is refused: where, what, and what to do; everything wrong with it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One thing wrong in one document.  `path` is the field's (`spec.trainer.minReplicas`), empty for the document."""

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
    """Files that EDL does not run.  Nothing was started; `refusals` holds everything that was found."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("\n".join(str(refusal) for refusal in errors))
        self.errors = tuple(errors)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint for a misspelt name; lists what is known when nothing is near."""
    exact = {k.lower(): k for k in known}
    near = [exact[n] for n in get_close_matches(name.lower(), list(exact), n=1, cutoff=0.6)]
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
