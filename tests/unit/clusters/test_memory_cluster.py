"""The in-memory cluster is a proper adapter."""

import pytest

from autoscaler.domain import Job, MasterSpec, Node, Resources, Shape, TrainerSpec
from tests.unit.clusters.cluster_contract import ClusterContract, Stage
from tests.unit.clusters.memory_cluster import MemoryCluster


def shape(cpu_milli):
    return Shape(requests=Resources(cpu_milli=cpu_milli))


class TestMemoryCluster(ClusterContract):
    @pytest.fixture
    def stage(self):
        nodes = tuple(Node(name=name, allocatable=Resources(cpu_milli=2_500)) for name in ("a", "b"))
        trainer = TrainerSpec(shape=shape(1_000), min_replicas=1, max_replicas=4)
        cluster = MemoryCluster(nodes, [Job(name="j", trainer=trainer, master=MasterSpec(shape=shape(500)))])

        async def settle():
            cluster.advance(10.0)

        return Stage(cluster=cluster, job="j", nodes=("a", "b"), per_node=2, settle=settle)
