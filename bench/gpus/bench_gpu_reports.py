"""A day of 10,000 agents with 8 GPUs each, in virtual time: writes a second, and what the operator keeps (ADR 0283).

GPUs are held in groups of one to eight that begin and end to work together: training with pauses for evaluations,
notebooks with breaks, and GPUs that somebody forgot.  The agents' own rule says when each writes.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Listing
from autoscaler.clusters.kubernetes.api.kinds import NODE_GPUS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.parsing.node_gpus import report_of, trim_node_gpus
from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import NO_REPORTS, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.fault_isolation import JobErrors
from autoscaler.gpus.agent.report_timing import ReportTiming, WrittenReport, due_at_s
from autoscaler.gpus.report_documents import make_object, make_status
from bench.reporting.result_rows import Row, load, print_rows

NODES: Final = 10_000
GPUS: Final = 8
DAY_S: Final = 86_400.0
EPOCH_S: Final = 1_800_000_000.0
WINDOW_S: Final = 300.0
TIMING: Final = ReportTiming()

# seconds of work and of rest, means of exponential draws: training, notebooks, forgotten GPUs; how common each is
PHASES: Final = ((14_400.0, 480.0, 0.70), (600.0, 2_400.0, 0.20), (60.0, 43_200.0, 0.10))


def node_changes(chance: random.Random, node: str) -> Iterator[tuple[float, NodeGpuReport]]:
    """Every instant of the day at which this node's report would be another, with that report."""
    gpus = [GpuReport(uuid=f"GPU-{node}-{n}", model="NVIDIA H100 80GB HBM3", name=f"nvidia{n}", verdict=GpuVerdict.FREE,
                      low_since_s=EPOCH_S) for n in range(GPUS)]  # fmt: skip
    changes: list[tuple[float, int, GpuReport]] = []
    first = 0
    while first < GPUS:
        size = min(chance.choice((1, 1, 2, 4, 8)), GPUS - first)
        for at_s, gpu in _group_changes(chance, f"team-{chance.randrange(50)}/{node}-{first}"):
            changes += [
                (at_s, n, replace(gpu, uuid=gpus[n].uuid, name=gpus[n].name)) for n in range(first, first + size)
            ]
        first += size
    changes.sort(key=lambda one: one[:2])
    yield 0.0, NodeGpuReport(node=NodeName(node), gpus=tuple(gpus), reported_at_s=EPOCH_S)
    at = 0
    while at < len(changes):
        now_s = changes[at][0]
        while at < len(changes) and changes[at][0] == now_s:
            gpus[changes[at][1]] = changes[at][2]
            at += 1
        yield now_s, NodeGpuReport(node=NodeName(node), gpus=tuple(gpus), reported_at_s=EPOCH_S + now_s)


def _group_changes(chance: random.Random, pod: str) -> Iterator[tuple[float, GpuReport]]:
    """Verdicts of GPUs that one pod after the other has, each for six hours or so."""
    plain = GpuReport(uuid="GPU", model="NVIDIA H100 80GB HBM3", verdict=GpuVerdict.ACTIVE)
    now_s, number = chance.random() * 3_600.0, 0
    while now_s < DAY_S:
        (work_s, rest_s, _) = chance.choices(PHASES, [one[2] for one in PHASES])[0]
        ends_s, number = now_s + chance.expovariate(1 / 21_600.0), number + 1
        has = replace(plain, pods=(PodName(f"{pod}-{number}"),))
        while now_s < min(ends_s, DAY_S):
            yield now_s, has
            now_s += chance.expovariate(1 / work_s)
            rests_s = chance.expovariate(1 / rest_s)
            if rests_s > WINDOW_S and now_s + WINDOW_S < min(ends_s, DAY_S):
                low_since_s = EPOCH_S + now_s
                yield now_s + WINDOW_S, replace(has, verdict=GpuVerdict.HELD, low_since_s=low_since_s, reason="nobody")
            now_s += rests_s
        now_s = max(now_s, ends_s)
        yield now_s, replace(plain, verdict=GpuVerdict.FREE, low_since_s=EPOCH_S + now_s)
        now_s += chance.expovariate(1 / 900.0)


def writes_of(chance: random.Random, changes: Iterator[tuple[float, NodeGpuReport]]) -> Iterator[float]:
    """When the agent writes, by its own rule."""
    written: WrittenReport | None = None
    changed_at_s: float | None = None
    _, report = next(changes)
    jitter = chance.random()
    upcoming = next(changes, None)
    while True:
        due_s = due_at_s(written, report, changed_at_s=changed_at_s, started_at_s=0.0, jitter=jitter, timing=TIMING)
        if upcoming is not None and upcoming[0] <= due_s:
            now_s, report = upcoming
            upcoming = next(changes, None)
            if written is None or written.report.has_same_verdicts(report):
                changed_at_s = None
            elif changed_at_s is None:
                changed_at_s = now_s
            continue
        if due_s >= DAY_S:
            return
        yield due_s
        written, changed_at_s, jitter = WrittenReport(report=report, at_s=due_s), None, chance.random()


def memory_mib() -> float:
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def measure_writes() -> list[Row]:
    chance = random.Random(1)  # noqa: S311 - a benchmark, no secret
    seconds: Counter[int] = Counter()
    for number in range(NODES):
        seconds.update(int(at_s) for at_s in writes_of(chance, node_changes(chance, f"n{number}")))
    minutes = Counter[int]()
    for second, count in seconds.items():
        minutes[second // 60] += count
    minutes.pop(0)  # all agents begin in it, which a rollout does not let them
    mean = sum(minutes.values()) / (DAY_S - 60)
    busiest = max(minutes.values()) / 60
    what = f"{NODES:,} nodes of {GPUS} GPUs, a day of phases"
    return [
        Row(name=f"GPU reports, writes a second, mean, {what}", value=mean, unit="1/s", goal="<= 20", note=load()),
        Row(name=f"GPU reports, writes a second, busiest minute, {what}", value=busiest, unit="1/s", goal="<= 20"),
    ]


def measure_memory() -> list[Row]:
    """The operator's cache and its reports, filled as its listing does: an object at a time is whole."""
    chance = random.Random(2)  # noqa: S311 - a benchmark, no secret
    before = memory_mib()
    items = []
    for number in range(NODES):
        *_, (_, report) = node_changes(chance, f"n{number}")
        raw = make_object(report.node, f"{number:036}") | {"status": make_status(report)}
        raw["metadata"]["resourceVersion"] = str(number + 1)
        items.append(trim_node_gpus(raw))
    cache = ObjectCache(JobErrors(time.monotonic), {NODE_GPUS: trim_node_gpus})
    cache.apply_listing(NODE_GPUS, Listing(items=tuple(items), resource_version=str(NODES)), requested_at_s=0.0)
    del items
    found = (report_of(one) for one in cache.objects(NODE_GPUS).values())
    reports = NO_REPORTS.changed(one for one in found if one is not None)
    grown = memory_mib() - before
    assert len(reports.by_node) == NODES
    what = f"{NODES:,} nodes of {GPUS} GPUs"
    return [Row(name=f"GPU reports, memory in the operator, {what}", value=grown, unit="MiB", goal="<= 300")]


def main() -> None:
    print_rows([*measure_memory(), *measure_writes()])


if __name__ == "__main__":
    main()
