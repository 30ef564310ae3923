"""Jobs after a published trace, by its statistics: no file of it is used.

Pollux (Qiao et al., OSDI 2021, section 5) drives its experiments with 160 jobs that are submitted in 8 hours, after
the busiest hours of Microsoft's trace of 2017 (Philly): most submissions come in the fourth hour, about three times as
many as in the first. Jobs fall into four classes by their GPU time: 72 % small (up to 1 GPU-hour), 20 % medium (1 to
10), 6 % large (10 to 100) and 2 % of 100 hours and more. The cluster has 16 nodes of 4 GPUs. Curves are drawn here,
since those of five models are published. GPU time counts one GPU, so a job that scales badly needs more in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.domain import Job, JobName, MasterSpec, Node, NodeName, Resources, Shape, TrainerSpec
from autoscaler.throughput import CurveShape

NODES: Final = 16
GPUS: Final = 4
JOBS: Final = 160
HOURS: Final = 8
HOURLY: Final = (1.0, 1.5, 2.2, 3.0, 2.4, 1.8, 1.4, 1.2)
"""Submissions by the hour, relative to the first."""

CLASSES: Final = ((0.72, 0.1, 1.0), (0.20, 1.0, 10.0), (0.06, 10.0, 60.0), (0.02, 60.0, 120.0))
"""Share of the jobs, and bounds of their GPU-hours; the largest are cut, so that a pass ends within a day."""

LARGEST: Final = 16
SIZES: Final = (1, 2, 4, 8, 16)
FIXED_EFFICIENCY: Final = 0.65
"""Users who choose a number of GPUs themselves choose the largest at which a GPU still does so much of its work: the
paper tunes its fixed jobs to 50 to 80 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job of the trace.  `gpu_hours`: of one GPU."""

    name: JobName
    at_s: float
    gpu_hours: float
    curve: CurveShape

    @property
    def samples(self) -> float:
        """Return its work."""
        return self.gpu_hours * 3_600.0 * self.curve.samples_per_s(1)

    @property
    def fixed_size(self) -> int:
        """Return the number of GPUs that its user would choose."""
        rate = self.curve.samples_per_s
        kept = [size for size in SIZES if rate(size) / size >= FIXED_EFFICIENCY * rate(1)]
        return max(kept) if self.gpu_hours >= 1.0 else min(2, max(kept))


def draw_trace(seed: int, *, jobs: int = JOBS, hours: float = HOURS) -> list[TraceJob]:
    """Return the jobs in the order of their submission."""
    rng = np.random.default_rng(seed)
    weights = np.array(HOURLY) / sum(HOURLY)
    slots = rng.choice(len(HOURLY), size=jobs, p=weights)
    instants = np.sort((slots + rng.random(jobs)) * hours * 3_600.0 / len(HOURLY))
    kinds = rng.choice(len(CLASSES), size=jobs, p=[share for share, _, _ in CLASSES])
    found = []
    for number, (at_s, kind) in enumerate(zip(instants.tolist(), kinds.tolist(), strict=True)):
        _, low, high = CLASSES[kind]
        gpu_hours = float(np.exp(rng.uniform(np.log(low), np.log(high))))
        found.append(TraceJob(name=JobName(f"j{number:03d}"), at_s=at_s, gpu_hours=gpu_hours, curve=draw_curve(rng)))
    return found


def draw_curve(rng: np.random.Generator) -> CurveShape:
    """Return a curve: at 16 GPUs between nearly perfect and hopeless."""
    return CurveShape(
        work=float(rng.uniform(0.002, 0.02)),
        serial=float(10.0 ** rng.uniform(-2.7, -0.5)),
        exchange=float(10.0 ** rng.uniform(-5.0, -2.3)),
        overlap=float(rng.choice((1.0, 2.0, 4.0))),
    )


def make_nodes(count: int = NODES) -> list[Node]:
    """Return the cluster."""
    room = Resources(cpu_milli=64_000, memory_bytes=1 << 38, gpu_count=GPUS, extended=(("pods", 110),))
    return [Node(name=NodeName(f"n{number:02d}"), allocatable=room) for number in range(count)]


def make_job(job: TraceJob, *, efficiency: float = 0.0, fixed: int = 0, pause_s: float = 0.0) -> Job:
    """Return the job as EDL sees it; with `fixed` only at that size."""
    sizes = (fixed,) if fixed else tuple(range(1, LARGEST + 1))
    pod = (("pods", 1),)
    return Job(
        name=job.name,
        trainer=TrainerSpec(
            shape=Shape(requests=Resources(cpu_milli=4_000, memory_bytes=1 << 33, gpu_count=1, extended=pod)),
            min_replicas=sizes[0],
            max_replicas=sizes[-1],
            efficiency=efficiency,
        ),
        master=MasterSpec(shape=Shape(requests=Resources(cpu_milli=100, memory_bytes=1 << 28, extended=pod))),
        resize_pause_s=pause_s,
    )
