"""A4 by example: of what a share is a part, and what a move for fairness may not cost others."""

from dataclasses import replace

import pytest

from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, on_pool


@pytest.mark.parametrize(("flags", "share"), [({"is_cordoned": True}, 0.25), ({"is_ready": False}, 0.5)])
def test_share_is_a_part_of_what_the_ready_nodes_have(flags, share):
    """A node that is closed for a while makes nobody richer; one that is lost is no capacity."""
    driver = Driver(
        MemoryCluster([node("a"), node("b", **flags)], [job("j", high=2)]), replace(CALM, lost_nodes_limit_percent=60)
    )
    driver.settle()
    assert decision(driver.plan(), "j").share == share


def test_nobody_loses_by_a_move_between_two_others():
    """The poor job would rather stand where a third one can grow, which fits nowhere else: that one grows first."""
    nodes = [node(name, amount, labels=frozenset({("pool", name)})) for name, amount in (("a", 8_000), ("b", 3_000))]
    rich = on_pool(job("rich", low=2, high=8, step=2), "a")
    third, poor = on_pool(job("third", high=1), "b"), job("poor", high=1)
    driver = Driver(MemoryCluster(nodes, [rich, third]), CALM)
    driver.settle()
    driver.cluster.put(poor)
    driver.settle()
    driver.cluster.put(on_pool(job("third", high=2), "b"), job("poor", high=3, step=2))
    driver.settle()
    assert {entry.job: entry.now for entry in driver.plan().decisions} == {"poor": 3, "rich": 6, "third": 2}
