"""Whatever is asked of the simulated cluster, its books stay right, and the same calls give the same run."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.clusters.simulated import (
    KUBE_SCHEDULER,
    KUBE_SCHEDULER_1_6,
    Hpa,
    Physics,
    SimDeployment,
    SimulatedCluster,
)
from autoscaler.domain import AdmitGang, Cause, CreatePod, DeletePod, Reclaim, Role, Tier
from autoscaler.errors import InvalidSpecError
from tests.unit.clusters.simulated.small_worlds import job, node, shape

NODES = tuple(f"n{number}" for number in range(5))
OWN_ROLES = (Role.TRAINER, Role.SERVER, Role.MASTER)

indices = st.integers(min_value=0, max_value=99)
nodes = st.sampled_from(NODES)
jobs = st.sampled_from(("j0", "j1"))
roles = st.sampled_from(OWN_ROLES)

operations = st.one_of(
    st.tuples(st.just("pass"), st.floats(min_value=0.001, max_value=60.0)),
    st.tuples(st.just("scale"), st.integers(min_value=0, max_value=30)),
    st.tuples(st.just("load"), st.floats(min_value=0.0, max_value=30.0)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("lose"), nodes),
    st.tuples(st.just("restore"), nodes),
    st.tuples(st.just("cordon"), nodes),
    st.tuples(st.just("uncordon"), nodes),
    st.tuples(st.just("drain"), nodes, st.booleans()),
    st.tuples(st.just("pods"), jobs, roles, st.integers(min_value=1, max_value=6), st.integers(-8, 5), st.booleans()),
    st.tuples(st.just("part"), jobs, roles, st.integers(min_value=0, max_value=6)),
    st.tuples(st.just("leave"), indices, st.one_of(st.none(), st.floats(min_value=0.0, max_value=5.0))),
    st.tuples(st.just("kill"), indices),
    st.tuples(st.just("create"), jobs, roles, indices, nodes, st.sampled_from((Tier.CORE, Tier.SURPLUS))),
    st.tuples(st.just("gang"), jobs, st.lists(nodes, min_size=1, max_size=5)),
    st.tuples(st.just("delete"), indices),
    st.tuples(st.just("over"), jobs),
)


def make(seed, reclaim, profile):
    sim = SimulatedCluster(
        [replace(node(name, cpu=4 + number), labels=frozenset()) for number, name in enumerate(NODES)],
        physics=Physics(loss_detection_s=5.0, eviction_s=10.0),
        scheduler=profile,
        seed=seed,
        reclaim=reclaim,
        servers_elastic=bool(seed % 2),
        daemons={name: shape(0.25) for name in NODES},
    )
    sim.add_deployment(SimDeployment(name="web", shape=shape(1, 1), replicas=4))
    sim.add_deployment(SimDeployment(name="shop", shape=shape(0.5, 1), replicas=2, priority=3))
    sim.add_hpa(Hpa(deployment="shop", min_replicas=1, max_replicas=12, load_per_replica=2.0))
    sim.submit(job("j0", servers=1, high=9))
    sim.submit(job("j1", servers=2, high=9, weight=50, priority=2))
    return sim


def placement(name, role, ordinal, where, tier):
    return CreatePod(job=name, role=role, ordinal=ordinal, tier=tier, node=where, cause=Cause.FREE_CAPACITY)


def write(sim, action):
    return asyncio.run(sim.apply(action)).result


def some_pod(sim, index):
    names = list(sim.pods)
    return sim.pods[names[index % len(names)]] if names else None


def do(sim, operation):  # noqa: C901 - one line per operation
    match operation:
        case ("scale", replicas):
            sim.scale("web", replicas)
        case ("load", load):
            sim.set_load("shop", load)
        case ("roll",):
            sim.roll("web")
        case ("lose", name):
            sim.lose_node(name)
        case ("restore", name):
            sim.restore_node(name)
        case ("cordon", name):
            sim.cordon(name)
        case ("uncordon", name):
            sim.uncordon(name)
        case ("drain", name, evicts):
            sim.drain_node(name, evicts_jobs=evicts)
        case ("pods", name, role, count, priority, can_preempt):
            sim.create_pods(name, role, count, priority=priority, can_preempt=can_preempt)
        case ("part", name, role, count):
            sim.set_replicas(name, role, count)
        case ("leave", index, grace_s) if (pod := some_pod(sim, index)) and pod.owner:
            sim.delete_pods([pod.name], grace_s=grace_s)
        case ("kill", index) if (pod := some_pod(sim, index)) and pod.owner:
            sim.kill_pod(pod.name)
        case ("create", name, role, ordinal, where, tier):
            write(sim, placement(name, role, ordinal, where, tier))
        case ("gang", name, places):
            before = set(sim.pods)
            wanted = tuple(placement(name, Role.TRAINER, 50 + n, where, Tier.CORE) for n, where in enumerate(places))
            verdict = write(sim, AdmitGang(job=name, pods=wanted))
            new = {f"{name}-trainer-{want.ordinal}" for want in wanted}
            assert new <= set(sim.pods) if verdict == "done" else set(sim.pods) == before
        case ("delete", index) if (pod := some_pod(sim, index)) and pod.role in OWN_ROLES:
            action = DeletePod(pod=pod.name, job=pod.owner, role=pod.role, node=pod.node, cause=Cause.POD, grace_s=1.0)
            assert write(sim, action) == "done"
            assert pod.is_leaving or pod.name not in sim.pods
        case ("over", name):
            sim.delete_job(name)


def play(script, seed, reclaim, profile):
    """Carry out the operations; what a user may not ask is refused and changes nothing."""
    sim = make(seed, reclaim, profile)
    for operation in script:
        if operation[0] == "pass":
            sim.run_until(sim.now() + operation[1])
        else:
            with suppress(InvalidSpecError):  # a job that is over
                do(sim, operation)
        sim.check()
        check_view(sim)
    sim.run_until(sim.now() + 30.0)
    sim.check()
    return sim


def check_view(sim):
    """The view that grew by changes is the one that would be built anew."""
    view = sim.view()
    assert {pod.name: (pod.phase, pod.node) for pod in view.pods} == {
        name: (pod.phase, pod.node) for name, pod in sim.pods.items()
    }
    assert view == replace(view)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(operations, max_size=25),
    st.integers(min_value=0, max_value=9),
    st.sampled_from(Reclaim),
    st.sampled_from((KUBE_SCHEDULER, KUBE_SCHEDULER_1_6)),
)
def test_books_stay_right_whatever_is_asked(script, seed, reclaim, profile):
    """Room, sums, places and counts after every event (A2), gangs whole or not at all (A1), views as they should be."""
    play(script, seed, reclaim, profile)


@settings(max_examples=25, deadline=None)
@given(st.lists(operations, max_size=15), st.integers(min_value=0, max_value=9), st.sampled_from(Reclaim))
def test_same_calls_and_seed_give_the_same_run(script, seed, reclaim):
    """To the last instant, node and sample."""
    one, two = play(script, seed, reclaim, KUBE_SCHEDULER), play(script, seed, reclaim, KUBE_SCHEDULER)
    assert one.record.pods() == two.record.pods()
    assert one.record.usage == two.record.usage
    assert one.record.jobs == two.record.jobs
    assert one.record.web == two.record.web


@settings(max_examples=25, deadline=None)
@given(st.lists(operations, max_size=15), st.integers(min_value=0, max_value=9))
def test_everything_settles(script, seed):
    """With all nodes back and nothing asked any more, no pod is left leaving."""
    sim = play(script, seed, Reclaim.SCHEDULER, KUBE_SCHEDULER)
    for name in NODES:
        sim.restore_node(name)
    sim.run_until(sim.now() + 60.0)
    sim.scale("web", 0)
    sim.run_until(sim.now() + 60.0)
    assert not [pod.name for pod in sim.pods.values() if pod.is_leaving and pod.terminating_at_s < sim.now() - 40.0]
    assert sim.record.web["web"][-1][1:] == (0, 0, 0)
