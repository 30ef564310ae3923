"""How an API server refuses, typed once at the door.

::

    ClusterError
    |-- TemporaryError
    |   |-- UnavailableError    5xx, connection lost, deadline: a write may stand (`may_have_happened`)
    |   |-- ThrottledError      429: wait `retry_after_s`
    |   |-- ConflictError       409: not the object that was meant, or another manager's field: read again
    |   |-- ExpiredError        410: the version is forgotten: list again
    |   |-- TooLongError        the answer is longer than was to be taken: ask for less
    |   |-- MalformedError      an answer that is none (a proxy's, a fault's): list again
    |   `-- UnauthorizedError   401: the token is read again before the next call
    `-- PermanentError
        |-- NotFoundError       404
        |-- AlreadyExistsError  409 on a creation
        |-- InvalidError        422: `problems` name the fields
        |-- ForbiddenError      403: `refusal` says by whom
        |-- BadRequestError     any other 4xx: a bug of ours, or an API that the server does not have
        `-- NotLeadingError     this process must not write

A message holds no secret: of a Secret only the names of fields are told.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.errors import PermanentError, TemporaryError


class RefusedBy(StrEnum):
    """Who said no with a 403."""

    QUOTA = "quota"
    LIMIT_RANGE = "limit-range"
    RBAC = "rbac"
    NAMESPACE_TERMINATING = "namespace-terminating"
    POD_SECURITY = "pod-security"
    ADMISSION = "admission"  # a webhook, a policy, an unknown priority class or service account


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """What is wrong with one field; `path` as the server writes it (`spec.trainer.minReplicas`)."""

    path: str
    message: str


class UnavailableError(TemporaryError):
    """The server did not answer.  `may_have_happened`: a write was sent and may stand; False: nothing was written."""

    def __init__(self, message: str, *, may_have_happened: bool, retry_after_s: float = 1.0) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.may_have_happened = may_have_happened


class ThrottledError(TemporaryError):
    """The server asks for patience: nothing was done."""


class ConflictError(TemporaryError):
    """The object is not the one that was meant, or another manager holds the field: nothing was done."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=0.0)


class ExpiredError(TemporaryError):
    """The server no longer knows that version: list again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=0.0)


class MalformedError(TemporaryError):
    """What came is no answer to what was asked: list again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=1.0)


class TooLongError(TemporaryError):
    """The answer is longer than was to be taken."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=1.0)


class UnauthorizedError(TemporaryError):
    """The server does not know us: the token has run out, or the certificate is another cluster's."""


class NotFoundError(PermanentError):
    """There is no such object, or no such kind or namespace."""


class AlreadyExistsError(PermanentError):
    """An object of that name stands already."""


class InvalidError(PermanentError):
    """The object breaks its schema or a rule."""

    def __init__(self, message: str, problems: tuple[FieldProblem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class ForbiddenError(PermanentError):
    """The server understood and does not want to."""

    def __init__(self, message: str, refusal: RefusedBy) -> None:
        super().__init__(message)
        self.refused_by = refusal


class BadRequestError(PermanentError):
    """The server did not understand: our bug, or an API that it does not have."""


class NotLeadingError(PermanentError):
    """This process does not hold the Lease: it must not write."""
