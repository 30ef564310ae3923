"""Reports on the use of GPUs: which of a node's GPUs compute, which are only held, which are free.

A node's agent reports when a verdict or an owner changes, and now and then when none does; the operator or a local run
keeps the newest report of each node.  A report has two ages.  Up to `KEPT_S` it may be planned with and shown; up to
`FRESH_S` it permits an action, and a report that is older than that has to be renewed by its agent first.  What is
missing, late or contradicts itself is *active*, so plans read `NodeGpuReport.gpus_at`.  How verdicts come about is the
subject of `autoscaler.gpus`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite
from typing import Final

from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.errors import InvalidSpecError

MOST_GPUS: Final = 128
"""Of one node, instances of divided GPUs counted: 16 GPUs with seven instances each are 112."""

MOST_PODS: Final = 64
"""That share one GPU; time slices and MPS clients of one GPU are at most 48 today."""

LONGEST_UUID: Final = 96
LONGEST_MODEL: Final = 96  # NVML's own limit
LONGEST_NAME: Final = 64
LONGEST_POD: Final = 64 + 253  # namespace, slash, name
LONGEST_REASON: Final = 256
MOST_WATTS: Final = 10_000.0

FRESH_S: Final = 60.0
"""Age up to which a report permits an action: some samples of 5 s, a write that is tried again, clocks apart."""

KEPT_S: Final = 1500.0
"""Age up to which a report is planned with: two renewals of 10 minutes may be lost (ADR 0283)."""


class GpuVerdict(StrEnum):
    """Verdict on a GPU.  Only HELD and FREE mean that nobody computes."""

    ACTIVE = "active"  # computes, or may compute
    HELD = "held"  # nobody has computed for the whole window, and somebody has it
    FREE = "free"  # nobody has computed, and nobody has it
    UNKNOWN = "unknown"  # this kind of GPU, or its sharing, cannot tell


IDLE_VERDICTS: Final = frozenset({GpuVerdict.HELD, GpuVerdict.FREE})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """One GPU, or one instance of a divided GPU.

    `pods` have it, by their names in a view.  While a shared GPU is HELD so is every one of them; while it is ACTIVE
    any of them may be the one that computes.  `reason`, `busy_ratio` and `watts` are for people: they are as of the
    report and make no new one.

    Raises:
        InvalidSpecError: a value is outside its range; `path` is the field.
    """

    uuid: str
    model: str
    name: str = ""  # nvidia0, or nvidia0/gi1 for an instance; empty where the driver does not tell
    verdict: GpuVerdict
    low_since_s: float | None = None  # Unix time since when nobody has computed: of HELD and FREE, and of no other
    pods: tuple[PodName, ...] = ()  # sorted
    reason: str = ""
    busy_ratio: float | None = None  # share of the samples since the report before in which somebody computed
    watts: float | None = None  # of the whole GPU, mean over the last interval between samples

    def __post_init__(self) -> None:
        _check_text("uuid", self.uuid, LONGEST_UUID)
        _check_text("model", self.model, LONGEST_MODEL, least=0)
        _check_text("name", self.name, LONGEST_NAME, least=0)
        _check_text("reason", self.reason, LONGEST_REASON, least=0)
        if (self.low_since_s is not None) != (self.verdict in IDLE_VERDICTS):
            raise InvalidSpecError("lowSince", f"does not go with the verdict {self.verdict.value}")
        _check_number("lowSince", self.low_since_s)
        _check_number("busyRatio", self.busy_ratio, 1.0)
        _check_number("watts", self.watts, MOST_WATTS)
        if len(self.pods) > MOST_PODS:
            raise InvalidSpecError("pods", f"has {len(self.pods)} pods, more than {MOST_PODS}")
        if list(self.pods) != sorted(set(self.pods)):
            raise InvalidSpecError("pods", "is not sorted, or has a pod twice")
        for pod in self.pods:
            _check_text("pods", pod, LONGEST_POD)
        if self.verdict is GpuVerdict.FREE and self.pods:
            raise InvalidSpecError("pods", "has pods, and the verdict is free")

    def low_for_s(self, now_s: float) -> float:
        """Seconds for which nobody has computed; 0 for a GPU that is not idle, and where clocks disagree."""
        return 0.0 if self.low_since_s is None else max(0.0, now_s - self.low_since_s)

    def has_same_verdict(self, other: GpuReport) -> bool:
        """True if a decision would see no difference: same GPU, verdict and pods, idle since the same minute."""
        same = (self.uuid, self.verdict, self.pods) == (other.uuid, other.verdict, other.pods)
        if not same or self.low_since_s is None or other.low_since_s is None:
            return same
        return abs(self.low_since_s - other.low_since_s) < 60.0  # a clock that was set


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpuReport:
    """All GPUs of one node at one instant, in the driver's order.

    Raises:
        InvalidSpecError: too many GPUs, one of them twice, or idle since later than the report.
    """

    node: NodeName
    gpus: tuple[GpuReport, ...]
    reported_at_s: float  # Unix time of the sample

    def __post_init__(self) -> None:
        _check_text("node", self.node, 253)
        _check_number("reportedAt", self.reported_at_s)
        if len(self.gpus) > MOST_GPUS:
            raise InvalidSpecError("gpus", f"has {len(self.gpus)} GPUs, more than {MOST_GPUS}")
        seen: set[str] = set()
        for index, one in enumerate(self.gpus):
            if one.uuid in seen:
                raise InvalidSpecError(f"gpus[{index}].uuid", f"{one.uuid} is there twice")
            seen.add(one.uuid)
            if one.low_since_s is not None and one.low_since_s > self.reported_at_s:
                raise InvalidSpecError(f"gpus[{index}].lowSince", "is later than the report")

    def is_fresh(self, now_s: float) -> bool:
        """True if it permits an action: neither old nor from a clock that is ahead."""
        return abs(now_s - self.reported_at_s) <= FRESH_S

    def counts_at(self, now_s: float) -> bool:
        """True if it may be planned with: not older than KEPT_S, and not of a clock that is ahead."""
        return -FRESH_S <= now_s - self.reported_at_s <= KEPT_S

    def gpus_at(self, now_s: float, *, disputed: Container[str] = ()) -> tuple[GpuReport, ...]:
        """The GPUs as a plan may see them: none is idle where the report does not count, and none of `disputed`.

        `disputed`: UUIDs of GPUs that another node's report names too.
        """
        if not self.counts_at(now_s):
            return tuple(_as_active(one, "the report is old") for one in self.gpus)
        return tuple(
            _as_active(one, "another node reports it, too") if one.uuid in disputed else one for one in self.gpus
        )

    def has_same_verdicts(self, other: NodeGpuReport) -> bool:
        """True if a decision would see no difference, the age of the report apart."""
        pairs = zip(self.gpus, other.gpus, strict=False)
        return len(self.gpus) == len(other.gpus) and all(one.has_same_verdict(old) for one, old in pairs)


@dataclass(frozen=True, slots=True)
class GpuReports:
    """The newest report of each node.  A value: each change makes a new one, and what did not change is shared."""

    by_node: Mapping[NodeName, NodeGpuReport] = field(default_factory=dict)

    def changed(self, new: Iterable[NodeGpuReport] = (), gone: Iterable[NodeName] = ()) -> GpuReports:
        """These reports with some put in, the last given of a node, and those of some nodes dropped.

        The source gives them in their order: a report's own time does not decide, since a clock may be set back.
        """
        by_node = dict(self.by_node)
        for node in gone:
            by_node.pop(node, None)
        by_node.update((one.node, one) for one in new)
        return GpuReports(by_node)

    def of_pods(self, now_s: float) -> Iterator[tuple[PodName, NodeName, GpuReport]]:
        """Each pod with each GPU that it has, as a plan at this instant may see it."""
        for report in self.by_node.values():
            for gpu in report.gpus_at(now_s):
                for pod in gpu.pods:
                    yield pod, report.node, gpu


NO_REPORTS: Final = GpuReports()


def _as_active(one: GpuReport, reason: str) -> GpuReport:
    if one.verdict not in IDLE_VERDICTS:
        return one
    return replace(one, verdict=GpuVerdict.ACTIVE, low_since_s=None, reason=reason)


def _check_text(path: str, text: str, most: int, *, least: int = 1) -> None:
    if not least <= len(text) <= most or not text.isprintable():
        raise InvalidSpecError(path, f"is not a text of {least} to {most} printable characters")


def _check_number(path: str, value: float | None, most: float = 1e11) -> None:
    if value is not None and not (isfinite(value) and 0.0 <= value <= most):
        raise InvalidSpecError(path, f"is {value}, not between 0 and {most:g}")
