"""What a server has said, as objects: pages of a listing, lines of a watch, answers.  Pure.

A proxy between may put in words of its own, a server may have a fault.  What is not what was asked for is refused here,
typed, so that nobody behind the door meets it: `MalformedError` asks for a new listing, after a pause.  An object is
taken for one when it says its name and its version; what else it says is `reading`'s to judge.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.errors import MalformedError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.api.port import EventType, Raw, WatchEvent, without_bookkeeping
from autoscaler.clusters.kubernetes.api.refusals import error_of

_QUOTED: Final = 80  # characters of what was said

_MOST_LEVELS: Final = 100
"""Of lists and mappings in one another that are kept, where there are too many to read; a pod has a dozen."""

_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_SIGN: Final = re.compile(rb'[\[{](?:[^"\[\]{}]++|' + _TEXT + rb")*+[\]}]|" + _TEXT + rb"|[\[{\]}]", re.DOTALL)
"""A list or mapping with none in it, a text, or where a list or a mapping begins or ends."""


def decode(said: bytes | bytearray) -> Any:
    """What JSON says; where it is nested too deeply for Python, `null` stands for what lies below `_MOST_LEVELS`.

    An API server takes 10,000 levels from whoever may write one object, in its managed fields or where a definition
    keeps what it does not know; one such object made the listing of its kind unreadable (A11).  Nothing that anybody
    reads lies so deep.  Raises ValueError or RecursionError for what is no JSON.
    """
    try:
        return json.loads(said)
    except RecursionError:
        return json.loads(_without_depths(bytes(said)))


def _without_depths(said: bytes) -> bytes:
    kept: list[bytes] = []
    depth = start = 0
    for sign in _SIGN.finditer(said):
        match sign[0]:
            case b"[" | b"{":
                depth += 1
                if depth == _MOST_LEVELS + 1:
                    kept += [said[start : sign.start()], b"null"]
            case b"]" | b"}":
                if depth == _MOST_LEVELS + 1:
                    start = sign.end()
                depth -= 1
            case _:  # nothing goes deeper in it
                pass
    return b"".join([*kept, said[start:]])


def read_line(line: bytes, kind: Kind, *, doing: str) -> WatchEvent:
    """One line of a watch.  Raises what an ERROR tells, MalformedError for what is no event."""
    try:
        told = decode(line)
        type_, obj = told["type"], told["object"]
        if type_ == "ERROR":
            raise error_of(int(obj.get("code") or 500), obj, doing=doing, is_write=False)
        event = WatchEvent(type=EventType(type_), object=_object(obj, kind))
        if event.type is not EventType.BOOKMARK:
            _check_named(event.object)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _malformed(doing, line.decode(errors="replace")) from error
    return event


def read_page(page: object, kind: Kind, *, doing: str) -> tuple[list[Raw], str, str]:
    """A page's objects, its version, and where the rest is: empty on the last page.  Raises MalformedError."""
    try:
        told: Any = page
        items = [_object(item, kind) for item in told["items"] or ()]
        for item in items:
            _check_named(item)
        metadata = told["metadata"]
        return items, str(int(str(metadata["resourceVersion"]))), str(metadata.get("continue") or "")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _malformed(doing, str(page)) from error


def read_object(answer: object, *, doing: str, is_write: bool) -> Raw:
    """The answer to a request for one object, or its Status.  Raises UnavailableError: a write may stand."""
    if not isinstance(answer, dict) or not isinstance(answer.get("metadata", {}), dict):
        raise UnavailableError(_words(doing, str(answer)), may_have_happened=is_write)
    return without_bookkeeping(answer)


def typed(body: Raw, kind: Kind) -> Raw:
    """With kind and version: an item of a list says neither on the wire; here every object does."""
    return {"apiVersion": kind.api_version, "kind": kind.kind} | body


def _object(item: Any, kind: Kind) -> Raw:
    int(str(item["metadata"]["resourceVersion"]))
    return without_bookkeeping(typed(item, kind))


def _check_named(item: Raw) -> None:
    metadata = item["metadata"]
    if not isinstance(metadata["name"], str) or not isinstance(metadata.get("namespace", ""), str):
        raise TypeError("an object without a name")


def _malformed(doing: str, said: str) -> MalformedError:
    return MalformedError(_words(doing, said))


def _words(doing: str, said: str) -> str:
    return f"{doing}: no answer to that: {said[:_QUOTED]!r}"
