"""`edl top`: who holds GPUs, cores and memory, and how much of that works.  Pure.

GPU figures are the agents' reports; cores and memory are what the metrics API, or the processes of a run, say is used.
What nobody tells is None.  `top_tables` writes these lines.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from autoscaler.cli.place_values import TopOrder
from autoscaler.domain.gpu_reports import GpuReport, GpuReports, GpuVerdict, NodeGpuReport
from autoscaler.operator.idle.report_faults import gpus_of_two_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedAmounts:
    """Cores and memory in use."""

    cpu_milli: int
    memory_bytes: int

    def plus(self, other: UsedAmounts) -> UsedAmounts:
        """Both together."""
        return UsedAmounts(
            cpu_milli=self.cpu_milli + other.cpu_milli, memory_bytes=self.memory_bytes + other.memory_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Resources in use, by node and by NAMESPACE/NAME of a pod; a name that is missing is not known."""

    nodes: Mapping[str, UsedAmounts] = field(default_factory=dict)
    pods: Mapping[str, UsedAmounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLine:
    """A holder, or a node, at one instant: its GPUs with their nodes, and what it uses otherwise."""

    kind: str  # tj, pod or node
    namespace: str  # empty: of a node
    name: str
    used: UsedAmounts | None
    gpus: Sequence[tuple[str, GpuReport]] = ()  # with the node that each is in
    held_s: float | None = None  # the longest for which one of them is held; None: none is
    report_age_s: float | None = None  # of the oldest report that tells of them; None: there is none

    def count(self, verdict: GpuVerdict) -> int:
        """GPUs with this verdict."""
        return sum(gpu.verdict is verdict for _, gpu in self.gpus)

    @property
    def busy_ratio(self) -> float | None:
        """Mean share of samples in which somebody computed; None: nobody tells."""
        told = [gpu.busy_ratio for _, gpu in self.gpus if gpu.busy_ratio is not None]
        return sum(told) / len(told) if told else None

    @property
    def watts(self) -> float | None:
        """Power of the GPUs, that of a divided one once; None: nobody tells."""
        told = {(node, _card_of(gpu)): gpu.watts for node, gpu in self.gpus if gpu.watts is not None}
        return sum(told.values()) if told else None

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes of the GPUs."""
        return sorted({node for node, _ in self.gpus})

    @property
    def models(self) -> Sequence[str]:
        """The models of the GPUs."""
        return sorted({gpu.model for _, gpu in self.gpus})


def node_lines(reports: Iterable[NodeGpuReport], nodes: Sequence[str], usage: Usage, now_s: float) -> list[TopLine]:
    """One line a node, by name."""
    by_node = {str(report.node): report for report in reports}
    disputed = disputed_gpus(by_node.values(), now_s)
    lines = []
    for name in sorted(nodes):
        told = [by_node[name]] if name in by_node else []
        gpus = tuple(gpu for report in told for gpu in _gpus_of(report, now_s, disputed))
        line = TopLine(kind="node", namespace="", name=name, used=usage.nodes.get(name), gpus=gpus)
        lines.append(_with_times(line, told, now_s))
    return lines


def holder_lines(
    reports: Iterable[NodeGpuReport],
    jobs: Mapping[str, str],
    usage: Usage,
    now_s: float,
    *,
    are_pods_apart: bool,
    namespace: str | None,
    nodes: Mapping[str, str] = MappingProxyType({}),
) -> list[TopLine]:
    """One line for each job, and for each pod of no job that has a GPU; most held GPUs first.

    `jobs`: the job of each pod of EDL's, both as NAMESPACE/NAME.  `nodes`: its node; what another one's report says of
    it does not count.  `are_pods_apart`: one line a pod instead.  `namespace` None: of all.
    """
    by_node = {str(report.node): report for report in reports}
    disputed = disputed_gpus(by_node.values(), now_s)
    gpus: dict[tuple[str, str], dict[tuple[str, str], GpuReport]] = {}
    used: dict[tuple[str, str], UsedAmounts] = {}
    for report in by_node.values():
        for node, gpu in _gpus_of(report, now_s, disputed):
            for pod in (one for one in gpu.pods if nodes.get(one, node) == node):
                held = gpus.setdefault(_holder(pod, jobs, are_pods_apart=are_pods_apart), {})
                held[node, gpu.uuid] = gpu  # once, however many pods of the holder share it
    for name in jobs:
        gpus.setdefault(_holder(name, jobs, are_pods_apart=are_pods_apart), {})
    for name, amounts in usage.pods.items():
        holder = _holder(name, jobs, are_pods_apart=are_pods_apart)
        if holder in gpus:
            used[holder] = amounts if holder not in used else used[holder].plus(amounts)
    lines = []
    for holder, held in gpus.items():
        there, _, short = holder[1].partition("/")
        if namespace is None or there == namespace:
            told = tuple((node, gpu) for (node, _), gpu in held.items())
            line = TopLine(kind=holder[0], namespace=there, name=short, used=used.get(holder), gpus=told)
            lines.append(_with_times(line, [by_node[node] for node in line.nodes], now_s))
    return sorted(lines, key=lambda one: (-one.count(GpuVerdict.HELD), one.kind, one.namespace, one.name))


def sort_lines(lines: Sequence[TopLine], order: TopOrder) -> list[TopLine]:
    """These lines by a name, or by a figure: the largest first, and last those of which it is not known."""
    if order is TopOrder.NAME:
        return sorted(lines, key=lambda one: (one.namespace, one.name, one.kind))
    figure = _FIGURES[order]

    def place(one: TopLine) -> tuple[bool, float]:
        value = figure(one)
        return value is None, -(value or 0.0)

    return sorted(lines, key=place)


_FIGURES: Final[Mapping[TopOrder, Callable[[TopLine], float | None]]] = {
    TopOrder.CPU: lambda one: None if one.used is None else one.used.cpu_milli,
    TopOrder.MEMORY: lambda one: None if one.used is None else one.used.memory_bytes,
    TopOrder.GPUS: lambda one: len(one.gpus),
    TopOrder.ACTIVE: lambda one: one.count(GpuVerdict.ACTIVE),
    TopOrder.HELD: lambda one: one.count(GpuVerdict.HELD),
    TopOrder.BUSY: lambda one: one.busy_ratio,
    TopOrder.WATTS: lambda one: one.watts,
    TopOrder.HELD_FOR: lambda one: one.held_s,
}


def disputed_gpus(reports: Iterable[NodeGpuReport], now_s: float) -> frozenset[str]:
    """GPUs that pods have by the reports of two nodes: nobody knows which is right, and the operator takes none."""
    return gpus_of_two_nodes(GpuReports({report.node: report for report in reports}), now_s)


def _gpus_of(report: NodeGpuReport, now_s: float, disputed: Container[str]) -> list[tuple[str, GpuReport]]:
    return [(str(report.node), gpu) for gpu in report.gpus_at(now_s, disputed=disputed)]


def _card_of(gpu: GpuReport) -> str:
    """The whole GPU, whose power each of its instances reports: nvidia0 of nvidia0/gi1."""
    return gpu.name.partition("/")[0] or gpu.uuid


def _holder(pod: str, jobs: Mapping[str, str], *, are_pods_apart: bool) -> tuple[str, str]:
    """The kind, and NAMESPACE/NAME."""
    job = None if are_pods_apart else jobs.get(pod)
    return ("pod", pod) if job is None else ("tj", job)


def _with_times(line: TopLine, reports: Iterable[NodeGpuReport], now_s: float) -> TopLine:
    """The line, with how long its GPUs are held and how old these reports are."""
    held = (gpu.low_for_s(now_s) for _, gpu in line.gpus if gpu.verdict is GpuVerdict.HELD)
    ages = (max(0.0, now_s - report.reported_at_s) for report in reports)
    return replace(line, held_s=max(held, default=None), report_age_s=max(ages, default=None))
