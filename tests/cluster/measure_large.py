"""500 jobs, 10,000 pods, 1,000 nodes: what the operator's process needs, and how soon it decides.

The operator is a process of its own with the chart's account; nodes run nothing, all else is real.  It finds the jobs
as they run and takes them over.  Then jobs are resized one by one, and nodes drained: from the edit's answer until the
first pod of that job comes or is told to leave, as a watch of this process shows it.  How long 500 gangs take to start,
one at a time, is another question.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Raw
from autoscaler.clusters.kubernetes.api.connection import ConnectionPolicy
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.builders.master_deployment import build_master
from autoscaler.clusters.kubernetes.builders.member_pods import build_pod
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob, parse_job
from autoscaler.domain import Cause, CreatePod, NodeName, Role, Tier
from tests.cluster.accounts import open_client
from tests.cluster.api_call_costs import Cost, Ledger, calls_in
from tests.cluster.chart_control_plane import LEASE, start_charted, take_place, write_operator_kubeconfig
from tests.cluster.kwok_nodes import NodeShape, create_nodes, make_pod
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.percentiles import spread_of
from tests.cluster.toolbox import find_tools
from tests.cluster.workloads import job_of

NAMESPACES: Final = tuple(f"team-{number}" for number in range(10))
EXTERNAL: Final = "others"
NODE_CPU: Final = 8
TRAINERS: Final = 8  # of each job
CORE: Final = 2  # of these; a server and a master beside them
AT_ONCE: Final = 16
PATIENCE_S: Final = 60.0  # with a server that is given 10,000 pods at once
BUDGET_S: Final = 600.0  # of whatever is waited for
STILL_S: Final = 4.0  # longer than a status waits for more to tell
IDLE_S: Final = 30.0


SETTINGS: Final = BuildSettings(image="edl:test", etcd=EtcdAccess(endpoints="http://etcd.invalid:2379"))


def measure_large(part: float = 1.0, resizes: int = 100) -> dict[str, Any]:
    """`part` 1.0 is the size of the goal."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with (
            start_charted(place, find_tools(os.environ), namespaces=(*NAMESPACES, EXTERNAL)) as plane,
            open_client(plane.kubeconfig) as api,
        ):
            take_place(api)
            account = write_operator_kubeconfig(place / "operator.kubeconfig", plane, api)
            names = [f"node-{number:04d}" for number in range(round(1_000 * part))]
            create_nodes(api, dict.fromkeys(names, NodeShape(cpu=str(NODE_CPU), memory="32Gi")))
            operator = OperatorProcess("operator", place, account, lease=LEASE)
            try:
                return asyncio.run(_measure(plane.kubeconfig, operator, names, part, resizes))
            finally:
                operator.kill()


async def _measure(
    kubeconfig: Path, operator: OperatorProcess, nodes: list[str], part: float, resizes: int
) -> dict[str, Any]:
    api = await connect(kubeconfig, policy=ConnectionPolicy(request_timeout_s=PATIENCE_S))
    jobs = [f"{NAMESPACES[number % len(NAMESPACES)]}/job-{number:03d}" for number in range(round(500 * part))]
    external = round(10_000 * part) - (TRAINERS + 2) * len(jobs)
    await run_each(_external_pod(api, number, nodes[number % len(nodes)]) for number in range(external))
    await run_each(_put(api, key, number, nodes) for number, key in enumerate(jobs))
    print(f"{external} external pods, {len(jobs)} jobs, {len(nodes)} nodes", flush=True)

    ledger = Ledger(api=api)
    watching = asyncio.create_task(ledger.run())
    wanted = (TRAINERS + 1) * len(jobs)
    await _until(f"{wanted} pods of jobs run", lambda: len(ledger.running) == wanted)
    sizes = {"jobs": len(jobs), "nodes": len(nodes), "pods": external + (TRAINERS + 2) * len(jobs)}
    found = (
        sizes
        | await _taken_over(operator, len(jobs))
        | await _idle(operator)
        | await _resized(api, operator, ledger, jobs, resizes)
        | await _drained(api, ledger, nodes, resizes // 5)
        | {"memory_mb": {name: round(mb, 1) for name, mb in operator.memory_mb().items()}}
    )
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await api.close()
    return found


async def _taken_over(operator: OperatorProcess, jobs: int) -> dict[str, Any]:
    """From its start until it has nothing more to write."""
    began_s = time.monotonic()
    operator.start()
    await _until("the operator leads", operator.is_leading)
    await _until("every job has a status", lambda: _calls(operator)["apply trainingjobs"] >= jobs)
    await _until("all that jobs own is made", lambda: _calls(operator)["apply poddisruptionbudgets"] >= jobs)
    await _still(operator)
    taken_over_s = round(time.monotonic() - began_s, 1)
    print(f"taken over in {taken_over_s} s; {operator.memory_mb()}", flush=True)
    return {"take_over_s": taken_over_s, "take_over_cpu_s": round(operator.cpu_s(), 1)}


async def _idle(operator: OperatorProcess) -> dict[str, Any]:
    calls, cpu_s, from_s = _calls(operator), operator.cpu_s(), time.monotonic()
    await asyncio.sleep(IDLE_S)
    cores = (operator.cpu_s() - cpu_s) / (time.monotonic() - from_s)
    return {"idle_cores": round(cores, 3), "idle_writes_a_minute": (_calls(operator) - calls).total() * 60 / IDLE_S}


async def _resized(api: Api, operator: OperatorProcess, ledger: Ledger, jobs: list[str], count: int) -> dict[str, Any]:
    """One job after the other is made smaller by three, then larger again."""
    before, cpu_s = _passes(operator), operator.cpu_s()
    costs, waits_s = list[Cost](), list[float]()
    for number in range(count):
        replicas = TRAINERS - 3 if number % 2 == 0 else TRAINERS
        cost, waited_s = await _resize(api, operator, ledger, jobs[number // 2 % len(jobs)], replicas)
        costs.append(cost)
        waits_s.append(waited_s)
        print(json.dumps({"waited_s": round(waited_s, 3), "most": cost.most, **asdict(cost)}), flush=True)
    dearest = max(costs, key=lambda cost: cost.total - cost.most)
    return {
        "resizes": count,
        "edit_to_first_pod_s": spread_of(waits_s),
        "passes_at_most_s": {
            bound: passes for bound, passes in (_passes(operator) - before).items() if bound != "+Inf"
        },
        "cpu_s_of_a_resize": round((operator.cpu_s() - cpu_s) / count, 3),
        "resizes_over_the_bound_of_calls": sum(cost.total > cost.most for cost in costs),
        "dearest_resize": {**asdict(dearest), "total": dearest.total, "most": dearest.most},
    }


async def _drained(api: Api, ledger: Ledger, nodes: list[str], count: int) -> dict[str, Any]:
    waits_s = []
    for number in range(count):
        waits_s.append(await _drain(api, ledger, nodes[number * 7 % len(nodes)]))
        await asyncio.sleep(STILL_S)
    return {"drains": count, "drain_to_first_pod_told_s": spread_of(waits_s)}


async def _resize(api: Api, operator: OperatorProcess, ledger: Ledger, key: str, replicas: int) -> tuple[Cost, float]:
    """Cost of a resize, and the time to the first pod's creation or deletion."""
    namespace, _, name = key.partition("/")
    before, asked_at_s = _calls(operator), time.monotonic()
    await api.patch(TRAINING_JOBS, name, {"spec": {"trainer": {"replicas": replicas}}}, namespace=namespace)
    answered_at_s = time.monotonic()
    await _until(f"{key} moves", lambda: ledger.first_after(key, asked_at_s) is not None, every_s=0.005)
    await _until(f"{key} has {replicas}", lambda: ledger.standing(key) == replicas + 1, every_s=0.05)
    await asyncio.sleep(STILL_S)
    first_s = ledger.first_after(key, asked_at_s) or asked_at_s
    return ledger.cost(asked_at_s, _calls(operator) - before), max(0.0, first_s - answered_at_s)


async def _drain(api: Api, ledger: Ledger, node: str) -> float:
    """Time until EDL deletes the first pod on a node that is being drained."""
    told = len(ledger.told_at_s)
    await api.patch(NODES, node, {"metadata": {"labels": {"edl.dev/drain": "true"}}})
    answered_at_s = time.monotonic()
    await _until("a pod is told to leave", lambda: len(ledger.told_at_s) > told, every_s=0.005)
    return sorted(ledger.told_at_s.values())[told] - answered_at_s


async def _until(what: str, holds: Callable[[], bool], *, every_s: float = 0.5) -> None:
    until_s = time.monotonic() + BUDGET_S
    while not holds():
        if time.monotonic() > until_s:
            raise AssertionError(f"{what}: not within {BUDGET_S:g} s")
        await asyncio.sleep(every_s)


async def _still(operator: OperatorProcess) -> None:
    """Wait until the operator only watches."""
    since_s, before = time.monotonic(), Counter[str]()
    until_s = since_s + BUDGET_S
    while time.monotonic() - since_s < STILL_S and time.monotonic() < until_s:
        if (now := _calls(operator)) != before:
            before, since_s = now, time.monotonic()
        await asyncio.sleep(1.0)


def _calls(operator: OperatorProcess) -> Counter[str]:
    return calls_in(operator.get("/metrics")[1])


def _passes(operator: OperatorProcess) -> Counter[str]:
    """Passes of the loop that took at most each bound, by bound."""
    found = re.findall(r'edl_decision_seconds_bucket\{le="([^"]+)"\} (\S+)', operator.get("/metrics")[1])
    return Counter({bound: int(float(count)) for bound, count in found})


async def _external_pod(api: Api, number: int, node: str) -> None:
    """An external pod of a realistic size: its probes, volumes and settings are most of it."""
    body = make_pod(f"other-{number:05d}", requests={"cpu": "500m", "memory": "256Mi"}, nodeName=node)
    body["metadata"] |= {
        "namespace": EXTERNAL,
        "labels": {"app": f"app-{number % 100}", "tier": "web", "release": "stable"},
    }
    container = body["spec"]["containers"][0]
    container["env"] = [{"name": f"SETTING_{each}", "value": f"value-{each}" * 3} for each in range(20)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    container |= {"livenessProbe": probe, "readinessProbe": probe, "ports": [{"containerPort": 8080, "name": "http"}]}
    container["volumeMounts"] = [{"name": f"volume-{each}", "mountPath": f"/data/{each}"} for each in range(3)]
    body["spec"]["volumes"] = [{"name": f"volume-{each}", "emptyDir": {}} for each in range(3)]
    await api.create(PODS, body)


async def _put(api: Api, key: str, number: int, nodes: list[str]) -> None:
    """A job at its largest size, as EDL would have left it."""
    namespace, _, name = key.partition("/")
    body: Raw = job_of(name, minimum=CORE, maximum=TRAINERS, cpu="500m", server_cpu="500m")
    body["metadata"]["namespace"] = namespace
    job = parse_job(await api.create(TRAINING_JOBS, body))
    await api.create(DEPLOYMENTS, build_master(job, SETTINGS))
    for ordinal in range(TRAINERS):
        tier, grade = (Tier.CORE, 0) if ordinal < CORE else (Tier.SURPLUS, ordinal - CORE + 1)
        await _put_pod(
            api, job, _placement(job, Role.TRAINER, ordinal, tier, grade, nodes[(9 * number + ordinal) % len(nodes)])
        )
    await _put_pod(api, job, _placement(job, Role.SERVER, 0, Tier.CORE, 0, nodes[(9 * number + TRAINERS) % len(nodes)]))


def _placement(job: KubeJob, role: Role, ordinal: int, tier: Tier, grade: int, node: str) -> CreatePod:
    return CreatePod(
        job=job.key, role=role, ordinal=ordinal, tier=tier, grade=grade, node=NodeName(node), cause=Cause.START
    )


async def _put_pod(api: Api, job: KubeJob, placement: CreatePod) -> None:
    body = build_pod(job, placement, SETTINGS, is_gated=False)
    body["spec"]["nodeName"] = placement.node
    await api.create(PODS, body)


async def run_each(calls: Iterable[Awaitable[None]]) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[None]) -> None:
        async with turn:
            await call

    await asyncio.gather(*(one(call) for call in calls))
