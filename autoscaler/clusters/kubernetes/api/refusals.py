"""An answer of the server that is not 2xx, as one of our errors.  Pure.

The server's `Status` tells more than its code: a 409 is a name taken or an object changed, a 403 is said by a quota, a
LimitRange, RBAC or a namespace on its way out.  Where it has no machine-readable cause, its message is read; those
words are pinned by the contract suite on a real server.
"""

from __future__ import annotations

import re
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ExpiredError,
    FieldProblem,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Refusal,
    ThrottledError,
    UnauthorizedError,
    UnavailableError,
)
from autoscaler.errors import ClusterError

_LONGEST_MESSAGE: Final = 500
_DEFAULT_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 60.0
_REFUSALS: Final = (
    (re.compile(r"\bexceeded quota: |\bfailed quota: "), Refusal.QUOTA),
    (re.compile(r"\b(?:minimum|maximum) \S+ usage per |\blimit to request ratio per "), Refusal.LIMIT_RANGE),
    (re.compile(r"\bviolates PodSecurity "), Refusal.POD_SECURITY),
    (re.compile(r"\b(?:User|user) \S+ cannot \S+ "), Refusal.RBAC),
)


def error_of(
    code: int, status: object, *, doing: str, is_write: bool, is_secret: bool = False, retry_after: str | None = None
) -> ClusterError:
    """The error for an answer of `code` whose body was `status` (a Status object, or anything else).

    `doing` opens the message ("create pods default/x"); with `is_secret` only names of fields are quoted.
    """
    told = status if isinstance(status, dict) and status.get("kind") == "Status" else {}
    reason = str(told.get("reason") or "")
    details = _dict(told.get("details"))
    causes = [_dict(cause) for cause in details.get("causes") or ()]
    words = "" if is_secret else str(told.get("message") or "")
    message = f"{doing}: {words or reason or f'HTTP {code}'}"[:_LONGEST_MESSAGE]
    wait_s = _retry_s(details, retry_after)
    match code:
        case 401 | 429:
            return (UnauthorizedError if code == 401 else ThrottledError)(message, retry_after_s=wait_s)
        case 403:
            return ForbiddenError(message, _refusal_of(str(told.get("message") or ""), causes))
        case 404 | 410:
            return (NotFoundError if code == 404 else ExpiredError)(message)
        case 409:
            return (AlreadyExistsError if reason == "AlreadyExists" else ConflictError)(message)
        case 422 if any(cause.get("field") == "metadata.uid" for cause in causes):
            return ConflictError(message)  # a patch meant another object of the same name
        case 422:
            return InvalidError(message, tuple(_problem(cause, is_secret=is_secret) for cause in causes))
        case _ if code >= 500:
            return UnavailableError(message, may_have_happened=is_write, retry_after_s=wait_s)
        case _:
            return BadRequestError(message)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _refusal_of(message: str, causes: list[dict[str, Any]]) -> Refusal:
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return Refusal.NAMESPACE_TERMINATING
    return next((refusal for words, refusal in _REFUSALS if words.search(message)), Refusal.ADMISSION)


def _problem(cause: dict[str, Any], *, is_secret: bool) -> FieldProblem:
    message = str(cause.get("reason" if is_secret else "message") or "")
    return FieldProblem(path=str(cause.get("field") or ""), message=message[:_LONGEST_MESSAGE])


def _retry_s(details: dict[str, Any], retry_after: str | None) -> float:
    for told in (retry_after, details.get("retryAfterSeconds")):
        try:
            asked_s = float(told or "")
        except (TypeError, ValueError):
            continue
        if asked_s >= 0:  # and a number
            return min(asked_s, _LONGEST_RETRY_S)
    return _DEFAULT_RETRY_S
