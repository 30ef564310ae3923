"""The work of a plan when a Deployment comes to a cluster full of trainers: a bound on everybody's plans (A11)."""

from autoscaler.domain import DemandState
from autoscaler.planner.placement import fewest_trainers, victims
from tests.unit.planner.setups import CALM, demand, job, node, settled, web


def test_few_nodes_are_looked_at_for_each_web_pod(monkeypatch):
    """Nodes that one trainer must leave are told apart by what that one wastes, and not tried one by one."""
    tried, try_node = [], victims.fewest_on
    monkeypatch.setattr(victims, "fewest_on", lambda *args: tried.append(1) or try_node(*args))
    nodes = [node(f"n{number:02}", 4_000) for number in range(60)]
    driver = settled(nodes, [job(f"j{number}", high=60, cpu_milli=1_000) for number in range(8)], CALM)
    pods = [web(f"w{number:02}") for number in range(20)]
    for pod in pods:
        driver.cluster.put(pod)
    tried.clear()
    decided = driver.plan()
    assert {demand(decided, pod.name).state for pod in pods} == {DemandState.SHRUNK_FOR}
    assert len(tried) <= 3 * len(pods)


def test_one_node_is_looked_at_where_several_trainers_must_leave(monkeypatch):
    """Which of many choices is the cheapest one on each node is known, also when jobs have become poor by giving."""
    tried, try_node = [], victims.fewest_on
    monkeypatch.setattr(victims, "fewest_on", lambda *args: tried.append(1) or try_node(*args))
    nodes = [node(f"n{number:02}", 12_000) for number in range(40)]
    jobs = [job(f"j{number}", high=60, cpu_milli=(1_000, 2_000, 3_000)[number % 3]) for number in range(12)]
    driver = settled(nodes, jobs, CALM)
    pods = [web(f"w{number:02}", 5_000) for number in range(20)]
    for pod in pods:
        driver.cluster.put(pod)
    tried.clear()
    decided = driver.plan()
    assert {demand(decided, pod.name).state for pod in pods} == {DemandState.SHRUNK_FOR}
    assert len(tried) <= len(pods)
    monkeypatch.setattr(fewest_trainers, "CHOICES_KEPT", 0)
    looked_at = driver.plan()
    assert len(tried) > 2 * len(pods)
    assert (looked_at.actions, looked_at.demands) == (decided.actions, decided.demands)
