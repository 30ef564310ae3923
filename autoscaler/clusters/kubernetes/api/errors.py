"""Errors of an API server, as one tree.

::

    ClusterError
    |-- TemporaryError
    |   |-- UnavailableError    5xx, connection lost, deadline: a write may have happened (`may_have_happened`)
    |   |-- ThrottledError      429: wait `retry_after_s`
    |   |-- ConflictError       409: a precondition failed, or another manager has the field: read again
    |   |-- ExpiredError        410: the version is compacted: list again
    |   |-- TooLongError        the response is longer than the caller accepts: ask for less
    |   |-- MalformedError      no valid response (a proxy's page, say): list again
    |   `-- UnauthorizedError   401: the token is read again before the next call
    `-- PermanentError
        |-- NotFoundError       404
        |-- AlreadyExistsError  409 on a creation
        |-- InvalidError        422: `problems` name the fields
        |-- ForbiddenError      403: `refused_by` says by whom
        |-- BadRequestError     any other 4xx: a bug of EDL, or an API that the server lacks
        `-- NotLeadingError     this process is not the leader and must not write

A message holds no secret: of a Secret it names fields alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.errors import PermanentError, TemporaryError


class RefusedBy(StrEnum):
    """Component that refused a request with a 403."""

    QUOTA = "quota"
    LIMIT_RANGE = "limit-range"
    RBAC = "rbac"
    NAMESPACE_TERMINATING = "namespace-terminating"
    POD_SECURITY = "pod-security"
    ADMISSION = "admission"  # a webhook, a policy, an unknown priority class or service account


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """One invalid field; `path` as the server writes it (`spec.trainer.minReplicas`)."""

    path: str
    message: str


class UnavailableError(TemporaryError):
    """The server did not answer.  `may_have_happened`: the write was sent; False: nothing was written."""

    def __init__(self, message: str, *, may_have_happened: bool, retry_after_s: float = 1.0) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.may_have_happened = may_have_happened


class ThrottledError(TemporaryError):
    """The server throttles the client; the request was not carried out."""


class ConflictError(TemporaryError):
    """A precondition failed, or another manager owns the field; nothing has changed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=0.0)


class ExpiredError(TemporaryError):
    """The resource version has been compacted: list again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=0.0)


class MalformedError(TemporaryError):
    """The response is not valid: list again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=1.0)


class TooLongError(TemporaryError):
    """The response is longer than the caller accepts."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=1.0)


class UnauthorizedError(TemporaryError):
    """The server rejects the credentials: an expired token, or a certificate of another cluster."""


class NotFoundError(PermanentError):
    """The object, its kind or its namespace does not exist."""


class AlreadyExistsError(PermanentError):
    """An object of that name exists."""


class InvalidError(PermanentError):
    """The object violates its schema or a validation rule."""

    def __init__(self, message: str, problems: tuple[FieldProblem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class ForbiddenError(PermanentError):
    """The server refuses the request (RBAC, quota, admission)."""

    def __init__(self, message: str, refusal: RefusedBy) -> None:
        super().__init__(message)
        self.refused_by = refusal


class BadRequestError(PermanentError):
    """The server does not understand the request: a bug of EDL, or an API that the server lacks."""


class NotLeadingError(PermanentError):
    """This process does not hold the Lease, so it must not write."""
