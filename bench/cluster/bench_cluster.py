"""Benchmark of the local cluster: a web pod's wait, a new trainer's start, and the cost of a commit to the trainers."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, TRAINING_JOBS
from autoscaler.domain import Resources
from autoscaler.local_run.local_run import LocalRun
from autoscaler.local_run.run_settings import RunSettings
from autoscaler.manifests import parse_files
from autoscaler.manifests.conversion import make_virtual_node
from bench.reporting.result_rows import Row, print_rows

PROGRAM = Path(__file__).parent / "programs" / "first_batch.py"
WEB = Path(__file__).parents[2] / "examples" / "web_server.py"
ROUNDS = 7
LIMIT_S = 60.0

JOB = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {{name: job}}
spec:
  trainer:
    minReplicas: 1
    maxReplicas: {most}
    template:
      spec:
        terminationGracePeriodSeconds: 8
        containers:
          - name: trainer
            command: ["{python}", "{program}"]
            env: [{{name: TIMES_DIR, value: "{times}"}}, {{name: SLOW_ORDINAL, value: "{slow}"}}]
            resources: {{requests: {{cpu: 1, memory: 64Mi}}}}
  parameterServer:
    minReplicas: 2
    maxReplicas: 2
    template:
      spec: {{containers: [{{name: server, resources: {{requests: {{cpu: 250m, memory: 64Mi}}}}}}]}}
  master:
    template:
      spec: {{containers: [{{name: master, resources: {{requests: {{cpu: 250m, memory: 64Mi}}}}}}]}}
  checkpoint: {{everySeconds: 2}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      priorityClassName: web
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          command: ["{python}", "{web}"]
          ports: [{{containerPort: 8080}}]
          resources: {{requests: {{cpu: 1, memory: 64Mi}}}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: web}}
value: 1000
"""


@asynccontextmanager
async def cluster(times: Path, *, nodes: int, most: int, slow: str = "") -> AsyncIterator[LocalRun]:
    """One job on `nodes` nodes of 2 CPUs, grown to what fits, with no web pod yet."""
    text = JOB.format(python=sys.executable, program=PROGRAM, web=WEB, times=times, most=most, slow=slow)
    manifest = times / "job.yaml"
    manifest.write_text(text)
    capacity = Resources(cpu_milli=2_000, memory_bytes=4 << 30)
    settings = RunSettings(
        name="bench",
        machines=tuple(make_virtual_node(f"node-{n}", capacity) for n in range(nodes)),
        devices=((),) * nodes,
        parent=times / "runs",
    )
    async with LocalRun(settings) as run:
        await run.submit(parse_files([manifest]))
        yield run
        await run.stop()


async def until(what: str, condition: Any) -> Any:
    """The condition's first true answer; gives up after a minute and says what did not come."""
    deadline = time.monotonic() + LIMIT_S
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what}")
        await asyncio.sleep(0.02)
    return answer


async def scale_web(run: LocalRun, replicas: int) -> None:
    await run.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": replicas}}, namespace="default")


async def pin_job(run: LocalRun, trainers: int) -> None:
    await run.api.patch(TRAINING_JOBS, "job", {"spec": {"trainer": {"replicas": trainers}}}, namespace="default")


def batches(times: Path, trainer: str) -> list[Mapping[str, float]]:
    path = times / f"{trainer}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def web_rows(times: Path) -> list[Row]:
    """On a full cluster: one more web pod, again and again."""
    waits, drains = [], []
    async with cluster(times, nodes=2, most=3) as run:
        await until("a full cluster", lambda: run.snapshot().jobs[0].now == 3)
        await until("a batch of each", lambda: all(batches(times, f"job-trainer-{n}") for n in range(3)))
        for _ in range(ROUNDS):
            await scale_web(run, 1)
            pod = await until(
                "the web pod", lambda: next((p for p in run.snapshot().pods if p.owner == "web" and p.pending_s), None)
            )
            waits.append(pod.pending_s)
            events = list(run.recorder.events)
            left = {e.object: e.t_s for e in events if e.reason == "Leaving" and "trainer" in e.object}
            gone = {e.object: e.t_s for e in events if e.reason == "Gone" and e.object in left}
            latest = max(gone, key=lambda name: gone[name])
            drains.append(gone[latest] - left[latest])
            await scale_web(run, 0)
            await until("the room taken back", lambda: run.snapshot().jobs[0].now == 3 and not _web(run))
            await asyncio.sleep(4.0)  # the up-window, and the new trainer's start
    return [
        Row(
            name="web pod pending to answering, less the trainer's own drain, median",
            value=statistics.median(w - d for w, d in zip(waits, drains, strict=True)),
            unit="s",
            goal="<= 0.5",
            note=f"{ROUNDS} rises; waits {_list(waits)} s, drains {_list(drains)} s",
        )
    ]


async def start_rows(times: Path) -> list[Row]:
    """One more trainer, from the request to its first batch."""
    taken = []
    async with cluster(times, nodes=4, most=2 + ROUNDS) as run:
        await pin_job(run, 1)
        await until("the first trainer", lambda: batches(times, "job-trainer-0"))
        for size in range(2, 2 + 4):
            requested = time.time()
            await pin_job(run, size)
            name = f"job-trainer-{size - 1}"
            first = (await until("a first batch", lambda name=name: batches(times, name)))[0]
            started = next(e.t_s for e in run.recorder.events if e.kind == "Started" and e.object == f"pod/{name}")
            started_wall = time.time() - run.recorder.elapsed_s() + started
            taken.append((first["began"] - requested) - (first["imported"] - started_wall))
    return [
        Row(
            name="new trainer, request to first batch, less interpreter and imports, median",
            value=statistics.median(taken),
            unit="s",
            goal="<= 2",
            note=f"4 starts: {_list(taken)} s",
        )
    ]


async def commit_rows(times: Path) -> list[Row]:
    """Commits every 2 s while one trainer has batches of 3 s: does another ever wait for it?"""
    async with cluster(times, nodes=2, most=2, slow="1") as run:
        await until("both trainers", lambda: batches(times, "job-trainer-0") and batches(times, "job-trainer-1"))
        await asyncio.sleep(15.0)
        committed = run.snapshot().jobs[0].progress
    fast = [b["done"] for b in batches(times, "job-trainer-0")][5:]
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(fast))
    head = committed.committed if committed is not None else 0
    return [
        Row(
            name="longest batch of a fast trainer beside one of 3 s batches, commits every 2 s",
            value=gaps[-1],
            unit="s",
            goal="<= 1",
            note=f"median {statistics.median(gaps) * 1e3:.0f} ms of {len(gaps)}; {head:,} samples committed",
        )
    ]


def _web(run: LocalRun) -> bool:
    return any(pod.owner == "web" for pod in run.snapshot().pods)


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in sorted(values))


async def main() -> None:
    for measure in (web_rows, start_rows, commit_rows):
        with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
            print_rows(await measure(Path(folder)))


if __name__ == "__main__":
    asyncio.run(main())
