"""Few words for small clusters in the planner's and the loop's tests."""

from dataclasses import replace

from autoscaler.domain import (
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
    Taint,
    Tier,
    Toleration,
)
from autoscaler.domain import TrainerSpec as Trainers
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster

CALM = Policy(up_window_s=0.0, down_window_s=0.0, quiet_window_s=0.0, burst_window_s=0.0, victim_age_s=0.0)


def shape(cpu_milli, *, gpu=0):
    return Shape(requests=Resources(cpu_milli=cpu_milli, gpu_count=gpu))


def node(name, cpu_milli=4_000, *, gpu=0, **flags):
    return Node(name=name, allocatable=Resources(cpu_milli=cpu_milli, gpu_count=gpu), **flags)


def job(
    name, *, low=1, high=8, step=1, cpu_milli=1_000, gpu=0, servers=0, pinned=0, master_milli=0, min_run_s=0.0, **fields
):
    """A job whose master asks for nothing unless told otherwise, so that sums are easy."""
    return Job(
        name=name,
        trainer=Trainers(
            shape=shape(cpu_milli, gpu=gpu),
            min_replicas=low,
            max_replicas=high,
            step=step,
            pinned_replicas=pinned,
            min_run_s=min_run_s,
        ),
        servers=ServerSpec(shape=shape(500), min_replicas=servers, max_replicas=servers) if servers else None,
        master=MasterSpec(shape=shape(master_milli)),
        **fields,
    )


def web(name, cpu_milli=1_000, *, since_s=0.0, **fields):
    """A pod of others, judged unschedulable."""
    return Pod(
        name=name,
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        shape=shape(cpu_milli),
        phase=PodPhase.PENDING,
        unschedulable_since_s=since_s,
        **fields,
    )


def core_pod(spec, role, place):
    """The first pod of a role of the job, in its core, which has run for a while."""
    wanted = {Role.TRAINER: spec.trainer, Role.SERVER: spec.servers, Role.MASTER: spec.master}[role]
    return Pod(
        name=f"{spec.name}-{role}-0",
        role=role,
        tier=Tier.CORE,
        shape=wanted.shape,
        phase=PodPhase.READY,
        node=place,
        job=spec.name,
        ordinal=0,
    )


def decision(plan, name):
    return next(decision for decision in plan.decisions if decision.job == name)


def demand(plan, name):
    return next(demand for demand in plan.demands if demand.pod == name)


def on_pool(spec, pool):
    """The job with trainers that select the nodes of this pool."""
    wanted = replace(spec.trainer.shape, node_selector=frozenset({("pool", pool)}))
    return replace(spec, trainer=replace(spec.trainer, shape=wanted))


def elsewhere(name, cpu_milli):
    """A job of three trainers, and the node on which just two of them fit: they go nowhere else, and nobody comes."""
    pool = f"for-{name}"
    labels, taints = frozenset({("pool", pool)}), frozenset({Taint(key=pool)})
    spec = on_pool(job(name, cpu_milli=cpu_milli, high=3), pool)
    wanted = replace(spec.trainer.shape, tolerations=frozenset({Toleration(key=pool)}))
    spec = replace(spec, trainer=replace(spec.trainer, shape=wanted))
    return spec, node(pool, 2 * cpu_milli, labels=labels, taints=taints)


def settled(nodes, jobs, policy=CALM):
    """The driver of these jobs on these nodes, once plans change nothing."""
    driver = Driver(MemoryCluster(nodes, jobs), policy)
    driver.settle()
    return driver
