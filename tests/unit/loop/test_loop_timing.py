"""How long things last, in virtual time, with the default policy: refills (A1), calm between jobs (A6), words."""

from collections import Counter
from dataclasses import replace

import pytest

from autoscaler.domain import CreatePod, DeletePod, PodPhase, Policy
from autoscaler.loop import Loop
from tests.unit.loop.test_passes import Schedule, run, sizes
from tests.unit.planner.setups import job, node, web

EDL_LIMIT_S = 10.0  # A1: degraded after EDL's own action
FOREIGN_LIMIT_S = 60.0  # A1: after somebody else's


class Watch:
    """Notes when each job was degraded, from first seen to last seen, and every line that people read."""

    def __init__(self, cluster, policy=None):
        self.cluster = cluster
        self.spells_s = []
        self.lines = set()
        self.since_s = {}
        self.loop = Loop(cluster, policy or Policy(), listener=self.note)

    def note(self, step):
        for decision in step.plan.decisions:
            self.lines.add(decision.message)
            if decision.is_degraded:
                self.since_s.setdefault(decision.job, self.cluster.now())
            elif decision.job in self.since_s:
                self.spells_s.append(self.cluster.now() - self.since_s.pop(decision.job))


async def watch(nodes, jobs, *events, **kwargs):
    cluster = Schedule(nodes, jobs, events=events, end_s=1_600.0, **kwargs)
    watch = Watch(cluster)
    await run(watch.loop)
    assert watch.since_s == {}
    return watch


def taken(name, on, cpu_milli=1_000):
    return replace(web(name, cpu_milli), node=on, phase=PodPhase.READY, unschedulable_since_s=None)


def kill(name):
    return lambda cluster: cluster.lose(name)


@pytest.mark.parametrize("victim", ["j-trainer-0", "j-server-1", "j-master-0"])
async def test_killed_core_pod_is_replaced_at_once_while_there_is_room(victim):
    """A1: the next plan does it; nothing but the debounce lies between."""
    seen = await watch(
        [node("a"), node("b")], [job("j", low=2, high=2, servers=2, master_milli=100)], (1_100.0, kill(victim))
    )
    assert len(seen.spells_s) == 1
    assert max(seen.spells_s) <= 1.0


async def test_killed_core_pod_is_replaced_from_surplus_within_its_drain():
    """A1, foreign: the room is taken meanwhile, and another job's surplus takes 8 s to leave."""
    seen = await watch(
        [node("a")],
        [job("j", low=2, high=2), job("k", low=1, high=2)],
        (1_100.0, lambda c: (c.lose("j-trainer-0"), c.put(taken("t", "a")))),
        drain_s=8.0,
    )
    assert sizes(seen.cluster) == {"j": 2, "k": 1}
    assert len(seen.spells_s) == 1
    assert max(seen.spells_s) <= EDL_LIMIT_S


async def test_pause_after_failures_ends_within_the_minute():
    """A1, foreign: the pod is back when the adapter's pause is over, woken by the clock alone."""
    held = (1_100.0, lambda c: (c.put(replace(c.jobs["j"], hold_until_s=1_125.0)), c.lose("j-trainer-0")))
    seen = await watch([node("a")], [job("j", low=2, high=2)], held)
    (spell_s,) = seen.spells_s
    assert 25.0 <= spell_s <= 26.0
    assert spell_s <= FOREIGN_LIMIT_S


async def test_core_off_a_drained_node_is_back_within_ten_seconds():
    """A1, EDL's own action: two nodes' worth of room elsewhere."""
    seen = await watch(
        [node("a"), node("b"), node("c")],
        [job("j", low=3, high=6, servers=2, master_milli=100)],
        (1_100.0, lambda c: c.put(node("a", is_draining=True))),
        drain_s=8.0,
    )
    assert all(spell_s <= EDL_LIMIT_S for spell_s in seen.spells_s)
    assert {pod.node for pod in seen.cluster.pods.values()} <= {"b", "c"}
    assert sizes(seen.cluster) == {"j": 6}


async def test_core_swap_leaves_no_job_below_its_minimum():
    """`beside-the-scheduler.md` 6: one trainer leaves, its place comes back as core, and nothing moves after that."""
    seen = await watch(
        [node("a")],
        [job("j", low=1, high=4)],
        (1_100.0, lambda c: (c.lose("j-trainer-0"), c.put(taken("t", "a")))),
    )
    assert seen.spells_s == []
    after = [action for action, _ in seen.cluster.applied if isinstance(action, DeletePod)]
    assert len(after) == 1
    assert sizes(seen.cluster) == {"j": 3}


def changes(cluster):
    kinds = (action for action, _ in cluster.applied if isinstance(action, CreatePod | DeletePod))
    return Counter(type(action).__name__ for action in kinds)


async def test_jobs_at_the_boundary_of_their_shares_stay_put():
    """Seven trainers for two jobs of weights 3 to 2 divide unevenly: nobody trades the odd one for ten minutes."""
    seen = await watch([node("a"), node("b", 3_000)], [job("a", high=9, weight=300), job("b", high=9, weight=200)])
    assert sum(sizes(seen.cluster).values()) == 7
    assert changes(seen.cluster) == {"CreatePod": 5}


async def test_restless_web_pod_costs_one_trainer_each_time_and_no_trade_between_jobs():
    """A web pod comes and goes eight times: each time one trainer leaves and one comes, whoever they belong to."""
    events = []
    for number in range(8):
        at_s = 1_100.0 + 50.0 * number
        events.append((at_s, lambda c, n=number: c.put(web(f"w{n}", since_s=None, created_at_s=c.now()))))
        events.append((at_s + 20.0, lambda c, n=number: c.lose(f"w{n}")))
    seen = await watch(
        [node("a"), node("b", 3_000)], [job("a", high=9, weight=300), job("b", high=9, weight=200)], *events
    )
    assert changes(seen.cluster) == {"CreatePod": 5 + 8, "DeletePod": 8}


async def test_every_line_fits_a_terminal_and_names_what_matters():
    """Cause first, names and amounts, at most 110 characters."""
    seen = await watch(
        [node("node-1"), node("node-2", 2_500)],
        [job("digits", high=9, weight=300), job("letters", high=9, step=2), job("giant", cpu_milli=9_000)],
        (1_100.0, lambda c: c.put(*(web(f"web-{n}", since_s=None, created_at_s=c.now()) for n in range(2)))),
        (1_200.0, lambda c: c.put(node("node-2", 2_500, is_draining=True))),
        (1_300.0, lambda c: (c.lose("web-0"), c.put(node("node-2", 2_500)))),
    )
    assert all(0 < len(line) <= 110 for line in seen.lines)
    assert any(line.startswith("gave ") and "web-" in line for line in seen.lines)
    assert "no node, even empty, holds its trainer (cpu 9)" in seen.lines
