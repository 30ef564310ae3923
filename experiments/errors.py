"""The errors of the experiments, in one tree.

::

    ExperimentError
    |-- RefusedInputError    an input file is wrong: names the file, the field's path and what to do
    |-- MixedCommitsError    results of two commits would be reported as one
    |-- ProcessLostError     a process that ran a pass was killed
    `-- UnsolvedError        the solver did not prove a bound

When one of them is raised nothing was run, written or drawn; after ProcessLostError the stored passes remain.
"""

from __future__ import annotations

from pathlib import Path


class ExperimentError(Exception):
    """Root of the tree; the command line turns it into one line and an exit code."""


class RefusedInputError(ExperimentError):
    """A file cannot be used.  `path` is the field in it (`jobs[2].trainer.cpu`, `line 7, time_s`), or empty."""

    def __init__(self, file: Path | str, path: str, problem: str, hint: str = "") -> None:
        where = f"{file}: {path}" if path else str(file)
        super().__init__(f"{where}: {problem}" + (f"; {hint}" if hint else ""))
        self.file = str(file)
        self.path = path
        self.problem = problem
        self.hint = hint

    def __reduce__(self) -> tuple[type[RefusedInputError], tuple[str, ...]]:
        """Make the error picklable with all its fields."""
        return type(self), (self.file, self.path, self.problem, self.hint)


class MixedCommitsError(ExperimentError):
    """Results of more than one commit lie in one folder."""


class ProcessLostError(ExperimentError):
    """A process was killed from outside, for its memory perhaps."""


class UnsolvedError(ExperimentError):
    """The solver ended without an answer; an unproved bound is not used."""
