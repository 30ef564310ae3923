"""Decisions and events, as lines that can be searched: the newest first, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.views.documents import Rights

MOST_SHOWN: Final = 200
LONGEST_SEARCH: Final = 200
_OWN_PART: Final = re.compile(r"(?:trainer|server|master)-\d+|master-[a-z0-9]+-[a-z0-9]{5}")
"""What follows `JOB-` in the name of a pod of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """One decision or event at `at_s` (Unix time).  `object`: TYPE/NAME; `namespace` is empty for nodes and the run."""

    at_s: float
    kind: str
    object: str
    reason: str
    message: str
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalView:
    """Lines that match a search, the newest first; `found`: so many match, `kept`: of so many."""

    query: str
    kind: str
    lines: tuple[JournalLine, ...]
    found: int
    kept: int
    kinds: tuple[str, ...]


def search_journal(lines: Sequence[JournalLine], rights: Rights, *, query: str = "", kind: str = "") -> JournalView:
    """Return the newest lines that hold every word of the query, in any case, and are of this kind."""
    readable = [one for one in lines if _is_readable(one, rights)]
    words = query[:LONGEST_SEARCH].casefold().split()
    found = [one for one in readable if (not kind or one.kind == kind) and _holds(one, words)]
    return JournalView(
        query=query[:LONGEST_SEARCH],
        kind=kind,
        lines=tuple(reversed(found[-MOST_SHOWN:])),
        found=len(found),
        kept=len(readable),
        kinds=tuple(sorted({one.kind for one in readable})),
    )


def journal_of(lines: Sequence[JournalLine], namespace: str, name: str, *, most: int) -> tuple[JournalLine, ...]:
    """Return the newest lines about this job and its pods, the newest first."""
    about = [one for one in lines if one.namespace == namespace and _is_about(one, name)]
    return tuple(reversed(about[-most:]))


def journal_of_pod(lines: Sequence[JournalLine], namespace: str, name: str, *, most: int) -> tuple[JournalLine, ...]:
    """Return the newest lines about this pod, the newest first."""
    about = [one for one in lines if (one.namespace, one.object) == (namespace, f"pod/{name}")]
    return tuple(reversed(about[-most:]))


def _is_about(line: JournalLine, job: str) -> bool:
    kind, _, name = line.object.partition("/")
    return name == job if kind == "tj" else kind == "pod" and _is_pod_of(name, job)


def _is_pod_of(pod: str, job: str) -> bool:
    """True for `pod_name` of the job, and for a pod of its masters' Deployment; a job `a-b` has none of a job `a`."""
    return pod.startswith(f"{job}-") and _OWN_PART.fullmatch(pod, len(job) + 1) is not None


def _is_readable(line: JournalLine, rights: Rights) -> bool:
    return rights.can_read(line.namespace) if line.namespace else rights.can_read_nodes


def _holds(line: JournalLine, words: Sequence[str]) -> bool:
    text = f"{line.object} {line.reason} {line.message}".casefold()
    return all(word in text for word in words)
