"""Moves for fairness that a look at too few pairs would miss, and how whole nodes give."""

from collections import Counter
from dataclasses import replace

import pytest

from autoscaler.domain import Capabilities, Node, Pod, PodPhase, Resources, Role, Shape, Tier
from tests.property.planner_cases import NO_GATES, Driver
from tests.property.planner_checks import check_exchange_at_rest
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node, shape

FAST = frozenset({("disk", "fast")})


def pods_of(spec, *places, servers=0):
    """A running job: a trainer on each of these nodes, its master and servers on the last one."""
    shapes = {Role.TRAINER: spec.trainer.shape, Role.MASTER: spec.master.shape}
    roles = [*((Role.TRAINER, number, place) for number, place in enumerate(places)), (Role.MASTER, 0, places[-1])]
    roles += [(Role.SERVER, number, places[-1]) for number in range(servers)]
    return [
        Pod(
            name=f"{spec.name}-{role}-{number}",
            role=role,
            tier=Tier.SURPLUS if role is Role.TRAINER and number >= spec.trainer.min_replicas else Tier.CORE,
            shape=spec.servers.shape if role is Role.SERVER else shapes[role],
            phase=PodPhase.READY,
            node=place,
            job=spec.name,
            ordinal=number,
        )
        for role, number, place in roles
    ]


def at_rest(nodes, standing, policy=NO_GATES, **capabilities):
    """The cluster where the planner leaves it; `standing`: jobs and their pods."""
    cluster = MemoryCluster(nodes, [spec for spec, _ in standing], pods=[pod for _, pods in standing for pod in pods])
    cluster.capabilities = Capabilities(**capabilities)
    driver = Driver(cluster, policy)
    driver.settle()
    return driver


def sizes(driver):
    return {decision.job: decision.now for decision in driver.plan().decisions}


@pytest.mark.parametrize("rich_jobs", [3, 9])
def test_step_is_found_behind_many_that_somebody_else_would_drink(rich_jobs):
    """A4: what each of the richest could give goes to a poorer job whose step is too large to be owed one."""
    thirsty = job("thirsty", low=1, high=5, step=4, weight=33)
    fast = Shape(requests=thirsty.trainer.shape.requests, node_selector=FAST)
    thirsty = replace(thirsty, trainer=replace(thirsty.trainer, shape=fast))
    poor, helpful = job("poor", low=4, high=6), job("helpful", low=4, high=12, step=4)
    rich = [job(f"rich-{number}", low=4, high=16, step=4) for number in range(rich_jobs)]
    nodes = [node("slow", 12_000), node("fast", 5_000, labels=FAST)]
    nodes += [node(spec.name, 16_000, labels=FAST) for spec in rich]
    standing = [(thirsty, pods_of(thirsty, "fast")), (poor, pods_of(poor, *["fast"] * 4))]
    standing += [
        (helpful, pods_of(helpful, *["slow"] * 12)),
        *((spec, pods_of(spec, *[spec.name] * 16)) for spec in rich),
    ]
    driver = at_rest(nodes, standing)
    assert sizes(driver) == {"thirsty": 1, "poor": 6, "helpful": 8} | {spec.name: 16 for spec in rich}
    check_exchange_at_rest(driver.cluster.view(), NO_GATES)


def test_job_that_needs_a_server_too_does_not_speak_for_one_that_needs_none():
    """A4: the poorest of two jobs with equal trainers cannot use the step of the rich one alone; the other can."""
    rich, plain = job("rich", high=8), job("plain", low=2, high=4)
    served = job("served", high=4, servers=1)
    growing = replace(served.servers, max_replicas=4, trainers_per_server=1, shape=shape(700))
    served = replace(served, servers=growing)
    standing = [
        (rich, pods_of(rich, *["a"] * 8)),
        (plain, pods_of(plain, "b", "b")),
        (served, pods_of(served, "b", servers=1)),
    ]
    driver = at_rest([node("a", 8_000), node("b", 3_700)], standing, servers_elastic=True)
    assert sizes(driver)["plain"] == 3
    check_exchange_at_rest(driver.cluster.view(), NO_GATES)


def test_job_whose_growth_does_not_pay_neither_speaks_nor_drinks_for_another():
    """It is poorer and nearly done: the step of the rich job goes past it."""
    rich, ending, lasting = job("rich", high=8), job("ending", high=4), job("lasting", low=2, high=4)
    ending = replace(ending, remaining_s=1.0, resize_cost_s=5.0)
    standing = [
        (rich, pods_of(rich, *["a"] * 8)),
        (ending, pods_of(ending, "b")),
        (lasting, pods_of(lasting, "b", "b")),
    ]
    driver = at_rest([node("a", 8_000), node("b", 3_000)], standing, replace(NO_GATES, payoff_s=60.0))
    assert sizes(driver) == {"ending": 1, "lasting": 4, "rich": 6}


def test_trainers_of_whole_nodes_give_whole_nodes():
    """One trainer from each of two nodes would make two places, and would break both pairs."""
    pairs = job("pairs", low=2, high=6, step=2, cpu_milli=2_000)
    pairs = replace(pairs, trainer=replace(pairs.trainer, per_node=2))
    poor = job("poor", high=3, step=2, cpu_milli=3_000, weight=1_000)
    standing = [(pairs, pods_of(pairs, "a", "a", "b", "b", "c", "c")), (poor, pods_of(poor, "d"))]
    driver = at_rest([node("a", 5_000), node("b", 5_000), node("c", 5_000), node("d", 3_000)], standing)
    places = Counter(p.node for p in driver.cluster.pods.values() if p.job == "pairs" and p.role is Role.TRAINER)
    assert set(places.values()) == {2}


def test_whole_node_of_the_rich_is_found():
    """As above, where a whole pair makes the two places that are asked for."""
    pairs = job("pairs", low=2, high=6, step=2, cpu_milli=2_000)
    pairs = replace(pairs, trainer=replace(pairs.trainer, per_node=2))
    poor = job("poor", high=3, step=2, cpu_milli=2_500)
    standing = [(pairs, pods_of(pairs, "a", "a", "b", "b", "c", "c")), (poor, pods_of(poor, "d"))]
    driver = at_rest([node("a", 5_000), node("b", 5_000), node("c", 5_000), node("d", 3_000)], standing)
    assert sizes(driver) == {"pairs": 4, "poor": 3}


def test_pair_gets_the_trainer_that_stands_on_its_own_node():
    """A4: either trainer's leaving makes one more place of 2 cores; only on `b` do two of them lie side by side."""
    nodes = [
        Node(name=name, allocatable=Resources(cpu_milli=cpu_milli, memory_bytes=memory_bytes))
        for name, cpu_milli, memory_bytes in (("a", 3_500, 6), ("b", 8_000, 4), ("c", 1_000, 4))
    ]
    rich, pairs = job("rich", high=4), job("pairs", low=2, high=4, step=2, cpu_milli=2_000)
    asked = Shape(requests=Resources(cpu_milli=1_000, memory_bytes=3))
    rich = replace(rich, trainer=replace(rich.trainer, shape=asked))
    pairs = replace(pairs, trainer=replace(pairs.trainer, per_node=2))
    driver = Driver(MemoryCluster(nodes, [rich]), NO_GATES)
    driver.settle()
    driver.cluster.put(pairs)
    driver.settle()
    assert sizes(driver) == {"rich": 3, "pairs": 4}
