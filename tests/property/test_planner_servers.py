"""Both roles together, servers that follow their trainers and move, on random clusters (ADRs 0117, 0118)."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Capabilities, Cause, CreatePod, DeletePod, PodPhase, Role, ServerSpec
from autoscaler.planner.phases.p6_begin_moves import MOVES_PER_JOB
from tests.property.planner_cases import NO_GATES, Driver, happen
from tests.property.planner_draws import clusters, numbers, open_policies, policies, stories
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node, shape

OWNERS_WISH = {Cause.EDIT, Cause.LOST_NODE, Cause.PREEMPTION}


def make_elastic(cluster, *, moves):
    cluster.capabilities = Capabilities(servers_elastic=True, moves_servers=moves)


def needed(job, trainers):
    """Servers that so many trainers need."""
    spec = job.servers
    wanted = spec.pinned_replicas or -(-trainers // spec.trainers_per_server)
    return max(spec.min_replicas, min(wanted, spec.max_replicas))


def pods_of(view, job, role, *, leaving=False):
    """Pods that stay, or all of them, on nodes that are ready."""
    ready = {node.name for node in view.nodes if node.is_ready}
    found = [pod for pod in view.pods if pod.job == job.name and pod.role is role and pod.place in ready]
    return [pod for pod in found if leaving or pod.phase is not PodPhase.TERMINATING]


def check_order_of_roles(decided, view):
    """Servers are created before trainers that need them, and leave by the ratio only when those are gone."""
    for spec in view.jobs:
        if spec.servers is None:
            continue
        own = [action for action in decided.actions if isinstance(action, CreatePod) and action.job == spec.name]
        gone = [action for action in decided.actions if isinstance(action, DeletePod) and action.job == spec.name]
        left = Counter(action.role for action in gone)
        servers = len(pods_of(view, spec, Role.SERVER)) - left[Role.SERVER]
        trainers = len(pods_of(view, spec, Role.TRAINER)) - left[Role.TRAINER]
        for action in own:
            servers += action.role is Role.SERVER and action.replaces is None
            trainers += action.role is Role.TRAINER
            if action.role is Role.TRAINER and action.cause is Cause.FREE_CAPACITY:
                assert servers >= needed(spec, trainers), (spec, decided.actions)
        if any(action.cause is Cause.RATIO for action in gone):
            everyone = len(pods_of(view, spec, Role.TRAINER, leaving=True))
            assert servers >= needed(spec, everyone), (spec, decided.actions)


def check_web_takes_trainers_alone(decided):
    """What leaves by force, or for another's sake, is a trainer; a server leaves by the ratio or for its successor."""
    for action in decided.actions:
        if isinstance(action, DeletePod) and action.role is not Role.TRAINER:
            assert action.cause in OWNERS_WISH | {Cause.RATIO, Cause.DEFRAGMENTATION}, action


def check_no_server_short(decided, view):
    """No plan leaves a job fewer servers than its minimum, or than it has, but by its owner's wish or time."""
    for spec in view.jobs:
        gone = [a for a in decided.actions if isinstance(a, DeletePod) and a.job == spec.name and a.role is Role.SERVER]
        if spec.servers is None or not gone or any(action.cause in OWNERS_WISH for action in gone):
            continue
        assert len(pods_of(view, spec, Role.SERVER)) - len(gone) >= spec.servers.min_replicas, decided.actions


def check_numbers(decided, view):
    """Servers are numbered below the most that the job may have; those that take others' place have a few more."""
    most = {spec.name: spec.servers.max_replicas for spec in view.jobs if spec.servers is not None}
    for action in decided.actions:
        if isinstance(action, CreatePod) and action.role is Role.SERVER:
            assert action.ordinal < most[action.job] + (MOVES_PER_JOB if action.replaces else 0)


@st.composite
def web_waves(draw):
    """Nodes and jobs of a few cores, and a web of pods of 3 that comes and goes: places are good for one wave only."""
    cores = st.integers(6, 14)
    cluster = MemoryCluster(node(f"n{number}", 1_000 * draw(cores)) for number in range(draw(st.integers(2, 5))))
    jobs = []
    for number in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 2))
        servers = ServerSpec(
            shape=shape(1_000 * draw(st.integers(2, 4))),
            min_replicas=count,
            max_replicas=count + draw(st.integers(0, 1)),
            trainers_per_server=draw(st.integers(2, 9)),
        )
        trainer_milli = 1_000 * draw(st.integers(3, 5))
        jobs.append(replace(job(f"j{number}", cpu_milli=trainer_milli, high=9), servers=servers))
    web = st.tuples(st.just("web"), st.just(shape(3_000)))
    odd = st.tuples(st.sampled_from(["kill", "kill core", "drain", "open"]), numbers)
    gone = st.tuples(st.just("web leaves"), numbers)
    events = st.lists(st.one_of(web, web, gone, gone, gone, odd), min_size=4, max_size=14)
    return cluster, [*(("submit", spec) for spec in jobs), *draw(events)]


@given(st.one_of(web_waves(), st.tuples(clusters(), stories())), open_policies, st.randoms(use_true_random=False))
def test_every_turn_keeps_the_order_of_the_roles(scene, policy, chance):
    """Events fall into changes that are under way, and pods leave in any order."""
    cluster, story = scene
    make_elastic(cluster, moves=chance.random() < 0.8)
    driver = Driver(cluster, policy)
    for event in story:
        happen(cluster, event)
        cluster.bind_others()
        for _ in range(4):
            view = cluster.view(history=driver.history)
            decided = driver.turn()
            check_order_of_roles(decided, view)
            check_web_takes_trainers_alone(decided)
            check_no_server_short(decided, view)
            check_numbers(decided, view)
            for name in [n for n, pod in cluster.pods.items() if pod.phase is PodPhase.TERMINATING]:
                if chance.random() < 0.5:
                    cluster.lose(name)
            cluster.bind_others()
            cluster.advance(0.3)


@given(web_waves(), st.sampled_from([0, 1, 6]))
def test_after_every_tide_servers_come_to_rest_in_their_number(scene, per_minute):
    """After every wave: at rest each job has its servers, and waiting for an hour moves none."""
    cluster, story = scene
    make_elastic(cluster, moves=True)
    driver = Driver(cluster, replace(NO_GATES, server_moves_per_minute=per_minute, server_moves_percent_per_minute=100))
    for event in story:
        happen(cluster, event)
        driver.rest()
    for _ in range(3):
        cluster.advance(1_200.0)
        driver.settle()
    assert not driver.plan().actions
    for spec in cluster.jobs.values():
        servers = [p for p in cluster.pods.values() if p.job == spec.name and p.role is Role.SERVER]
        if any(pod.job == spec.name for pod in cluster.pods.values()):
            trainers = sum(p.job == spec.name and p.role is Role.TRAINER for p in cluster.pods.values())
            assert len(servers) == needed(spec, trainers)


@given(clusters(has_limits=False), stories(), policies(has_gates=False, is_frozen=False))
def test_servers_that_move_come_to_rest(cluster, story, policy):
    """After every event: no move leads back, and nothing moves at rest however long one waits."""
    make_elastic(cluster, moves=True)
    driver = Driver(cluster, policy)
    for event in story:
        happen(cluster, event)
        driver.rest()
    cluster.advance(120.0)
    decided = driver.settle()
    assert not decided.actions
    assert not decided.history.server_moves
