"""Errors of the cluster side, in one tree.

::

    AutoscalerError
    |-- InvalidViewError       an adapter handed over a view that contradicts itself: a bug there, nothing is planned
    |-- InvalidSpecError       a user's document is wrong: names the field's path and what to do
    |-- ClusterError           the cluster could not be read or written
    |   |-- TemporaryError     a retry after `retry_after_s` may succeed
    |   `-- PermanentError     a retry cannot help
    `-- InvariantViolationError  an invariant of EDL is violated: stop and show the details

Expected refusals (capacity taken, pod gone) are not errors: `cluster_port.WriteOutcome`.
"""

from __future__ import annotations

from typing import Final

LONGEST_TEXT: Final = 400
"""Characters of each text in a refusal: what stands in a user's document may be as long as etcd lets it be."""


class AutoscalerError(Exception):
    """Root of the tree; the command line turns it into one line and an exit code."""


class InvalidViewError(AutoscalerError):
    """A view contradicts itself (a node twice, a negative capacity): no decision may rest on it."""


class InvalidSpecError(AutoscalerError):
    """A user's document is wrong.  `path` is the field (`spec.trainer.minReplicas`), `hint` what to write instead.

    Path and problem are cut to `LONGEST_TEXT`.
    """

    def __init__(self, path: str, problem: str, hint: str = "") -> None:
        path, problem = _cut(path), _cut(problem)
        super().__init__(f"{path}: {problem}" + (f" ({hint})" if hint else ""))
        self.path = path
        self.problem = problem
        self.hint = hint


class ClusterError(AutoscalerError):
    """The cluster could not be read or written."""


class TemporaryError(ClusterError):
    """A retry after `retry_after_s` seconds may succeed."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class PermanentError(ClusterError):
    """A retry cannot help: a user has to change something."""


class InvariantViolationError(AutoscalerError):
    """An invariant of EDL is violated; the message has the details."""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 4]} ..."


def error_text(error: BaseException) -> str:
    """Kind and message of any error on one line of at most `LONGEST_TEXT` characters."""
    message = " ".join(str(error)[:LONGEST_TEXT].split())
    return _cut(f"{type(error).__name__}: {message}" if message else type(error).__name__)
