"""The errors of the experiments, in one tree.

::

    ExperimentError
    |-- RefusedInputError    a file of ours or the user's is wrong: names the file, the field's path and what to do
    |-- MixedCommitsError    results of two commits would be reported as one
    |-- ProcessLostError     a process that ran a pass was killed
    `-- UnsolvedError        a bound was asked for and the solver gave none

Nothing was run, written or drawn when one of them is raised; but for ProcessLostError, after which what was kept stays.
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
        """Come whole out of a process that ran a pass; the message alone would not build it again."""
        return type(self), (self.file, self.path, self.problem, self.hint)


class MixedCommitsError(ExperimentError):
    """Results of more than one commit lie in one folder."""


class ProcessLostError(ExperimentError):
    """A process was killed from outside, for its memory perhaps."""


class UnsolvedError(ExperimentError):
    """The solver ended without an answer; a bound that is not proved is none."""
