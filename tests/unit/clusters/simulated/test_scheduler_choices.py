"""The emulated scheduler against cases worked out by hand from the sources of kube-scheduler."""

import numpy as np
import pytest

from autoscaler.clusters.simulated import KUBE_SCHEDULER, KUBE_SCHEDULER_1_6
from autoscaler.clusters.simulated.scheduling.node_choice import sample_size
from autoscaler.clusters.simulated.scheduling.node_scoring import ShapeScores, spread_score
from autoscaler.clusters.simulated.world.node_table import NodeTable
from autoscaler.domain import Taint, Toleration
from tests.unit.clusters.simulated.small_worlds import cluster, job, node, placed, shape


def board(profile, wanted, *nodes):
    table = NodeTable(nodes)
    return ShapeScores(table, profile, wanted, table.amounts_of(wanted.requests))


def test_scores_of_today_are_those_of_the_source():
    """4 cpu, 8 GiB, pod 1 cpu, 1 GiB: free (75 + 87) // 2 = 81; fractions 0.25 and 0.125 deviate by 0.0625: 93."""
    scores = board(KUBE_SCHEDULER, shape(1, 1), node("a", cpu=4, gib=8)).scores
    assert scores.tolist() == [81 + 93]


def test_scores_of_1_6_are_those_of_the_source():
    """Out of ten: free (7 + 8) // 2 = 7; fractions differ by 0.125: 8.75, so 8."""
    scores = board(KUBE_SCHEDULER_1_6, shape(1, 1), node("a", cpu=4, gib=8)).scores
    assert scores.tolist() == [7 + 8]


def test_full_node_of_1_6_has_no_balance():
    """A fraction of one or more gives 0 points of balance; free memory still counts: (0 + 5) // 2."""
    scores = board(KUBE_SCHEDULER_1_6, shape(4, 4), node("a", cpu=4, gib=8)).scores
    assert scores.tolist() == [2]


def test_pod_that_asks_for_nothing_is_scored_as_a_small_one():
    """100 millicores and 200 MiB: free (97 + 97) // 2; it is not balanced, as nobody knows what it will use."""
    scores = board(KUBE_SCHEDULER, shape(0), node("a", cpu=4, gib=8)).scores
    assert scores.tolist() == [97]


def test_balance_goes_by_what_is_really_requested():
    """1 cpu and no memory: free (75 + 97) // 2 = 86; fractions 0.25 and 0 deviate by 0.125: 87."""
    scores = board(KUBE_SCHEDULER, shape(1), node("a", cpu=4, gib=8)).scores
    assert scores.tolist() == [86 + 87]


@pytest.mark.parametrize("profile", [KUBE_SCHEDULER, KUBE_SCHEDULER_1_6])
def test_scores_kept_up_to_date_equal_scores_built_anew(profile):
    """One node at a time or all at once: one formula."""
    nodes = [node(f"n{number}", cpu=4 + number, gib=8) for number in range(12)]
    sim = cluster(*nodes, scheduler=profile)
    sim.submit(job(high=30))
    sim.create_pods("j", "trainer", 30, spreads=True)
    sim.run_until(0.2)
    kept = sim._scheduler._chooser._by_kind[next(iter(sim.pods.values())).kind]
    kept.refresh()
    fresh = ShapeScores(sim._world.table, profile, shape(1), sim._world.table.amounts_of(shape(1).requests))
    assert kept.scores.tolist() == fresh.scores.tolist()
    assert kept.fits.tolist() == fresh.fits.tolist()


def test_spreading_of_today_prefers_few_pods_of_the_owner():
    """Counts 0, 1, 2 of three nodes: weight log 5, raw 2, 4, 5; points 100 (5 + 2 - raw) / 5: 100, 60, 40."""
    assert spread_score(KUBE_SCHEDULER, np.array([0, 1, 2])).tolist() == [100, 60, 40]


def test_spreading_of_1_6_is_linear():
    """Counts 0, 1, 3 out of ten: 10, 6.67 and 0."""
    assert spread_score(KUBE_SCHEDULER_1_6, np.array([0, 1, 3])).tolist() == [10, 6, 0]
    assert spread_score(KUBE_SCHEDULER_1_6, np.array([0, 0])).tolist() == [10, 10]


@pytest.mark.parametrize(("count", "looked_at"), [(60, 60), (100, 100), (133, 100), (1_000, 420), (10_000, 500)])
def test_large_clusters_are_sampled(count, looked_at):
    """numFeasibleNodesToFind: 50 - n / 125 percent, 5 at least, 100 nodes at least."""
    assert sample_size(count) == looked_at


def test_emptiest_node_wins_without_an_owner():
    """LeastAllocated: the pod goes where most stays free."""
    sim = cluster(node("a", cpu=2, gib=4), node("b", cpu=8, gib=16))
    sim.submit(job())
    sim.create_pods("j", "trainer", 1)
    sim.run_until(1.0)
    assert placed(sim, "j") == {"j-trainer-0": "b"}


def test_owner_spreads_its_pods_before_it_fills_the_emptiest_node():
    """Spreading weighs twice: one pod on each node although one node is larger."""
    sim = cluster(node("a", cpu=4, gib=8), node("b", cpu=8, gib=16))
    sim.submit(job())
    sim.create_pods("j", "trainer", 2, spreads=True)
    sim.run_until(1.0)
    assert set(placed(sim, "j").values()) == {"a", "b"}


def test_selector_taint_and_cordon_keep_pods_away():
    """Filters: only the node that carries the label, has no taint unknown to the pod and is open."""
    taint = Taint(key="gpu", value="yes")
    nodes = [
        node("plain"),
        node("labelled", labels=frozenset({("disk", "ssd")})),
        node("tainted", labels=frozenset({("disk", "ssd")}), taints=frozenset({taint})),
    ]
    picky = shape(1, node_selector=frozenset({("disk", "ssd")}))
    tolerant = shape(1, node_selector=frozenset({("disk", "ssd")}), tolerations=frozenset({Toleration(key="gpu")}))
    sim = cluster(*nodes)
    sim.submit(job("picky", trainer=picky))
    sim.submit(job("tolerant", trainer=tolerant))
    sim.create_pods("picky", "trainer", 5)
    sim.run_until(2.0)
    assert set(placed(sim, "picky").values()) == {"labelled"}
    sim.cordon("labelled")
    sim.create_pods("tolerant", "trainer", 2)
    sim.run_until(4.0)
    assert set(placed(sim, "tolerant").values()) == {"tainted"}


def test_what_no_node_has_stays_unschedulable():
    """A resource that no node offers is no request for nothing."""
    sim = cluster(node("a"))
    odd = shape(1)
    odd = type(odd)(requests=type(odd.requests)(cpu_milli=100, extended=(("odd.com/thing", 1),)))
    sim.submit(job(trainer=odd))
    sim.create_pods("j", "trainer", 1)
    sim.run_until(30.0)
    (pod,) = sim.pods.values()
    assert pod.node is None
    assert pod.unschedulable_since_s == pytest.approx(0.01)


def test_ties_of_1_6_are_broken_in_turn_from_the_last_name():
    """Round robin over the best nodes, names descending."""
    sim = cluster(node("a"), node("b"), node("c"), scheduler=KUBE_SCHEDULER_1_6)
    sim.submit(job())
    sim.create_pods("j", "trainer", 1)
    sim.run_until(1.0)
    sim.delete_pods(["j-trainer-0"], grace_s=0.0)
    sim.run_until(2.0)
    sim.create_pods("j", "trainer", 1)
    sim.run_until(3.0)
    assert placed(sim, "j") == {"j-trainer-1": "b"}


def test_ties_of_today_are_broken_by_the_seed():
    """Different seeds, different nodes; the same seed, the same one."""

    def chosen(seed):
        sim = cluster(*(node(f"n{number}") for number in range(20)), seed=seed)
        sim.submit(job())
        sim.create_pods("j", "trainer", 1)
        sim.run_until(1.0)
        return placed(sim, "j")["j-trainer-0"]

    assert chosen(5) == chosen(5)
    assert len({chosen(seed) for seed in range(12)}) > 3
