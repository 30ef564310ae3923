"""The port `Place`: where jobs run, a run on this machine or a Kubernetes cluster.

`kubernetes.cluster_place` is the adapter; `local.run_place` is the same one over a run's socket, with the logs and
events of the run's folder.  `arguments.place_selection` chooses between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from autoscaler.cli.output.object_tables import ObjectList

if TYPE_CHECKING:  # the domain is not for --help
    from autoscaler.domain import Job, Workload
    from autoscaler.snapshots import SnapshotContent


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """One event: `text` for people, `content` for scripts."""

    text: str
    content: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSelector:
    """Which pod of a job: its role and number; without a number the first, without a role a trainer."""

    role: str | None = None
    ordinal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest:
    """A size to set: `replicas` of a deployment; `trainers` or `servers` of a job, 0 for EDL's choice."""

    field: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """A size that was set, or would be: the count before, and a note on the resize that it replaces."""

    request: SizeRequest
    before: int
    note: str = ""


def format_size_changes(target: str, changes: Sequence[SizeChange], *, is_dry: bool) -> str:
    """The sizes that were set, one a line."""
    return "\n".join(_format_size_change(target, one) + (" (dry run)" if is_dry else "") for one in changes)


def _format_size_change(target: str, change: SizeChange) -> str:
    size, note = change.request, f"; {change.note}" if change.note else ""
    if size.field == "replicas":
        return f"{target} scaled to {size.count}"
    if not size.count:
        return f"{target}: EDL decides the number of {size.field}{note}"
    what = size.field.removesuffix("s") if size.count == 1 else size.field
    return f"{target} scaled to {size.count} {what} ({change.before} now){note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Facts about a job that no plan has: how and when it ended, in words, and if its servers' ratio is measured."""

    ended: str = ""
    is_ratio_measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How a log is read: only the last `tail` lines, followed, or that of the container before the last restart."""

    tail: int | None = None
    is_followed: bool = False
    is_previous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSubmission:
    """Jobs and workloads of a file, as the planner would see them."""

    jobs: tuple[Job, ...] = ()
    workloads: tuple[Workload, ...] = ()


class Place(Protocol):
    """Where jobs run.

    Every call raises CommandError with the exit code of the failure.  `kind` is one of `clusters.object_kinds`, or one
    of its other names.  A call that changes something returns the line to print.
    """

    @property
    def title(self) -> str:
        """Name of the place, for messages and file names."""
        ...

    @property
    def namespace(self) -> str:
        """Namespace of a name without one; empty where names have none."""
        ...

    @property
    def poll_interval_s(self) -> float:
        """Seconds between two checks of a condition."""
        ...

    def get(self, kind: str, name: str) -> ObjectList:
        """All objects of a type, or the one of this name."""
        ...

    def watch(self, kind: str, name: str) -> Iterator[ObjectList]:
        """Each object as it is, and again whenever it changes."""
        ...

    def describe(self, kind: str, name: str) -> Iterator[str]:
        """Lines about one object: its state, the reason for its size, its pods, its events."""
        ...

    def log(self, kind: str, name: str, selector: PodSelector, options: LogOptions) -> Iterator[str]:
        """The log of a pod, in pieces."""
        ...

    def events(self, *, is_watching: bool) -> Iterator[EventLine]:
        """Events in order, and those to come if `is_watching`."""
        ...

    def is_condition_met(self, kind: str, name: str, wanted: str) -> bool:
        """True if a condition holds (`parameter_types.parse_condition`).  CommandError FAILED: it never will."""
        ...

    def scale(self, kind: str, name: str, sizes: Sequence[SizeRequest], *, is_dry: bool) -> str:
        """Set these sizes, all or none."""
        ...

    def drain(self, kind: str, name: str, selector: PodSelector, *, is_dry: bool) -> str:
        """Let a pod finish its batch and leave, or make EDL's pods leave a node."""
        ...

    def uncordon(self, kind: str, name: str) -> str:
        """Open a drained node again."""
        ...

    def set_suspended(self, kind: str, name: str, *, is_suspended: bool) -> str:
        """Suspend a job (its pods are deleted, the job stays), or resume it."""
        ...

    def delete(self, kind: str, name: str, *, is_dry: bool) -> str:
        """Stop an object and drop its record."""
        ...

    def snapshot(self) -> SnapshotContent:
        """Everything that a plan depends on, at this instant."""
        ...

    def job_facts(self, job: str) -> JobFacts:
        """Facts about a job that the snapshot lacks; empty facts for an unknown job."""
        ...

    def read_submission(self, file: Path, now_s: float) -> PlannedSubmission:
        """Jobs and workloads that this file would bring here, submitted at `now_s`."""
        ...
