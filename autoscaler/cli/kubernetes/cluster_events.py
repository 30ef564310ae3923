"""Events of a cluster: which of them concern jobs, their order, and the line for one.  Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from autoscaler.cli.output.object_tables import PlainObject
from autoscaler.cli.place_values import EventLine
from autoscaler.clusters.kubernetes.objects.fields import created_at_s, integer, text, unix_s
from autoscaler.views.phrases import format_age

Event = TypeVar("Event", bound=PlainObject)

_POD: Final = re.compile(r"(?P<job>.+)-(trainer|server|master)-.+")
_KINDS: Final = {"TrainingJob": "tj"}


def jobs_of(events: Iterable[PlainObject]) -> set[tuple[str, str]]:
    """Namespace and name of each job that has an event, deleted jobs included."""
    return {
        (text(event, "regarding", "namespace"), text(event, "regarding", "name"))
        for event in events
        if text(event, "regarding", "kind") == "TrainingJob"
    }


def is_of_jobs(event: PlainObject, jobs: Collection[tuple[str, str]]) -> bool:
    """True if the event concerns one of the jobs, or a pod with a name of a job's pods, deleted or not."""
    namespace, name = text(event, "regarding", "namespace"), text(event, "regarding", "name")
    match text(event, "regarding", "kind"):
        case "TrainingJob":
            return (namespace, name) in jobs
        case "Pod":
            found = _POD.fullmatch(name)
            return found is not None and (namespace, found["job"]) in jobs
        case _:
            return False


def is_about(event: PlainObject, kind: str, name: str) -> bool:
    """True if the event concerns the object of this kind and name."""
    return text(event, "regarding", "kind") == kind and text(event, "regarding", "name") == name


def sort_by_time(events: Iterable[Event]) -> list[Event]:
    """Events by the time they were last seen, the oldest first."""
    return sorted(events, key=last_seen_s)


def last_seen_s(event: PlainObject) -> float:
    """Unix time at which the event was last seen."""
    times = (
        text(event, "series", "lastObservedTime"),
        text(event, "deprecatedLastTimestamp"),
        text(event, "eventTime"),
    )
    return next((at_s for time in times if (at_s := unix_s(time)) is not None), created_at_s(event))


def format_cluster_event(event: PlainObject, now_s: float, *, has_namespaces: bool = False) -> EventLine:
    """The event as one line, or as many as its note has."""
    kind, name = text(event, "regarding", "kind"), text(event, "regarding", "name")
    about = f"{_KINDS.get(kind, kind.lower())}/{name}"
    if has_namespaces:
        about = f"{text(event, 'regarding', 'namespace')} {about}"
    count = integer(event, "series", "count") or integer(event, "deprecatedCount")
    times = f" (x{count})" if count > 1 else ""
    first, *rest = text(event, "note").splitlines() or [""]
    age = f"{format_age(max(0.0, now_s - last_seen_s(event)))} ago"
    head = f"{age:>10}  {about:<28} {text(event, 'reason'):<16} {first}{times}".rstrip()
    return EventLine(text="\n".join([head, *(" " * 12 + line for line in rest)]), content=event)
