"""The page of all metrics in `docs/reference/`, out of what each process exports; `tools.reference` writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from autoscaler.gpus.agent.gpu_metrics import GpuCollector
from autoscaler.gpus.agent.node_agent import NodeSample
from autoscaler.gpus.owners import OwnersUnknown
from autoscaler.operator.metrics import Metrics
from autoscaler.page.page_metrics import PageMetrics
from master.api.identities import Lineage, Term
from master.api.master_status import JobPhase, JobStatus, PositionCounts
from master.api.positions import EMPTY
from master.process.metrics import MasterCollector
from master.term.counters import Counters

FILES: Final = Path(__file__).resolve().parent.parent / "charts" / "edl" / "files"
_HEADING: Final = """# Metrics

{made}

What Prometheus reads of EDL's processes. Labels are bounded, and series of a job go with the job. The chart draws
them and alerts on them: [Metrics, alerts, dashboards](../kubernetes.md#metrics-alerts-dashboards).
"""
_SOURCES: Final = {
    "Operator": "Port 8080 of `edl operator`, or `edl run --metrics`. `namespace` and `job` are a TrainingJob's.",
    "Masters": "Port 7165 of a master. The chart's `podMonitor` adds `namespace`, `pod`, and the job as `edl_dev_job`.",
    "Page": "Port 8080 of `edl page-server`, the page of a cluster.",
    "Agents": "Port 9410 of `edl agent`; [GPUs by use](../gpus.md) says what the verdicts mean.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric.  `series`: the names that Prometheus has of it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str

    @property
    def series(self) -> tuple[str, ...]:
        suffixes = {
            "counter": ("_total",),
            "histogram": ("_bucket", "_sum", "_count"),
            "summary": ("_sum", "_count"),
        }.get(self.kind, ("",))
        return tuple(f"{self.name}{suffix}" for suffix in suffixes)


def families() -> dict[str, tuple[Family, ...]]:
    """Return all metrics that EDL's processes export, by process."""
    masters = MasterCollector(_Leading())
    gpus = GpuCollector(lambda: (NodeSample(owners=OwnersUnknown(reason="no pods")), 0.0))
    return {
        "Operator": tuple(_registered(Metrics().registry)),
        "Masters": tuple(_collected(masters)),
        "Page": tuple(_registered(PageMetrics().registry)),
        "Agents": tuple(_collected(gpus)),
    }


def recorded() -> dict[str, str]:
    """Return what the chart's rules record: expressions by name."""
    groups = yaml.safe_load((FILES / "recording-rules.yaml").read_text(encoding="utf-8"))["groups"]
    return {rule["record"]: rule["expr"] for group in groups for rule in group["rules"]}


def make_metrics_page(made: str) -> str:
    """Return the page.  `made`: the mark of a page that is not written by hand."""
    lines = [_HEADING.format(made=made)]
    for source, found in families().items():
        lines += [f"## {source}", "", _SOURCES[source], "", *_table(found), ""]
    lines += ["## Recorded", "", "With `metrics.prometheusRule` of the chart.", ""]
    lines += ["| metric | is |", "|---|---|"]
    lines += [f"| `{name}` | `{expr}` |" for name, expr in recorded().items()]
    return "\n".join([*lines, ""])


def _table(found: Iterable[Family]) -> Iterator[str]:
    yield "| metric | labels | meaning |"
    yield "|---|---|---|"
    for one in sorted(found, key=lambda family: family.name):
        name = f"{one.name}_total" if one.kind == "counter" else one.name
        labels = ", ".join(f"`{label}`" for label in one.labels)
        yield f"| `{name}` ({one.kind}) | {labels} | {one.text} |"


def _registered(registry: CollectorRegistry) -> Iterator[Family]:
    """A metric without a series tells its labels nowhere but in the client library's own fields."""
    collectors: Mapping[Any, Any] = registry._collector_to_names  # noqa: SLF001
    for one in collectors:
        yield Family(name=one._name, kind=one._type, labels=tuple(one._labelnames), text=one._documentation)  # noqa: SLF001


def _collected(collector: Collector) -> Iterator[Family]:
    for one in collector.collect():
        labels = tuple(getattr(one, "_labelnames", ()))
        yield Family(name=one.name, kind=one.type, labels=labels, text=one.documentation)


@dataclass(slots=True, kw_only=True)
class _Leading:
    """A master that leads a job without members and has made a checkpoint."""

    counts: Counters = field(default_factory=Counters)
    stream_count: int = 0
    waiting_write_count: int = 0

    def try_status(self) -> JobStatus | None:
        nothing = PositionCounts(total=0, todo=0, leased=0, done=0, skipping=0, committed=0, quarantined=0)
        return JobStatus(
            phase=JobPhase.TRAINING,
            problem="",
            checkpoint_problem="",
            store_problem="",
            moves_problem="",
            term=Term(1),
            lineage=Lineage(1),
            head=None,
            checkpoint_age_s=0.0,
            epochs=0,
            epoch_size=0,
            positions=nothing,
            per_epoch=(),
            epochs_committed=0,
            quarantine=EMPTY,
            reworked=0,
            members=(),
            servers=0,
            servers_wanted=0,
            servers_max=0,
            moving=0,
            waiting_to_move=0,
            copies=1,
            single_copies=0,
            failures=(),
            failures_in_a_row=0,
        )
