"""Values that commands exchange with the place where jobs run: a Kubernetes cluster, or a run on this machine.

`kubernetes.cluster_place` is the place; `local.run_place` is the same one over a run's socket, with the logs and events
of the run's folder.  `arguments.place_selection` chooses between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the domain is not for --help
    from autoscaler.domain import Job, Workload


class TopSubject(StrEnum):
    """Subject of a line of `edl top`."""

    JOBS = "jobs"
    NODES = "nodes"
    PODS = "pods"


class TopOrder(StrEnum):
    """Order of the lines of `edl top`: by a name, or by a figure with the largest first."""

    NAME = "name"
    CPU = "cpu"
    MEMORY = "memory"
    GPUS = "gpus"
    ACTIVE = "active"
    HELD = "held"
    BUSY = "busy"
    WATTS = "watts"
    HELD_FOR = "held-for"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """One event: `text` for people, `content` for scripts."""

    text: str
    content: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSelector:
    """Selection of a job's pod: its role and number; without a number the first, without a role a trainer."""

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
    """Facts about a job that no plan has: how and when it ended, what keeps it from training, which of its trainers do
    no work, all in words, and if its servers' ratio is measured.
    """

    ended: str = ""
    not_training: str = ""
    idle: str = ""
    is_ratio_measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options for reading a log: the last `tail` lines, followed, or the log before the container's last restart."""

    tail: int | None = None
    is_followed: bool = False
    is_previous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSubmission:
    """Jobs and workloads of a file, as the planner would see them."""

    jobs: tuple[Job, ...] = ()
    workloads: tuple[Workload, ...] = ()
