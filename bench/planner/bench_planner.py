"""Benchmark of the planner at 10,000 nodes and 1,000 jobs: CPU time, beside a calibration loop of the same run.

*Cold* is the first plan of a new leader, from a view and nothing else.  *After one event* is a view evolved by one pod
and planned with the memo of the plan before, revalidation not included.  *At rest*: every job runs, the cluster is full
and shared out; *fill*: the cores stand, and all the rest is placed in one plan.  Goals hold for a machine on which the
calibration loop (a million multiplications and additions in Python) takes 45 ms, and are scaled by it.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from statistics import median
from typing import Final

from autoscaler.domain import ClusterView, CreatePod, Policy, Quota, QuotaLimit, Resources, Role, Shape
from autoscaler.planner import Memo, plan
from bench.planner.planner_clusters import (
    NOW_S,
    at_rest,
    chance_of,
    core_pods,
    empty,
    gang,
    web_burst,
    with_one_more_web_pod,
    with_one_pod_gone,
)
from bench.reporting.result_rows import Row, print_rows
from experiments.bounds import Worth, pattern_bound, upper_bound

NODES, JOBS, SHAPES = 10_000, 1_000, 60
REPEATS: Final = 7
CALIBRATION_MS: Final = 45.0  # of the machine on which the goals were set
POLICY: Final = Policy()
SPENT: Final = replace(
    POLICY, transfers_per_minute=0, transfers_percent_per_minute=0
)  # as in most plans: this minute's moves are made
DECADES: Final = (1, 10, 100, 1_000)
GROWTH: Final = {  # what grows: nodes, jobs and shapes for each decade
    "nodes": lambda many: (10 * many, many, 10),  # with a job to ten of them
    "jobs": lambda many: (1_000, many, 10),
    "shapes": lambda many: (1_000, 1_000, many),
}


def cpu_ms(action: Callable[[], object]) -> float:
    """CPU milliseconds of a call."""
    gc.collect()
    begun = time.process_time()
    action()
    return (time.process_time() - begun) * 1e3


def calibration() -> None:
    total = 0
    for number in range(1_000_000):
        total += number * number


class Clock:
    """Rows of CPU time, medians, with their ratio to the calibration loop, which is run before each call."""

    def row(self, name: str, action: Callable[[], object], *, goal_ms: float | None = None, note: str = "") -> Row:
        action()
        pairs = [(cpu_ms(calibration), cpu_ms(action)) for _ in range(REPEATS)]
        calibrated_ms, taken_ms = median(loop for loop, _ in pairs), median(taken for _, taken in pairs)
        goal = "" if goal_ms is None else f"<= {goal_ms * calibrated_ms / CALIBRATION_MS:.4g}"
        ratio = f"{taken_ms / calibrated_ms:.2f} x the calibration loop ({calibrated_ms:.0f} ms)"
        return Row(name=name, value=taken_ms, unit="ms CPU", goal=goal, note=f"{ratio}{'; ' if note else ''}{note}")


def after_one_event(view: ClusterView, policy: Policy, event: Callable[[ClusterView, int], ClusterView]) -> object:
    """Return a call that evolves the view by one event and plans, with a memo that knows the view."""
    memo, numbers = Memo(), count()
    plan(view, policy, NOW_S, memo=memo)
    return lambda: plan(event(view, next(numbers)), policy, NOW_S, memo=memo)


def rows_at_rest(shapes: int, cold_goal_ms: float) -> Iterator[Row]:
    clock, size = Clock(), f"{NODES:,} nodes x {JOBS:,} jobs, {shapes:,} shapes"
    view = at_rest(NODES, JOBS, shapes)
    pods = f"{len(view.pods):,} pods"
    goal_ms = 15 if shapes == SHAPES else None
    yield clock.row(f"cold, at rest, {size}", lambda: plan(view, SPENT, NOW_S), goal_ms=cold_goal_ms, note=pods)
    yield clock.row(f"cold, moves for fairness open, {size}", lambda: plan(view, POLICY, NOW_S), note=pods)
    for name, event in (("a pod has left", with_one_pod_gone), ("a pod waits", with_one_more_web_pod)):
        action = after_one_event(view, SPENT, event)
        yield clock.row(f"after one event ({name}), {size}", action, goal_ms=goal_ms)
    action = after_one_event(view, POLICY, with_one_pod_gone)
    yield clock.row(f"after one event, moves for fairness open, {size}", action, goal_ms=goal_ms)
    yield row_of_placing(view, size)
    listing = {"revision": 1, "observed_at_s": NOW_S, "nodes": view.nodes, "pods": view.pods, "jobs": view.jobs}
    yield clock.row(f"a view from a listing, {size}", lambda: ClusterView(**listing), note=pods)


def row_of_placing(view: ClusterView, size: str) -> Row:
    """How much of what whole pods could use of the nodes is used; the cores stand at random, fair shares cost room."""
    used = sum(pod.requests.cpu_milli for pod in view.pods if pod.role is not Role.EXTERNAL)
    linear = used / upper_bound(view, Worth.CPU)
    return Row(
        name=f"cpu of replicas placed / bound by whole pods on every node, {size}",
        value=used / pattern_bound(view, Worth.CPU),
        unit="",
        goal=">= 0.97",
        note=f"{linear:.3f} of the linear bound; both let every pod of a job move and know no fairness",
    )


def rows_of_fill() -> Iterator[Row]:
    view = empty(NODES, JOBS, SHAPES)
    view = view.evolve(pods=core_pods(view, chance_of(1)))
    placed = sum(isinstance(action, CreatePod) for action in plan(view, SPENT, NOW_S).actions)
    name = f"fill, {NODES:,} nodes x {JOBS:,} jobs, {SHAPES} shapes"
    yield Clock().row(name, lambda: plan(view, SPENT, NOW_S), note=f"{placed:,} trainers placed in one plan")


def rows_of_growth() -> Iterator[Row]:
    for what, sizes_at in GROWTH.items():
        for many in DECADES:
            nodes, jobs, shapes = sizes_at(many)
            view = at_rest(nodes, jobs, shapes)
            size = f"{nodes:,} nodes x {jobs:,} jobs, {shapes:,} shapes"
            yield Clock().row(f"growth with {what}: cold, {size}", lambda view=view: plan(view, SPENT, NOW_S))
            action = after_one_event(view, SPENT, with_one_pod_gone)
            yield Clock().row(f"growth with {what}: after one event, {size}", action)
    view = at_rest(133, 20, 10)
    name = "a simulator's plan, 133 nodes x 20 jobs, one pod changed"
    yield Clock().row(name, after_one_event(view, POLICY, with_one_pod_gone), goal_ms=2, note=f"{len(view.pods)} pods")


def rows_of_quotas() -> Iterator[Row]:
    """Plans that ask for each job whether the quota of the namespace of them all has room for it."""
    limit = QuotaLimit(resource="cpu", hard=10**9, used=0)
    view = replace(at_rest(1_000, JOBS, SHAPES), quotas=(Quota(namespace="default", name="team", limits=(limit,)),))
    name = f"after one event, {JOBS:,} jobs under one quota, 1,000 nodes"
    yield Clock().row(name, after_one_event(view, POLICY, with_one_pod_gone))


def rows_of_gangs() -> Iterator[Row]:
    """Plans while a gang of thousands waits: into free capacity, into surplus, into neither."""
    nodes, minimum, cores = 5_000, 4_000, 8_000
    free, full = empty(nodes, 0, 1), at_rest(nodes, nodes // 10, SHAPES)
    scenes = (("starts", free, cores), ("fits nowhere", free, 6 * cores), ("takes surplus", full, cores // 2))
    for name, view, cpu_milli in scenes:
        wanted = gang(minimum, Shape(requests=Resources(cpu_milli=cpu_milli, memory_bytes=16 * 2**30)))
        waits = view.evolve(jobs=[wanted])
        action = partial(plan, waits, POLICY, NOW_S)
        actions = len(action().actions)
        size = f"gang of {minimum:,} on {nodes:,} nodes"
        yield Clock().row(f"{size}: {name}", action, note=f"{actions:,} actions")


def rows_of_web_bursts() -> Iterator[Row]:
    """Plans when Deployments come to full nodes of which waste is weighed: their pods displace trainers."""
    nodes, pods = 1_000, 500
    full = at_rest(nodes, nodes, SHAPES)
    for cpu_milli in (4_000, 6_000):
        wanted = Shape(requests=Resources(cpu_milli=cpu_milli, memory_bytes=2**30))
        action = partial(plan, full.evolve(pods=web_burst(pods, wanted)), POLICY, NOW_S)
        actions = len(action().actions)
        name = f"{pods} web pods of {cpu_milli // 1_000} cores come to {nodes:,} nodes"
        yield Clock().row(name, action, note=f"{actions:,} actions")


def memory_mib() -> float:
    """Peak memory of a process that makes the cluster and plans for it."""
    code = (
        "from pathlib import Path\n"
        "from autoscaler.domain import Policy\n"
        "from autoscaler.planner import Memo, plan\n"
        "from bench.planner.planner_clusters import NOW_S, at_rest\n"
        f"view, memo = at_rest({NODES}, {JOBS}, 1_000), Memo()\n"
        "plan(view, Policy(transfers_per_minute=0), NOW_S, memo=memo)\n"
        # not ru_maxrss: that begins with what this process had when it forked
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    return float(done.stdout) / 1024


def main() -> None:
    for rows in (
        rows_at_rest(SHAPES, 150),
        rows_at_rest(1_000, 500),
        rows_of_fill(),
        rows_of_growth(),
        rows_of_quotas(),
        rows_of_gangs(),
        rows_of_web_bursts(),
    ):
        for row in rows:
            print_rows([row])
    note = "peak of a process that makes the view and plans, Python and NumPy included"
    print_rows([Row(name="memory, 1,000 shapes", value=memory_mib(), unit="MiB", goal="<= 400", note=note)])


if __name__ == "__main__":
    main()
