"""Samples of a run folder (`samples.jsonl`), parsed for the figure and the audit.

The local cluster writes them; only their shape is known here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSample:
    trainers: int
    target: int
    minimum: int
    maximum: int
    servers: int
    servers_target: int
    committed: int  # positions in the head checkpoint
    total: int  # positions of the whole job
    loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The cluster at one moment; CPU in millicores, summed over the nodes."""

    at_s: float
    capacity_millicores: int
    web_millicores: int
    trainer_millicores: int
    server_millicores: int  # parameter servers and masters
    jobs: Mapping[str, JobSample]
    web_desired: int
    web_ready: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultMark:
    """An injected fault."""

    at_s: float
    label: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTimes:
    """Seconds from a web pod's creation, pending, to its answering; None when no pod was created."""

    count: int
    median_s: float | None
    worst_s: float | None


def parse_samples(lines: Iterable[str], *, workload: str) -> tuple[Sample, ...]:
    """One `Sample` a line of samples.jsonl; a last line cut short by a crash is left out."""
    return tuple(_sample(row, workload) for row in _rows(lines))


def count_servers(samples: Iterable[Sample], job: str) -> tuple[int, int]:
    """The fewest and the most parameter servers that the job had at once while it trained; (0, 0): it never did."""
    found = [s.jobs[job] for s in samples if job in s.jobs]
    counts = [one.servers for one in found if one.trainers and one.servers]
    return min(counts, default=0), max(counts, default=0)


def measure_waits(seconds: Iterable[float | None]) -> WaitTimes:
    """Summary of the pods' waiting times; a pod that never became ready (None) is not counted."""
    waits = sorted(wait for wait in seconds if wait is not None)
    if not waits:
        return WaitTimes(count=0, median_s=None, worst_s=None)
    return WaitTimes(count=len(waits), median_s=median(waits), worst_s=waits[-1])


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _rows(lines: Iterable[str]) -> Iterable[dict[str, object]]:
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            yield row


def _sample(row: Mapping[str, object], workload: str) -> Sample:
    nodes = [dict(node) for node in _mapping(row["nodes"]).values()]
    web = _mapping(_mapping(row["workloads"]).get(workload, {}))

    def total(*keys: str) -> int:
        return sum(int(node.get(key, 0)) for node in nodes for key in keys)

    return Sample(
        at_s=float(str(row["t_s"])),
        capacity_millicores=total("capacity_millicores"),
        web_millicores=total("web"),
        trainer_millicores=total("trainers"),
        server_millicores=total("servers", "masters"),
        jobs={name: _job(_mapping(job)) for name, job in _mapping(row["jobs"]).items()},
        web_desired=int(web.get("desired", 0)),
        web_ready=int(web.get("ready", 0)),
    )


def _job(row: Mapping[str, object]) -> JobSample:
    loss = row.get("loss")
    return JobSample(
        trainers=_int(row["trainers"]),
        target=_int(row["target"]),
        minimum=_int(row["min"]),
        maximum=_int(row["max"]),
        servers=_int(row["servers"]),
        servers_target=_int(row["servers_target"]),
        committed=_int(row.get("committed")),
        total=_int(row.get("total")),
        loss=None if loss is None else float(str(loss)),
    )


def _int(value: object) -> int:
    return int(str(value or 0))


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a mapping in the run's samples, got {value!r}")
    return value
