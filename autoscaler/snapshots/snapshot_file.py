"""The file of a snapshot: kind and version in front, one line for each thing that fits on one.

::

    {"kind": "ClusterSnapshot", "version": 1, "made_by": "edl 0.1.0", "now_s": 75.25,
     "policy": {...}, "view": {"revision": 7, "nodes": [...], "pods": [...], "jobs": [...], "history": {...}}}

EDL reads the version that it writes and refuses every other one.  Whatever `parse_document` accepts, `to_document`
writes again, and `plan` answers as it did when the file was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from autoscaler.domain import ClusterView, Policy
from autoscaler.errors import InvalidSpecError
from autoscaler.snapshots.codec import REPEATED, decode, encode
from master.api.document import shown

KIND: Final = "ClusterSnapshot"
VERSION: Final = 1
_WIDTH: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotContent:
    """All that a plan depends on; the planner's history is in the view.  `now_s`: the cluster's clock."""

    made_by: str = ""  # which EDL, for people
    now_s: float
    policy: Policy
    view: ClusterView


def refuse(path: str, problem: str, hint: str = "") -> NoReturn:
    """Raise InvalidSpecError about the field at `path`."""
    raise InvalidSpecError(path or "the file", problem, hint)


def to_document(snapshot: SnapshotContent) -> dict[str, Any]:
    """Return the plain content of the file.  Raises InvalidSpecError if something cannot be told (NaN, say)."""
    return {"kind": KIND, "version": VERSION, **encode(snapshot, SnapshotContent)}


def from_document(content: Any) -> SnapshotContent:
    """Return what the plain content says.  Raises InvalidSpecError with the path of the field that is wrong."""
    if not isinstance(content, Mapping):
        refuse("", f"holds {shown(content)}", "an object, as edl snapshot save writes it")
    if twice := next((key for key in ("kind", "version") if content.get(key) is REPEATED), None):
        refuse(twice, "is given twice", "remove one")
    if content.get("kind") != KIND:
        refuse("kind", f"is {shown(content.get('kind'))}", f'"{KIND}", as edl snapshot save writes it')
    version = content.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        refuse("version", f"is {shown(version)}", f"a whole number from 1 to {VERSION}, as edl snapshot save writes it")
    if version > VERSION:
        refuse("version", f"is {version}, and this edl reads up to {VERSION}", "use the edl that made the file")
    rest = {key: value for key, value in content.items() if key not in {"kind", "version"}}
    found = decode(rest, SnapshotContent)
    assert isinstance(found, SnapshotContent)
    check_requests(found)
    return found


def check_requests(snapshot: SnapshotContent) -> None:
    """Raise InvalidSpecError for a job whose trainers ask for nothing: they would fit on every node."""
    for number, job in enumerate(snapshot.view.jobs):
        if not any(amount > 0 for _, amount in job.trainer.shape.requests.amounts()):
            path = f"view.jobs[{number}].trainer.shape.requests"
            refuse(path, "requests nothing", "set the trainer requests, at least cpu and memory")


def parse_document(text: str | bytes) -> SnapshotContent:
    """Return what the text of a file says.  Raises InvalidSpecError."""
    try:
        content = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        is_cut = error.msg.startswith("Unterminated string") or error.pos >= len(error.doc.rstrip()) - 1
        refuse(
            f"line {error.lineno}, column {error.colno}",
            f"is not JSON: {error.msg}",
            "the file ends too early: it was cut off" if is_cut else "save it again, or fix that line",
        )
    except UnicodeDecodeError:
        refuse("", "is not a text file (UTF-8)")
    except RecursionError:
        refuse("", "is nested without end")
    except ValueError as error:  # a number of thousands of digits
        refuse("", f"is not JSON that can be read: {error}")
    return from_document(content)


def format_document(content: Mapping[str, Any]) -> str:
    """Return the text of a file: stable, and readable where things are small."""
    return _format(content, 0) + "\n"


def _format(plain: Any, depth: int) -> str:
    line = json.dumps(plain, allow_nan=False)
    if len(line) + depth <= _WIDTH or not plain or not isinstance(plain, (dict, list)):
        return line
    margin = " " * (depth + 1)
    if isinstance(plain, dict):
        inner = [f"{json.dumps(key)}: {_format(value, depth + 1)}" for key, value in plain.items()]
    else:
        inner = [_format(item, depth + 1) for item in plain]
    opening, closing = "{}" if isinstance(plain, dict) else "[]"
    return f"{opening}\n{margin}" + f",\n{margin}".join(inner) + f"\n{' ' * depth}{closing}"


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON readers keep the last of two fields; here both are marked, and the decoder refuses them by their path."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        content[key] = REPEATED if key in content else value
    return content
