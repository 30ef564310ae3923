"""Messages between an API socket and its client, one JSON line each: a call, its result, items or error.

    -> {"v": 1, "call": "get", "kind": {...}, "arguments": {"name": "digits", "namespace": "default"}}
    <- {"result": {...}}                                 once
    <- {"item": {...}} ... {"done": true}                of `watch` and `log`
    <- {"error": {"type": "NotFoundError", "message": "..."}}

Pure.  `api_socket` is the server, `socket_client` the client.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import (
    EventType,
    Listing,
    Preconditions,
    Propagation,
    Scope,
    Subresource,
    WatchEvent,
)
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
    NotLeadingError,
    RefusedBy,
    ThrottledError,
    TooLongError,
    UnauthorizedError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.errors import ClusterError, TemporaryError

API_WIRE_VERSION: Final = 1
LONGEST_CALL_BYTES: Final = 2 << 20  # an object that a real API server stores is no longer than 1.5 MiB
LONGEST_MESSAGE_BYTES: Final = 64 << 20

_MESSAGE_ONLY: Final[Mapping[str, Callable[[str], ClusterError]]] = {
    kind.__name__: kind
    for kind in (
        AlreadyExistsError,
        BadRequestError,
        ConflictError,
        ExpiredError,
        MalformedError,
        NotFoundError,
        NotLeadingError,
        TooLongError,
    )
}
"""Errors without other fields than their message."""

_ARGUMENTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "scope": lambda fields: Scope(**fields),
    "only": lambda fields: Preconditions(**fields),
    "subresource": Subresource,
    "propagation": Propagation,
}
"""Parsers of the arguments that are not plain JSON."""


def encode_line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def encode_call(call: str, kind: Kind | None, arguments: Mapping[str, Any]) -> bytes:
    """The line of one call; arguments that are None are left out."""
    plain = {
        name: asdict(value) if isinstance(value, Scope | Preconditions) else value
        for name, value in arguments.items()
        if value is not None
    }
    named = {} if kind is None else {"kind": asdict(kind)}
    return encode_line({"v": API_WIRE_VERSION, "call": call, "arguments": plain, **named})


def decode_call(line: bytes) -> tuple[str, tuple[Kind, ...], dict[str, Any]]:
    """The call's name, its kind if it has one, and its arguments by name.  Raises BadRequestError."""
    try:
        message = json.loads(line)
        if message["v"] != API_WIRE_VERSION:
            raise BadRequestError(
                f"this run speaks version {API_WIRE_VERSION}, the call {message['v']}: use the run's version of edl"
            )
        arguments = {
            name: _ARGUMENTS[name](value) if name in _ARGUMENTS else value
            for name, value in message["arguments"].items()
        }
        kinds = (Kind(**message["kind"]),) if "kind" in message else ()
        return str(message["call"]), kinds, arguments
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadRequestError(f"this is no call: {error!r}") from error


def encode_result(result: object) -> Any:
    """The result of a call, or one item that it yielded, as plain JSON."""
    match result:
        case Listing():
            return {"items": list(result.items), "resource_version": result.resource_version}
        case WatchEvent():
            return {"type": result.type.value, "object": result.object}
        case bytes():
            return base64.b64encode(result).decode("ascii")
        case _:
            return result


def decode_listing(result: Mapping[str, Any]) -> Listing:
    return Listing(items=tuple(result["items"]), resource_version=result["resource_version"])


def decode_event(item: Mapping[str, Any]) -> WatchEvent:
    return WatchEvent(type=EventType(item["type"]), object=item["object"])


def decode_chunk(item: str) -> bytes:
    return base64.b64decode(item)


def encode_error(error: ClusterError) -> dict[str, Any]:
    """Type, message and further fields of the error."""
    fields: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, TemporaryError):
        fields["retry_after_s"] = error.retry_after_s
    if isinstance(error, UnavailableError):
        fields["may_have_happened"] = error.may_have_happened
    if isinstance(error, InvalidError):
        fields["problems"] = [asdict(problem) for problem in error.problems]
    if isinstance(error, ForbiddenError):
        fields["refusal"] = error.refused_by.value
    return fields


def decode_error(fields: Mapping[str, Any]) -> ClusterError:
    """The error that was encoded; UnavailableError for a type that this version does not know."""
    message, retry_after_s = str(fields["message"]), float(fields.get("retry_after_s", 1.0))
    match fields["type"]:
        case "InvalidError":
            return InvalidError(message, tuple(FieldProblem(**problem) for problem in fields["problems"]))
        case "ForbiddenError":
            return ForbiddenError(message, RefusedBy(fields["refusal"]))
        case "ThrottledError":
            return ThrottledError(message, retry_after_s=retry_after_s)
        case "UnauthorizedError":
            return UnauthorizedError(message, retry_after_s=retry_after_s)
        case known if known in _MESSAGE_ONLY:
            return _MESSAGE_ONLY[known](message)
        case _:
            may_have_happened = bool(fields.get("may_have_happened", True))
            return UnavailableError(message, may_have_happened=may_have_happened, retry_after_s=retry_after_s)
