"""Messages on the control socket: one bounded JSON line each, with a version in each request.

    -> {"v": 1, "do": "get", "type": "tj", "name": "digits"}
    <- {"ok": true, "result": ...}                              once
    <- {"ok": true, "item": ...} ... {"ok": true, "done": true}  for what is watched
    <- {"ok": false, "error": "NotFound", "message": "..."}

Both ends are of one release as a rule; an older server refuses a newer request by its version, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

WIRE_VERSION: Final = 1
LONGEST_REQUEST_BYTES: Final = 64 << 10
LONGEST_ANSWER_BYTES: Final = 16 << 20


class RequestProblem(StrEnum):
    """Why a request was refused; the command line turns it into an exit code."""

    NOT_FOUND = "NotFound"
    REFUSED = "Refused"
    USAGE = "Usage"
    INTERNAL = "Internal"


class RequestError(Exception):
    """The run refuses the request; nothing has changed."""

    def __init__(self, problem: RequestProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


def encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, default=str).encode() + b"\n"


def decode(line: bytes) -> Mapping[str, Any]:
    """Raises RequestError unless the line is one JSON object."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(RequestProblem.USAGE, f"no JSON: {error}") from error
    if not isinstance(content, dict):
        raise RequestError(RequestProblem.USAGE, "a request is a JSON object")
    return content
