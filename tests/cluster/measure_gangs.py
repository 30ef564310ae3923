"""Many jobs created together: how long their gangs take to start, one at a time, in which order, for how many calls.

The operator is a process of its own with the chart's account and leads already; every job fits beside all the others,
so that only the starts themselves take time.  Nodes run nothing, all else is real.  A gang has started when all that
its job cannot run without runs, its master too.  Equal jobs start by the second in which they were created, then by
name; how far each was from its turn is told.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Raw, Scope
from autoscaler.clusters.kubernetes.api.connection import ConnectionPolicy
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE
from tests.cluster.accounts import open_client
from tests.cluster.api_call_costs import calls_in
from tests.cluster.chart_control_plane import LEASE, start_charted, take_place, write_operator_kubeconfig
from tests.cluster.kwok_nodes import NodeShape, create_nodes
from tests.cluster.measure_large import run_each
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.percentiles import spread_of
from tests.cluster.pod_watch import follow_pods
from tests.cluster.toolbox import find_tools
from tests.cluster.workloads import job_of

JOBS: Final = 500  # of the goal
NAMESPACES: Final = tuple(f"team-{number}" for number in range(10))
TRAINERS: Final = 2  # of each job, none of them surplus; a server and a master beside them
CORE: Final = TRAINERS + 2
NODE_CPU: Final = 8
POD_CPU: Final = "500m"
MASTER_CPU: Final = 1
SPARE: Final = 1.5  # so much more room than all jobs need
PATIENCE_S: Final = 60.0
LONGEST_S: Final = 3600.0


@dataclass(slots=True, kw_only=True)
class Starts:
    """When each job was created, and when the last of its core pods ran, by this process's clock.

    `turns`: what decides who is first, the server's own second and the name.
    """

    created_s: dict[str, float] = field(default_factory=dict)
    turns: dict[str, tuple[str, str]] = field(default_factory=dict)
    started_s: dict[str, float] = field(default_factory=dict)
    lost: int = 0  # pods that were told to leave: no gang should lose its race
    _running: dict[str, set[str]] = field(default_factory=dict)
    _leaving: set[str] = field(default_factory=set)

    def see(self, raw: Raw, is_gone: bool) -> None:
        uid, job = text(raw, "metadata", "uid"), text(raw, "metadata", "labels", JOB)
        key = f"{raw['metadata']['namespace']}/{job}"
        if (is_gone or raw["metadata"].get("deletionTimestamp")) and uid not in self._leaving:
            self._leaving.add(uid)
            self.lost += 1
        if text(raw, "status", "phase") == "Running" and key not in self.started_s:
            running = self._running.setdefault(key, set())
            running.add(uid)
            if len(running) == CORE:
                self.started_s[key] = time.monotonic()


def measure_gangs(part: float = 1.0) -> dict[str, Any]:
    """`part` 1.0: 500 jobs."""
    count = round(JOBS * part)
    cpu = count * (0.5 * (TRAINERS + 1) + MASTER_CPU)
    nodes = [f"node-{number:04d}" for number in range(round(SPARE * cpu / NODE_CPU) + 2)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with (
            start_charted(place, find_tools(os.environ), namespaces=NAMESPACES) as plane,
            open_client(plane.kubeconfig) as api,
        ):
            take_place(api)
            account = write_operator_kubeconfig(place / "operator.kubeconfig", plane, api)
            create_nodes(api, dict.fromkeys(nodes, NodeShape(cpu=str(NODE_CPU), memory="32Gi")))
            with OperatorProcess("operator", place, account, lease=LEASE) as operator:
                operator.wait_leading()
                return asyncio.run(_measure(plane.kubeconfig, operator, count)) | {"nodes": len(nodes)}


async def _measure(kubeconfig: Path, operator: OperatorProcess, count: int) -> dict[str, Any]:
    api = await connect(kubeconfig, policy=ConnectionPolicy(request_timeout_s=PATIENCE_S))
    starts, listed = Starts(), asyncio.Event()
    scope = Scope(labels=f"{JOB},{ROLE} in (trainer,server,master)")
    watching = asyncio.create_task(follow_pods(api, scope, starts.see, listed=listed))
    await listed.wait()
    calls, cpu_s, from_s = calls_in(operator.get("/metrics")[1]), operator.cpu_s(), time.monotonic()
    await run_each(_submit(api, starts, number) for number in range(count))
    submitted_s = time.monotonic() - from_s
    await _until(f"all {count} have started", lambda: len(starts.started_s) == count, starts)
    all_s = max(starts.started_s.values()) - from_s
    spent = calls_in(operator.get("/metrics")[1]) - calls
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await api.close()
    return {
        "jobs": count,
        "core_pods_of_each": CORE,
        "submitted_within_s": round(submitted_s, 1),
        "all_started_s": round(all_s, 1),
        "created_to_started_s": spread_of([at_s - starts.created_s[job] for job, at_s in starts.started_s.items()]),
        "between_two_starts_s": spread_of(_gaps(sorted(starts.started_s.values()))),
        "places_from_its_turn": spread_of([float(n) for n in _displacements(starts)]),
        "pods_told_to_leave": starts.lost,
        "calls_of_a_gang": {kind: round(number / count, 2) for kind, number in sorted(spent.items())},
        "cpu_s_of_a_gang": round((operator.cpu_s() - cpu_s) / count, 3),
        "memory_mb": {name: round(mb, 1) for name, mb in operator.memory_mb().items()},
    }


def _gaps(times_s: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times_s)]


def _displacements(starts: Starts) -> list[int]:
    """Distance of each start from its place in the order."""
    turns = {job: place for place, job in enumerate(sorted(starts.turns, key=starts.turns.__getitem__))}
    order = sorted(starts.started_s, key=starts.started_s.__getitem__)
    return [abs(turns[job] - place) for place, job in enumerate(order)]


async def _submit(api: Api, starts: Starts, number: int) -> None:
    name, namespace = f"job-{number:03d}", NAMESPACES[number % len(NAMESPACES)]
    body: Raw = job_of(name, minimum=TRAINERS, maximum=TRAINERS, cpu=POD_CPU, server_cpu=POD_CPU)
    body["metadata"]["namespace"] = namespace
    key = f"{namespace}/{name}"
    starts.created_s[key] = time.monotonic()
    created = await api.create(TRAINING_JOBS, body)
    starts.turns[key] = (text(created, "metadata", "creationTimestamp"), key)


async def _until(what: str, holds: Callable[[], bool], starts: Starts) -> None:
    until_s, told = time.monotonic() + LONGEST_S, 0
    while not holds():
        if time.monotonic() > until_s:
            raise AssertionError(f"{what}: not within {LONGEST_S:g} s; {len(starts.started_s)} have")
        if len(starts.started_s) >= told + 50:
            told = len(starts.started_s)
            print(json.dumps({"started": told, "at_s": round(max(starts.started_s.values()), 1)}), flush=True)
        await asyncio.sleep(0.2)
