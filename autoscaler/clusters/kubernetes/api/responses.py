"""Parsing of API responses: pages of a list, lines of a watch, single objects, and errors by HTTP code.  Pure.

A proxy may answer in the server's place, and a server may have a fault.  An invalid response raises a typed error:
`MalformedError` asks for a new list after a pause.  An object counts as one if it has a name and a version; `parsing`
checks the rest.  A `Status` contains more than its code: a 403 comes from a quota, a LimitRange, RBAC or a namespace
that terminates.  Where it has no machine-readable cause, its message is matched; the contract suite pins that text on a
real server.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import EventType, Raw, WatchEvent, without_managed_fields
from autoscaler.clusters.kubernetes.api.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ExpiredError,
    FieldProblem,
    ForbiddenError,
    InvalidError,
    MalformedError,
    NotFoundError,
    RefusedBy,
    ThrottledError,
    UnauthorizedError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.errors import ClusterError

_QUOTED: Final = 80  # characters of a response in a message

_MOST_NESTING_LEVELS: Final = 100
"""Nesting depth that is kept of a body too deep for Python; a pod has a dozen levels."""

_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_TOKEN: Final = re.compile(rb'[\[{](?:[^"\[\]{}]++|' + _TEXT + rb")*+[\]}]|" + _TEXT + rb"|[\[{\]}]", re.DOTALL)
"""A list or mapping without another one in it, a text, or the begin or end of a list or mapping."""


def decode_json(body: bytes | bytearray) -> Any:
    """Decode JSON; in a body too deep for Python, null replaces what lies below `_MOST_NESTING_LEVELS`.

    An API server accepts 10,000 levels (managed fields, unknown fields), and one such object would make the list of its
    kind unreadable (A11).  Nothing that EDL reads lies so deep.  Raises ValueError or RecursionError for invalid JSON.
    """
    try:
        return json.loads(body)
    except RecursionError:
        return json.loads(_truncate_nesting(bytes(body)))


def _truncate_nesting(body: bytes) -> bytes:
    kept: list[bytes] = []
    depth = start = 0
    for sign in _TOKEN.finditer(body):
        match sign[0]:
            case b"[" | b"{":
                depth += 1
                if depth == _MOST_NESTING_LEVELS + 1:
                    kept += [body[start : sign.start()], b"null"]
            case b"]" | b"}":
                if depth == _MOST_NESTING_LEVELS + 1:
                    start = sign.end()
                depth -= 1
            case _:  # nothing goes deeper in it
                pass
    return b"".join([*kept, body[start:]])


def parse_watch_line(line: bytes, kind: Kind, *, description: str) -> WatchEvent:
    """Parse one line of a watch.  Raises the error of an ERROR event, MalformedError for an invalid line."""
    try:
        decoded = decode_json(line)
        type_, obj = decoded["type"], decoded["object"]
        if type_ == "ERROR":
            raise error_of_status(int(obj.get("code") or 500), obj, description=description, is_write=False)
        event = WatchEvent(type=EventType(type_), object=_object(obj, kind))
        if event.type is not EventType.BOOKMARK:
            _check_named(event.object)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _malformed(description, line.decode(errors="replace")) from error
    return event


def parse_list_page(page: object, kind: Kind, *, description: str) -> tuple[list[Raw], str, str]:
    """Return a page's objects, its version and its `continue` token, empty on the last page.  Raises MalformedError."""
    try:
        decoded: Any = page
        items = [_object(item, kind) for item in decoded["items"] or ()]
        for item in items:
            _check_named(item)
        metadata = decoded["metadata"]
        return items, str(int(str(metadata["resourceVersion"]))), str(metadata.get("continue") or "")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _malformed(description, str(page)) from error


def parse_object(answer: object, *, description: str, is_write: bool) -> Raw:
    """Return the object, or the Status, of a response.  Raises UnavailableError for an invalid one."""
    if not isinstance(answer, dict) or not isinstance(answer.get("metadata", {}), dict):
        raise UnavailableError(_unexpected_response(description, str(answer)), may_have_happened=is_write)
    return without_managed_fields(answer)


def with_type(body: Raw, kind: Kind) -> Raw:
    """Return the object with `kind` and `apiVersion`, which items of a list lack on the wire."""
    return {"apiVersion": kind.api_version, "kind": kind.kind} | body


def _object(item: Any, kind: Kind) -> Raw:
    int(str(item["metadata"]["resourceVersion"]))
    return without_managed_fields(with_type(item, kind))


def _check_named(item: Raw) -> None:
    metadata = item["metadata"]
    if not isinstance(metadata["name"], str) or not isinstance(metadata.get("namespace", ""), str):
        raise TypeError("an object without a name")


def _malformed(description: str, body: str) -> MalformedError:
    return MalformedError(_unexpected_response(description, body))


def _unexpected_response(description: str, body: str) -> str:
    return f"{description}: unexpected response: {body[:_QUOTED]!r}"


_LONGEST_MESSAGE: Final = 500
_DEFAULT_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 60.0
_REFUSALS: Final = (
    (re.compile(r"\bexceeded quota: |\bfailed quota: "), RefusedBy.QUOTA),
    (re.compile(r"\b(?:minimum|maximum) \S+ usage per |\blimit to request ratio per "), RefusedBy.LIMIT_RANGE),
    (re.compile(r"\bviolates PodSecurity "), RefusedBy.POD_SECURITY),
    (re.compile(r"\b(?:User|user) \S+ cannot \S+ "), RefusedBy.RBAC),
)


def error_of_status(
    code: int,
    status: object,
    *,
    description: str,
    is_write: bool,
    is_secret: bool = False,
    retry_after: str | None = None,
) -> ClusterError:
    """Return the error for a response of this HTTP `code` and body `status` (a Status object, or anything else).

    `description` opens the message ("create pods default/x"); with `is_secret` the message quotes field names alone.
    """
    found = status if isinstance(status, dict) and status.get("kind") == "Status" else {}
    reason = str(found.get("reason") or "")
    details = _dict(found.get("details"))
    causes = [_dict(cause) for cause in details.get("causes") or ()]
    quoted = "" if is_secret else str(found.get("message") or "")
    message = f"{description}: {quoted or reason or f'HTTP {code}'}"[:_LONGEST_MESSAGE]
    wait_s = _retry_s(details, retry_after)
    match code:
        case 401 | 429:
            return (UnauthorizedError if code == 401 else ThrottledError)(message, retry_after_s=wait_s)
        case 403:
            return ForbiddenError(message, _refusal_of(str(found.get("message") or ""), causes))
        case 404 | 410:
            return (NotFoundError if code == 404 else ExpiredError)(message)
        case 409:
            return (AlreadyExistsError if reason == "AlreadyExists" else ConflictError)(message)
        case 422 if any(cause.get("field") == "metadata.uid" for cause in causes):
            return ConflictError(message)  # the patch was for another object of this name
        case 422:
            return InvalidError(message, tuple(_problem(cause, is_secret=is_secret) for cause in causes))
        case _ if code >= 500:
            return UnavailableError(message, may_have_happened=is_write, retry_after_s=wait_s)
        case _:
            return BadRequestError(message)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _refusal_of(message: str, causes: list[dict[str, Any]]) -> RefusedBy:
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return RefusedBy.NAMESPACE_TERMINATING
    return next((refusal for pattern, refusal in _REFUSALS if pattern.search(message)), RefusedBy.ADMISSION)


def _problem(cause: dict[str, Any], *, is_secret: bool) -> FieldProblem:
    message = str(cause.get("reason" if is_secret else "message") or "")
    return FieldProblem(path=str(cause.get("field") or ""), message=message[:_LONGEST_MESSAGE])


def _retry_s(details: dict[str, Any], retry_after: str | None) -> float:
    for given in (retry_after, details.get("retryAfterSeconds")):
        try:
            retry_after_s = float(given or "")
        except (TypeError, ValueError):
            continue
        if retry_after_s >= 0:  # and a number
            return min(retry_after_s, _LONGEST_RETRY_S)
    return _DEFAULT_RETRY_S
