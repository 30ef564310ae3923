"""A look at the use of all GPUs, as the leader takes one every 5 s between its other tasks: 10,000 nodes of 8 GPUs.

On each node four notebooks with a GPU each, one of them idle, and a trainer with four.  Between two looks 100 reports
change.  Eight pods are due, and each is asked about once more.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from autoscaler.domain import ClusterView, JobName, NodeName, Pod, PodName, PodPhase, Resources, Role, Shape, Tier
from autoscaler.domain.gpu_reports import NO_REPORTS, GpuReport, GpuReports, GpuVerdict, NodeGpuReport
from autoscaler.gpus.pod_uses import GpuUses
from autoscaler.operator.idle.consent import Consent
from autoscaler.operator.idle.gpu_use import devices_of, idle_pods_of, nodes_to_ask, pods_beside
from bench.reporting.result_rows import Row, load, print_rows

NODES: Final = 10_000
NOTEBOOKS: Final = 4
TRAINER_GPUS: Final = 4
CHANGED: Final = 100
DUE: Final = 8
LOOKS: Final = 7
NOW_S: Final = 1_800_000_000.0
AGREED: Final = Consent(after_s=3_600.0)


def pods_of(number: int) -> list[Pod]:
    """The pods of one node."""
    node, one, four = NodeName(f"n{number}"), Resources(gpu_count=1), Resources(gpu_count=TRAINER_GPUS)
    found = [
        Pod(
            name=PodName(f"team-{number % 50}/book-{number}-{place}"),
            role=Role.EXTERNAL,
            tier=Tier.EXTERNAL,
            shape=Shape(requests=one),
            phase=PodPhase.READY,
            node=node,
        )
        for place in range(NOTEBOOKS)
    ]
    trainer = Pod(
        name=PodName(f"ml/j{number}-trainer-0"),
        role=Role.TRAINER,
        tier=Tier.CORE,
        shape=Shape(requests=four),
        phase=PodPhase.READY,
        node=node,
        job=JobName(f"ml/j{number}"),
    )
    return [*found, trainer]


def report_of(number: int, pods: list[Pod], at_s: float) -> NodeGpuReport:
    """The report of one node: its first notebook is idle."""
    gpus = []
    for at, pod in enumerate(pods):
        for _ in range(pod.requests.gpu_count):
            said = GpuVerdict.HELD if at == 0 else GpuVerdict.ACTIVE
            since_s = NOW_S - 1_800.0 if at == 0 else None
            uuid = f"GPU-{number}-{len(gpus)}"
            gpus.append(GpuReport(uuid=uuid, model="H100", verdict=said, low_since_s=since_s, pods=(pod.name,)))
    return NodeGpuReport(node=NodeName(f"n{number}"), gpus=tuple(gpus), reported_at_s=at_s)


def look(view: ClusterView, uses: GpuUses, reports: GpuReports) -> int:
    """What the leader does in one look; return how many pods are idle."""
    uses.renew(reports)
    idle = idle_pods_of(view.pods, uses, NOW_S, offset_s=0.0, consent_of=lambda _: AGREED)
    devices_of(view, uses, NOW_S)
    nodes_to_ask(view, uses, NOW_S)
    for one in idle[:DUE]:
        idle_pods_of(pods_beside(view, one.pod), uses, NOW_S, offset_s=0.0, consent_of=lambda _: AGREED)
    return len(idle)


def measure() -> list[Row]:
    """Take some looks."""
    by_node = [pods_of(number) for number in range(NODES)]
    view = ClusterView(revision=1, observed_at_s=0.0, pods=tuple(pod for pods in by_node for pod in pods))
    reports = NO_REPORTS.changed(report_of(number, pods, NOW_S) for number, pods in enumerate(by_node))
    uses, took_s = GpuUses(reports), []
    for turn in range(LOOKS):
        first = turn * CHANGED
        changed = [report_of(number, by_node[number], NOW_S) for number in range(first, first + CHANGED)]
        reports = reports.changed(changed)
        began_s = time.perf_counter()
        found = look(view, uses, reports)
        took_s.append(time.perf_counter() - began_s)
        assert found == NODES
    name = f"GPU use, one look of the leader at {NODES:,} nodes of 8 GPUs, median"
    note = f"longest {max(took_s) * 1e3:.0f} ms; {load()}"
    return [Row(name=name, value=median(took_s) * 1e3, unit="ms", goal="<= 400", note=note)]


def main() -> None:
    """Measure and print the row."""
    print_rows(measure())


if __name__ == "__main__":
    main()
