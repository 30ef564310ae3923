"""`edl top`: who holds GPUs, cores and memory, and how much of that works.  Pure.

GPU figures are the agents' reports; cores and memory are what the metrics API, or the processes of a run, say is used.
What nobody tells is `-`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoscaler.cli.kubernetes.gpu_tables import format_busy
from autoscaler.cli.output.object_tables import align_columns
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.quantities import format_cpu, format_memory
from autoscaler.views.phrases import format_age

_FIGURES: Final = ("CPU", "MEMORY", "GPUS", "ACTIVE", "HELD", "FREE", "UNKNOWN", "BUSY", "WATTS", "HELD-FOR")


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


def top_nodes(reports: Iterable[NodeGpuReport], nodes: Sequence[str], usage: Usage, now_s: float) -> list[str]:
    """One line a node, by name."""
    gpus = {str(report.node): list(report.gpus_at(now_s)) for report in reports}
    rows = [[name, *_figures(gpus.get(name, ()), usage.nodes.get(name), now_s)] for name in sorted(nodes)]
    return _table(["NAME", *_FIGURES], rows)


def top_holders(
    reports: Iterable[NodeGpuReport],
    jobs: Mapping[str, str],
    usage: Usage,
    now_s: float,
    *,
    are_pods_apart: bool,
    namespace: str | None,
) -> list[str]:
    """One line for each job, and for each pod of no job that has a GPU; most held GPUs first.

    `jobs`: the job of each pod of EDL's, both as NAMESPACE/NAME.  `are_pods_apart`: one line a pod instead.
    `namespace` None: of all, with the namespace in front.
    """
    gpus: dict[str, list[GpuReport]] = {}
    used: dict[str, UsedAmounts] = {}
    for report in reports:
        for one in report.gpus_at(now_s):
            for pod in one.pods:
                gpus.setdefault(_holder(pod, jobs, are_pods_apart=are_pods_apart), []).append(one)
    for name in jobs:
        gpus.setdefault(_holder(name, jobs, are_pods_apart=are_pods_apart), [])
    for name, amounts in usage.pods.items():
        holder = _holder(name, jobs, are_pods_apart=are_pods_apart)
        if holder in gpus:
            used[holder] = amounts if holder not in used else used[holder].plus(amounts)
    shown = [name for name in gpus if namespace is None or _parts(name)[0] == namespace]
    shown.sort(key=lambda name: (-sum(one.verdict is GpuVerdict.HELD for one in gpus[name]), name))
    rows = []
    for name in shown:
        place, kind, short = _parts(name)
        names = [f"{kind}/{short}"] if namespace is not None else [place, f"{kind}/{short}"]
        rows.append([*names, *_figures(gpus[name], used.get(name), now_s)])
    return _table([*(["NAMESPACE"] if namespace is None else []), "NAME", *_FIGURES], rows)


def _holder(pod: str, jobs: Mapping[str, str], *, are_pods_apart: bool) -> str:
    """KIND NAMESPACE/NAME."""
    job = None if are_pods_apart else jobs.get(pod)
    return f"pod {pod}" if job is None else f"tj {job}"


def _parts(holder: str) -> tuple[str, str, str]:
    kind, _, name = holder.partition(" ")
    namespace, _, short = name.partition("/")
    return namespace, kind, short


def _figures(gpus: Sequence[GpuReport], used: UsedAmounts | None, now_s: float) -> list[str]:
    counts = [sum(one.verdict is verdict for one in gpus) for verdict in GpuVerdict]
    by_verdict = dict(zip(GpuVerdict, counts, strict=True))
    busy = [one.busy_ratio for one in gpus if one.busy_ratio is not None]
    watts = [one.watts for one in gpus if one.watts is not None]
    held_s = max((one.low_for_s(now_s) for one in gpus if one.verdict is GpuVerdict.HELD), default=0.0)
    return [
        "-" if used is None else format_cpu(used.cpu_milli),
        "-" if used is None else format_memory(used.memory_bytes),
        str(len(gpus)),
        *(str(by_verdict[one]) for one in (GpuVerdict.ACTIVE, GpuVerdict.HELD, GpuVerdict.FREE, GpuVerdict.UNKNOWN)),
        (format_busy(sum(busy) / len(busy)) or "-") if busy else "-",
        f"{sum(watts):.0f}" if watts else "-",
        format_age(held_s) if held_s else "-",
    ]


def _table(heading: list[str], rows: list[list[str]]) -> list[str]:
    return align_columns([heading, *rows]) if rows else ["nothing there"]
