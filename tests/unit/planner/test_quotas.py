"""Several quotas, several namespaces, and quota that comes free later than room does."""

from dataclasses import replace

from autoscaler.domain import (
    Admission,
    Bottleneck,
    Capabilities,
    CreatePod,
    DeletePod,
    Quota,
    QuotaLimit,
    Resources,
    ServerSpec,
)
from autoscaler.planner import plan
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, on_pool, settled, shape, web

ONE = Resources(cpu_milli=1_000)


def test_all_quotas_of_a_namespace_hold_at_once():
    """Whichever is named last."""
    driver = settled([node("a", 8_000)], [job("j", high=1)])
    driver.cluster.put(job("j"))
    for names in ("xy", "yx"):
        quotas = tuple(
            Quota(namespace="default", name=name, limits=(QuotaLimit(resource="cpu", hard=hard, used=1_000),))
            for name, hard in zip(names, (3_000, 6_000), strict=True)
        )
        found = plan(driver.cluster.view(quotas=quotas), CALM, driver.cluster.now())
        assert decision(found, "j").target == 3


def test_quota_of_what_leaves_is_not_asked_for_in_the_same_plan():
    """The API server counts a pod until it is gone: the other job's trainer is promised, not created."""
    nodes = [node(name, labels=frozenset({("pool", name)})) for name in "ab"]
    driver = settled(nodes, [on_pool(job("old", high=4), "a"), on_pool(job("new", high=1), "b")])
    driver.cluster.hard = {"default": ONE.plus(ONE, times=4)}
    waiting = web("w")
    waiting = replace(waiting, shape=replace(waiting.shape, node_selector=frozenset({("pool", "a")})))
    driver.cluster.put(on_pool(job("new", high=2), "b"), waiting)
    first = driver.turn()
    assert [type(action) for action in first.actions] == [DeletePod]
    assert decision(first, "new").target == 2
    driver.cluster.advance(3.0)
    assert [type(action) for action in driver.plan().actions] == [CreatePod]


def test_class_that_is_finished_first_keeps_its_quota_too():
    """StrictClass: a gang of a lower class takes back no quota from it either."""
    driver = settled(
        [node("a", 8_000)], [job("high", high=4, priority=5)], replace(CALM, admission=Admission.STRICT_CLASS)
    )
    driver.cluster.hard = {"default": ONE.plus(ONE, times=3)}
    driver.cluster.put(job("low"))
    waiting = driver.plan()
    assert waiting.actions == ()
    assert decision(waiting, "low").bottleneck is Bottleneck.QUOTA


def test_no_room_is_held_for_a_server_that_the_quota_refuses():
    """It was lost, and meanwhile the quota was cut."""
    servers = ServerSpec(shape=shape(500), min_replicas=1, max_replicas=2, trainers_per_server=1)
    cluster = MemoryCluster([node("a")], [replace(job("j", high=2), servers=servers)])
    cluster.capabilities = Capabilities(servers_elastic=True)
    driver = Driver(cluster, CALM)
    driver.settle()
    cluster.lose("j-server-1")
    cluster.hard = {"default": ONE.plus(ONE, times=1)}
    cut = driver.plan()
    assert (cut.actions, cut.waits) == ((), ())
