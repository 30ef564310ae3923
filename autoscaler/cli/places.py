"""What commands ask of the place where jobs run, whichever it is: a run on this machine or a Kubernetes cluster.

Things are shown in Kubernetes' shapes on both; which fields their status has is each place's own, so it brings the
columns along.  The adapters are `local.run_place` and `kubernetes.cluster_place`; `arguments.place_selection` chooses
between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from autoscaler.cli.output.object_tables import Columns, PlainObject, format_age

if TYPE_CHECKING:  # the domain is not for --help
    from autoscaler.domain import Job, Workload
    from autoscaler.snapshots import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """Things of one type, and how a table shows them."""

    objects: Sequence[PlainObject]
    columns: Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """One event: for people, and for scripts."""

    text: str
    content: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSelector:
    """Which pod of a job: of this role and number; without a number the first, without a role a trainer."""

    role: str | None = None
    ordinal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest:
    """How many of what: `replicas` of a deployment; `trainers` or `servers` of a job, 0 for EDL's choice."""

    field: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """A size that has been set, or would be: how many there were, and what becomes of the resize before (`met`)."""

    request: SizeRequest
    before: int
    note: str = ""


def format_size_changes(target: str, changes: Sequence[SizeChange], *, is_dry: bool) -> str:
    """What to say of sizes that have been set, each on a line."""
    return "\n".join(_format_size_change(target, one) + (" (dry run)" if is_dry else "") for one in changes)


def _format_size_change(target: str, change: SizeChange) -> str:
    size, met = change.request, f"; {change.note}" if change.note else ""
    if size.field == "replicas":
        return f"{target} scaled to {size.count}"
    if not size.count:
        return f"{target}: EDL decides the number of {size.field}{met}"
    what = size.field.removesuffix("s") if size.count == 1 else size.field
    return f"{target} scaled to {size.count} {what} ({change.before} now){met}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What a plan does not know of a job: how and when it has ended, in words, and whether its ratio is measured."""

    ended: str = ""
    is_ratio_measured: bool = False


def format_ending(ending: str, age_s: float | None, message: str) -> str:
    """`Completed 12s ago: why`."""
    when = "" if age_s is None else f" {format_age(max(0.0, age_s))} ago"
    return f"{ending}{when}" + (f": {message}" if message else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How a log is read: its last `tail` lines, on and on, of the container before the last restart."""

    tail: int | None = None
    is_followed: bool = False
    is_previous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSubmission:
    """What a file would bring, as the planner sees it."""

    jobs: tuple[Job, ...] = ()
    workloads: tuple[Workload, ...] = ()


class Place(Protocol):
    """Where jobs run.

    Everything raises CommandError with the exit code that says what went wrong.  Types are `clusters.types`' or the
    user's words for them.
    """

    @property
    def title(self) -> str:
        """What names it: a file, say."""
        ...

    @property
    def namespace(self) -> str:
        """Where a name without one is looked for; empty: names have none."""
        ...

    @property
    def poll_interval_s(self) -> float:
        """How often asking again is worth it."""
        ...

    def get(self, kind: str, name: str) -> ObjectList:
        """All of a type, or the one of this name."""
        ...

    def watch(self, kind: str, name: str) -> Iterator[ObjectList]:
        """Each thing as it stands, and again whenever it is different."""
        ...

    def describe(self, kind: str, name: str) -> Iterator[str]:
        """One thing in lines: its state, why, its pods, what has happened to it."""
        ...

    def log(self, kind: str, name: str, selector: PodSelector, options: LogOptions) -> Iterator[str]:
        """What a pod has written, in pieces."""
        ...

    def events(self, *, is_watching: bool) -> Iterator[EventLine]:
        """What has happened, in order."""
        ...

    def is_condition_met(self, kind: str, name: str, wanted: str) -> bool:
        """Whether a condition holds (`words.parse_condition`).  CommandError FAILED: it never will."""
        ...

    def scale(self, kind: str, name: str, sizes: Sequence[SizeRequest], *, is_dry: bool) -> str:
        """Set these sizes, all or none.  This and the others that change something return what to tell."""
        ...

    def drain(self, kind: str, name: str, selector: PodSelector, *, is_dry: bool) -> str:
        """Let a pod finish its batch and leave, or empty a node."""
        ...

    def uncordon(self, kind: str, name: str) -> str:
        """Open a drained node again."""
        ...

    def set_suspended(self, kind: str, name: str, *, is_suspended: bool) -> str:
        """Take a job's pods away and keep the job; or let it start again."""
        ...

    def delete(self, kind: str, name: str, *, is_dry: bool) -> str:
        """Stop something and forget it."""
        ...

    def snapshot(self) -> Snapshot:
        """All that a plan depends on, now."""
        ...

    def job_facts(self, job: str) -> JobFacts:
        """What the snapshot does not say of the job of this name; nothing of one that is not there."""
        ...

    def read_submission(self, file: Path, now_s: float) -> PlannedSubmission:
        """What this file would bring here, submitted at `now_s`."""
        ...
