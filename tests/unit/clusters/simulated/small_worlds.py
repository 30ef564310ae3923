"""Small simulated clusters for tests: instant physics unless told otherwise, nodes and jobs in round numbers."""

from autoscaler.clusters.simulated import Physics, SimulatedCluster, SpeedCurve, TrainingWork, fixed_duration
from autoscaler.domain import Job, MasterSpec, Node, Resources, Role, ServerSpec, Shape, TrainerSpec

GIB = 1 << 30

STEADY = Physics(
    scheduling_s=0.01,
    start=fixed_duration(1.0),
    drain=fixed_duration(2.0),
    web_drain=fixed_duration(0.5),
    removal_s=0.1,
)
"""Nothing varies: instants can be worked out by hand."""

LINEAR = SpeedCurve(batch_samples=10, fixed_s=1.0, exchange_s=0.0, per_trainer_s=0.0, per_server_s=0.0)
"""Ten samples per second and trainer."""


def shape(cpu, gib=0, **fields):
    return Shape(requests=Resources(cpu_milli=int(cpu * 1000), memory_bytes=int(gib * GIB)), **fields)


def node(name, cpu=4, gib=8, **fields):
    return Node(name=name, allocatable=Resources(cpu_milli=int(cpu * 1000), memory_bytes=gib * GIB), **fields)


def job(name="j", *, low=1, high=4, trainer=None, servers=0, server=None, **fields):
    spec = ServerSpec(shape=server or shape(1), min_replicas=servers, max_replicas=2 * servers) if servers else None
    return Job(
        name=name,
        trainer=TrainerSpec(shape=trainer or shape(1), min_replicas=low, max_replicas=high),
        servers=spec,
        master=MasterSpec(shape=shape(0.5)),
        **fields,
    )


def cluster(*nodes, **fields):
    return SimulatedCluster(nodes, **{"physics": STEADY, **fields})


def placed(sim, owner):
    """Node by name of the pods of one owner that stand somewhere."""
    return {pod.name: pod.node for pod in sim.pods.values() if pod.owner == owner and pod.node is not None}


def running_job(work=None, *, servers=0, server=None, trainers=2, **fields):
    """A job that trains: master, servers and trainers ready at 1.05 s at the latest."""
    sim = cluster(node("a", cpu=40, gib=64), node("b", cpu=40, gib=64), **fields)
    sim.submit(job(servers=servers, server=server, high=8), work or TrainingWork(curve=LINEAR, in_flight_s=0.5))
    sim.create_pods("j", Role.MASTER, 1)
    if servers:
        sim.create_pods("j", Role.SERVER, servers)
    sim.create_pods("j", Role.TRAINER, trainers)
    return sim


def last(sim, name="j"):
    return sim.record.jobs[name][-1]
