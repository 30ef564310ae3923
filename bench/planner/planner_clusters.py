"""Clusters for the planner's benchmark: nodes of three kinds, web pods on them, jobs that want more than fits.

`at_rest` is what a planner finds day by day: every job started, and the rest shared out by the planner itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from autoscaler.domain import (
    AdmitGang,
    ClusterView,
    CreatePod,
    DeletePod,
    Job,
    MasterSpec,
    Node,
    Pod,
    PodPhase,
    Policy,
    Resources,
    Role,
    ServerSpec,
    Shape,
    Tier,
    TrainerSpec,
)
from autoscaler.planner import Memo, plan

GI: Final = 2**30
NOW_S: Final = 10_000.0
OPEN: Final = Policy(
    up_window_s=0.0,
    down_window_s=0.0,
    quiet_window_s=0.0,
    burst_window_s=0.0,
    victim_age_s=0.0,
    transfers_per_minute=10_000,
)
ROUNDS: Final = 30  # of the fill and the transfers after it

KINDS: Final = (
    Resources(cpu_milli=16_000, memory_bytes=64 * GI),
    Resources(cpu_milli=32_000, memory_bytes=128 * GI),
    Resources(cpu_milli=64_000, memory_bytes=256 * GI, gpu_count=8),
)
WEB: Final = tuple(
    Shape(requests=Resources(cpu_milli=cpu, memory_bytes=cpu * GI // 500)) for cpu in (1_000, 2_000, 4_000)
)
MASTER: Final = Shape(requests=Resources(cpu_milli=500, memory_bytes=GI))
SERVER: Final = Shape(requests=Resources(cpu_milli=2_000, memory_bytes=8 * GI))


def chance_of(seed: int) -> random.Random:
    """The same cluster each time."""
    return random.Random(seed)  # noqa: S311 - a benchmark, no secret


def nodes(count: int) -> list[Node]:
    return [Node(name=f"node-{number:06}", allocatable=KINDS[number % 3]) for number in range(count)]


def trainer_shapes(count: int, chance: random.Random) -> list[Shape]:
    """So many different ones, a fifth of them with GPUs."""
    found: dict[Shape, None] = {}
    while len(found) < count:
        cpu_milli = 500 * chance.randint(8, 48)
        memory = GI // 4 * chance.randint(16, 192)
        gpu_count = chance.choice((1, 1, 2, 4)) if len(found) % 5 == 0 else 0
        found[Shape(requests=Resources(cpu_milli=cpu_milli, memory_bytes=memory, gpu_count=gpu_count))] = None
    return list(found)


def jobs(count: int, shapes: list[Shape], chance: random.Random) -> list[Job]:
    """Each of 2 to 32 trainers, a third of them with two servers; three weights, one priority."""
    return [
        Job(
            name=f"job-{number:05}",
            trainer=TrainerSpec(shape=shapes[number % len(shapes)], min_replicas=2, max_replicas=32),
            master=MasterSpec(shape=MASTER),
            servers=ServerSpec(shape=SERVER, min_replicas=2, max_replicas=2) if number % 3 == 0 else None,
            weight=chance.choice((50, 100, 100, 200)),
            submitted_at_s=float(number % 1_000),
        )
        for number in range(count)
    ]


def web_pod(number: int, node: str | None, chance: random.Random) -> Pod:
    return Pod(
        name=f"web-{number:06}",
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        shape=chance.choice(WEB),
        phase=PodPhase.READY if node else PodPhase.PENDING,
        node=node,
        workload="web",
        unschedulable_since_s=None if node else 0.0,
    )


def empty(node_count: int, job_count: int, shape_count: int, *, seed: int = 1) -> ClusterView:
    """Nodes with a web pod on each, and jobs of which none has started."""
    chance = chance_of(seed)
    machines = nodes(node_count)
    return ClusterView(
        revision=1,
        observed_at_s=NOW_S,
        nodes=tuple(machines),
        jobs=tuple(jobs(job_count, trainer_shapes(shape_count, chance), chance)),
        pods=tuple(web_pod(number, node.name, chance) for number, node in enumerate(machines)),
    )


def at_rest(node_count: int, job_count: int, shape_count: int, *, seed: int = 1) -> ClusterView:
    """The same with every job started and grown, until the planner leaves things as they are."""
    view = empty(node_count, job_count, shape_count, seed=seed)
    view = view.evolve(pods=core_pods(view, chance_of(seed)))
    memo = Memo()
    for _ in range(ROUNDS):
        decided = plan(view, OPEN, NOW_S, memo=memo)
        if not decided.actions:
            break
        gone = [action.pod for action in decided.actions if isinstance(action, DeletePod)]
        created = [pod for action in decided.actions for pod in made_by(view, action)]
        view = view.evolve(pods=created, gone_pods=gone, revision=view.revision + 1)
    return view


def gang(minimum: int, shape: Shape) -> Job:
    """A job that has waited for long, and starts with so many trainers."""
    trainer = TrainerSpec(shape=shape, min_replicas=minimum, max_replicas=minimum)
    return Job(name="gang", trainer=trainer, master=MasterSpec(shape=MASTER))


def web_burst(count: int, shape: Shape) -> list[Pod]:
    """The pods of a Deployment that comes all at once, judged unschedulable."""
    pending = replace(web_pod(0, None, chance_of(0)), shape=shape)
    return [replace(pending, name=f"burst-{number:06}") for number in range(count)]


def core_pods(view: ClusterView, chance: random.Random) -> list[Pod]:
    """Each job's core on random nodes that have room for it."""
    free = {node.name: node.allocatable for node in view.nodes}
    for pod in view.pods:
        free[pod.node] -= pod.requests
    names, pods = list(free), []
    for job in view.jobs:
        parts = [(Role.MASTER, 0, MASTER), *[(Role.TRAINER, number, job.trainer.shape) for number in range(2)]]
        parts += [(Role.SERVER, number, SERVER) for number in range(job.server_count)]
        for role, ordinal, shape in parts:
            for _ in range(1_000):
                node = chance.choice(names)
                if shape.requests.fits_into(free[node]):
                    free[node] -= shape.requests
                    pods.append(job_pod(job, role, ordinal, tier=Tier.CORE, shape=shape, node=node))
                    break
    return pods


def job_pod(job: Job, role: Role, ordinal: int, *, tier: Tier, shape: Shape, node: str) -> Pod:
    return Pod(
        name=f"{job.name}-{role}-{ordinal}",
        role=role,
        tier=tier,
        shape=shape,
        phase=PodPhase.READY,
        node=node,
        job=job.name,
        ordinal=ordinal,
        created_at_s=0.0,
    )


def made_by(view: ClusterView, action: object) -> Iterable[Pod]:
    """The pods that an action of a plan creates."""
    wanted = action.pods if isinstance(action, AdmitGang) else [action] if isinstance(action, CreatePod) else []
    specs = {job.name: job for job in view.jobs}
    for pod in wanted:
        job = specs[pod.job]
        shape = {Role.TRAINER: job.trainer.shape, Role.MASTER: MASTER, Role.SERVER: SERVER}[pod.role]
        yield job_pod(job, pod.role, pod.ordinal, tier=pod.tier, shape=shape, node=pod.node)


def with_one_more_web_pod(view: ClusterView, number: int) -> ClusterView:
    """One event: a web pod that fits nowhere, judged unschedulable."""
    pod = replace(web_pod(900_000 + number, None, chance_of(number)), shape=WEB[number % 3])
    return view.evolve(pods=[pod], revision=view.revision + 1)


def with_one_pod_gone(view: ClusterView, number: int) -> ClusterView:
    """One event: a web pod has left."""
    web = [pod.name for pod in view.pods[-2_000:] if pod.role is Role.EXTERNAL]
    return view.evolve(gone_pods=[web[number % len(web)]], revision=view.revision + 1)
