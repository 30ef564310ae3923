"""The simulated cluster as a whole: its calendar, what its view keeps, broken books, and what it refuses."""

import pytest

from autoscaler.clusters.simulated import (
    DurationRange,
    Hpa,
    Physics,
    SimDeployment,
    SimulatedCluster,
    SpeedCurve,
    TrainingWork,
    fixed_duration,
)
from autoscaler.domain import Role
from autoscaler.errors import InvalidSpecError, InvariantViolationError
from tests.unit.clusters.simulated.small_worlds import cluster, job, node, running_job, shape


def test_calls_at_instants_and_in_periods():
    """Virtual time; a call sees its own instant."""
    sim = cluster(node("a"))
    seen = []
    sim.every(5.0, lambda: seen.append(sim.now()), first_s=2.0)
    sim.at(7.0, lambda: seen.append("then"))
    sim.run_until(12.0)
    assert seen == [2.0, "then", 7.0, 12.0]


def test_view_keeps_what_did_not_change():
    """The planner's memo goes by identity."""
    sim = running_job()
    sim.run_until(5.0)
    before = sim.view()
    assert sim.view() is before
    sim.delete_pods(["j-trainer-0"])
    after = sim.view()
    same = [a is b for a, b in zip(before.pods, after.pods, strict=True)]
    assert same.count(False) == 1
    assert after.nodes is before.nodes
    assert after.revision > before.revision


def harm_sum(sim):
    sim._world.table.slots[0].requested[0] -= 1


def harm_room(sim):
    sim._world.table.slots[0].allocatable = (500, 0, 0)


def harm_place(sim):
    sim.pods["web-0"].node = "b"


def harm_count(sim):
    del sim._world.pods["web-0"]


def test_large_clusters_are_checked_where_they_were_touched():
    """Above 500 nodes: the node of the event."""
    sim = cluster(*(node(f"n{number:03}") for number in range(501)))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=2))
    sim.run_until(5.0)
    touched, untouched = sim.pods["web-0"].node, sim.pods["web-1"].node
    sim._world.table.slot(untouched).requested[0] += 1
    sim.at(6.0, lambda: sim.cordon(touched))
    sim.run_until(6.5)
    sim.at(7.0, lambda: sim.cordon(untouched))
    with pytest.raises(InvariantViolationError, match=untouched):
        sim.run_until(8.0)


@pytest.mark.parametrize("harm", [harm_sum, harm_room, harm_place, harm_count])
def test_broken_books_stop_the_run(harm):
    """Every invariant bites: with the instant and the story."""
    sim = cluster(node("a"), node("b"))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1), replicas=2))
    sim.run_until(5.0)
    sim.check()
    harm(sim)
    with pytest.raises(InvariantViolationError, match=r"at 5\.000 s"):
        sim.check()
    sim.at(6.0, lambda: sim.cordon("a"))
    sim.at(6.0, lambda: sim.cordon("b"))
    with pytest.raises(InvariantViolationError, match=r"at 6\.000 s"):
        sim.run_until(7.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda sim: sim.scale("nobody", 1),
        lambda sim: sim.scale("web", -1),
        lambda sim: sim.add_deployment(SimDeployment(name="web", shape=shape(1))),
        lambda sim: sim.set_load("web", 1.0),
        lambda sim: sim.lose_node("nowhere"),
        lambda sim: sim.create_pods("nobody", Role.TRAINER, 1),
        lambda sim: sim.create_pods("j", Role.SERVER, 1),
        lambda sim: sim.submit(job()),
        lambda sim: sim.delete_job("nobody"),
        lambda sim: sim.every(0.0, sim.check),
    ],
)
def test_wrong_requests_are_refused(call):
    """With the field and what to do."""
    sim = cluster(node("a"))
    sim.add_deployment(SimDeployment(name="web", shape=shape(1)))
    sim.submit(job())
    with pytest.raises(InvalidSpecError):
        call(sim)
    sim.check()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Physics(removal_s=-1.0),
        lambda: Physics(scheduling_s=0.0),
        lambda: Physics(eviction_s=float("nan")),
        lambda: Physics(create_rate_per_s=0.0),
        lambda: DurationRange(low_s=2.0, high_s=1.0),
        lambda: fixed_duration(float("inf")),
        lambda: TrainingWork(samples_total=0.0),
        lambda: SpeedCurve(fixed_s=0.0),
        lambda: Hpa(deployment="web", min_replicas=0, max_replicas=1, load_per_replica=1.0),
        lambda: SimulatedCluster([node("a"), node("a")]),
        lambda: SimulatedCluster([node("a", cpu=-1)]),
    ],
)
def test_impossible_physics_are_refused(make):
    """Before anything runs."""
    with pytest.raises(InvalidSpecError):
        make()
