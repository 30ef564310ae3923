"""`python -m tests.cluster.measure rises|scale|large|gangs`: EDL and kube-scheduler together, on stand-in nodes.

`rises`: a hundred rises of 1 to 20 web pods on twenty nodes in each mode of reclaim, and some with headroom; about
half an hour.  `scale`: six jobs on 133 nodes while the web goes from 100 to 400 pods; some minutes.  `large`: what the
operator's process needs for 500 jobs on 1,000 nodes (`measure_large`); a quarter of an hour.  `gangs`: how long 500
jobs take to start that were created together (`measure_gangs`).  What comes out stands in
`docs/reports/beside-the-scheduler.json`, with the commit and how busy the machine was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from kubernetes import client

from autoscaler.domain import Headroom, Policy, Reclaim, Resources, Shape
from autoscaler.etcd_server.build import CHECKOUT
from bench.__main__ import redraw
from tests.cluster.accounts import open_client
from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.cluster.kwok_nodes import NodeShape, create_nodes
from tests.cluster.measure_gangs import measure_gangs
from tests.cluster.measure_large import measure_large
from tests.cluster.mixed_day import DEAF, GRACE_S, WEB, MixedDay, Rise, brisk
from tests.cluster.percentiles import spread_of
from tests.cluster.toolbox import find_tools
from tests.cluster.workloads import installed, job_of, web_of

RESULTS: Final = CHECKOUT / "docs" / "reports" / "beside-the-scheduler.json"
NAMESPACE: Final = "shared"

NODES, CPU, JOBS, MAXIMUM, FIRST_WEB = 20, 8, 4, 40, 20
FULL: Final = NODES * CPU - FIRST_WEB - 2 * JOBS
LARGEST_RISE: Final = 20
ROOM: Final = Resources(cpu_milli=1_000, memory_bytes=2**27, extended=(("pods", 1),))

SIZES: Final = [8] * 27 + [16] * 35 + [18] * 48 + [20] + [24] * 2 + [32] * 20
"""CPU of the 133 nodes of the measurement with stand-ins and without a controller."""

STAND_INS: Final = {200: 4.5, 300: 5.7, 400: 5.6}
"""What that one took, in seconds, until all web pods ran."""


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("what", choices=["rises", "scale", "large", "gangs"])
    parser.add_argument("--rises", type=int, default=100, help="of the web; large: so many resizes")
    parser.add_argument("--reclaim", type=Reclaim, choices=list(Reclaim), nargs="*", default=list(Reclaim))
    parser.add_argument("--alone", action="store_true", help="scale: EDL stops once the cluster is full, to compare")
    parser.add_argument("--part", type=float, default=1.0, help="large, gangs: of the goal's size")
    asked = parser.parse_args()
    if asked.what in {"large", "gangs"}:
        loads = [os.getloadavg()[0]]
        found = measure_large(asked.part, asked.rises) if asked.what == "large" else measure_gangs(asked.part)
        name = asked.what if asked.part == 1 else f"{asked.what}-{asked.part:g}"
        save(name, found | {"load_before_and_after": [*loads, os.getloadavg()[0]]})
        return
    for reclaim in asked.reclaim:
        with fresh_plane() as (plane, api):
            work = (
                measure_rises(plane, api, reclaim, asked.rises)
                if asked.what == "rises"
                else scale(plane, api, reclaim, is_alone=asked.alone)
            )
            loads = [os.getloadavg()[0]]
            found = asyncio.run(work)
            loads.append(os.getloadavg()[0])
        save(f"{asked.what}-{reclaim}{'-alone' * asked.alone}", found | {"load_before_and_after": loads})


@contextmanager
def fresh_plane() -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        start_control_plane(Path(folder), find_tools(os.environ)) as plane,
        open_client(plane.kubeconfig) as api,
        installed(plane, api),
    ):
        plane.kubectl("create", "namespace", NAMESPACE)
        yield plane, api


def save(name: str, found: dict[str, Any]) -> None:
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    machine = {"commit": commit.stdout.strip(), "cores": os.cpu_count()}
    known[name] = machine | found
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    redraw()
    print(json.dumps({name: known[name]}, indent=1))


# ---- rises ----------------------------------------------------------------------------------------------------------


async def measure_rises(plane: ControlPlane, api: client.ApiClient, reclaim: Reclaim, count: int) -> dict[str, Any]:
    nodes = [f"node-{number:02d}" for number in range(NODES)]
    create_nodes(api, dict.fromkeys(nodes, NodeShape(cpu=str(CPU), memory="64Gi")))
    capacity_milli = dict.fromkeys(nodes, CPU * 1_000)
    draw = random.Random(count)
    async with MixedDay(plane.kubeconfig, NAMESPACE, capacity_milli, brisk(reclaim)) as day:
        await day.begin(jobs=JOBS, maximum=MAXIMUM, web=FIRST_WEB, full=FULL)
        rises, falls_s = [], []
        for number in range(count):
            rises.append(await day.rise(1 + number % LARGEST_RISE))
            falls_s.append(await day.fall(rises[-1].pods))
            await asyncio.sleep(draw.uniform(0.0, 1.0))
        await day.end()
    headroom = Headroom(shape=Shape(requests=ROOM), count=LARGEST_RISE)
    async with MixedDay(plane.kubeconfig, NAMESPACE, capacity_milli, brisk(reclaim, headroom=(headroom,))) as ahead:
        await ahead.wait("nobody left", lambda: not any(p.ended_at_s is None for p in ahead.timeline.pods.values()))
        await ahead.begin(jobs=JOBS, maximum=MAXIMUM, web=FIRST_WEB, full=FULL - LARGEST_RISE)
        eased = []
        for _ in range(max(1, count // 10)):
            eased.append(await ahead.rise(LARGEST_RISE))
            await ahead.fall(LARGEST_RISE)
        await ahead.end()
    return {
        "rises": len(rises),
        "web_pods": sum(rise.pods for rise in rises),
        "grace_s": GRACE_S,
        "verdict_to_first_deletion_s": spread_of([r.reaction_s for r in rises if r.reaction_s is not None]),
        "rises_with_no_verdict_or_no_deletion": sum(rise.reaction_s is None for rise in rises),
        "created_to_running_s": spread_of([one_s for rise in rises for one_s in rise.running_s]),
        "fall_to_full_s": spread_of(falls_s),
        "trainers_lost_beyond_web_pods": sum(max(0, rise.lost - rise.pods) for rise in rises),
        "trainers_lost": sum(rise.lost for rise in rises),
        "trainers_moved": sum(rise.moved for rise in rises),
        "largest_spread_of_equal_jobs": max(rise.spread for rise in rises),
        "nodes_over_capacity": len(day.timeline.excess) + len(ahead.timeline.excess),
        "longest_wait_of_a_trainer_s": round(max(day.timeline.waited_s().values()), 3),
        "with_headroom": {
            "rises": len(eased),
            "web_pods_each": LARGEST_RISE,
            "rises_with_a_verdict": sum(rise.first_verdict_s is not None for rise in eased),
            "created_to_running_s": spread_of([one_s for rise in eased for one_s in rise.running_s]),
        },
    }


# ---- scale ----------------------------------------------------------------------------------------------------------


async def scale(plane: ControlPlane, api: client.ApiClient, reclaim: Reclaim, *, is_alone: bool) -> dict[str, Any]:
    nodes = {f"node-{number:03d}": cpu for number, cpu in enumerate(SIZES)}
    create_nodes(api, {name: NodeShape(cpu=str(cpu), memory="100Gi", pods=250) for name, cpu in nodes.items()})
    capacity_milli = {name: cpu * 1_000 for name, cpu in nodes.items()}
    policy = Policy(reclaim=reclaim, surplus_grace_s=float(GRACE_S))
    async with MixedDay(plane.kubeconfig, NAMESPACE, capacity_milli, policy) as day:
        await day.open_web(web_of(WEB, replicas=100, cpu="3"))
        sizes = {"minimum": 2, "maximum": 60, "servers": 10, "cpu": "5", "server_cpu": "4"}
        await day.submit(job_of(f"job-{number}", life=DEAF, grace_s=GRACE_S, **sizes) for number in range(6))
        await until_still(day)
        steps = [{"web": 100, "use_percent": use_of(day), "trainers": day.timeline.trainers()}]
        writes = day.edl.applied
        if is_alone:
            await day.stop_edl()
        for web in STAND_INS:
            rise = await day.rise(100, budget_s=120.0)
            step = {"web": web, "use_percent": use_of(day), **of_rise(rise), "stand_ins_alone_s": STAND_INS[web]}
            await until_still(day)
            steps.append(step | {"use_when_still_percent": use_of(day), "trainers": day.timeline.trainers()})
            print(json.dumps(steps[-1]), flush=True)
        waited_s = max(day.timeline.waited_s().values())
        return {
            "steps": steps,
            "nodes_over_capacity": len(day.timeline.excess),
            "longest_wait_of_a_trainer_s": round(waited_s, 3),
            "writes": {f"{kind} {verdict}": count for (kind, verdict), count in sorted(writes.items())},
        }


def of_rise(rise: Rise) -> dict[str, Any]:
    return {
        "all_running_s": round(rise.all_running_s, 2),
        "median_running_s": round(median(rise.running_s), 2),
        "lost": rise.lost,
        "moved": rise.moved,
        "spread": rise.spread,
    }


async def until_still(day: MixedDay, *, still_s: float = 10.0, budget_s: float = 180.0) -> None:
    """Wait until as many trainers have run for a while."""
    until_s, since_s, before = time.monotonic() + budget_s, time.monotonic(), -1
    while time.monotonic() - since_s < still_s and time.monotonic() < until_s:
        if (now := day.standing()) != before:
            before, since_s = now, time.monotonic()
        await asyncio.sleep(0.2)


def use_of(day: MixedDay) -> float:
    """CPU requests of running pods, in percent of all nodes'."""
    running = [pod for pod in day.timeline.pods.values() if pod.running_at_s is not None and pod.ended_at_s is None]
    return round(sum(pod.cpu_milli for pod in running) / 10.0 / sum(SIZES), 1)


if __name__ == "__main__":
    main()
