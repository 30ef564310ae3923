"""Both roles together, servers that follow their trainers and move, on random clusters (docs/adr/0117, 0118)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Capabilities, Cause, CreatePod, DeletePod, PodPhase, Role
from tests.property.planner_cases import Driver, happen
from tests.property.planner_draws import clusters, open_policies, policies, stories

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
    for job in view.jobs:
        if job.servers is None:
            continue
        own = [action for action in decided.actions if isinstance(action, CreatePod) and action.job == job.name]
        gone = [action for action in decided.actions if isinstance(action, DeletePod) and action.job == job.name]
        left = Counter(action.role for action in gone)
        servers = len(pods_of(view, job, Role.SERVER)) - left[Role.SERVER]
        trainers = len(pods_of(view, job, Role.TRAINER)) - left[Role.TRAINER]
        for action in own:
            servers += action.role is Role.SERVER and action.replaces is None
            trainers += action.role is Role.TRAINER
            if action.role is Role.TRAINER and action.cause is Cause.FREE_ROOM:
                assert servers >= needed(job, trainers), (job, decided.actions)
        if any(action.cause is Cause.RATIO for action in gone):
            everyone = len(pods_of(view, job, Role.TRAINER, leaving=True))
            assert servers >= needed(job, everyone), (job, decided.actions)


def check_web_takes_trainers_alone(decided):
    """What leaves by force, or for another's sake, is a trainer; a server leaves by the ratio or for its successor."""
    for action in decided.actions:
        if isinstance(action, DeletePod) and action.role is not Role.TRAINER:
            assert action.cause in OWNERS_WISH | {Cause.RATIO, Cause.DEFRAGMENTATION}, action


def check_no_server_short(decided, view):
    """No plan leaves a job fewer servers than its minimum, or than it has, but by its owner's wish or time."""
    for job in view.jobs:
        gone = [a for a in decided.actions if isinstance(a, DeletePod) and a.job == job.name and a.role is Role.SERVER]
        if job.servers is None or not gone or any(action.cause in OWNERS_WISH for action in gone):
            continue
        assert len(pods_of(view, job, Role.SERVER)) - len(gone) >= job.servers.min_replicas, decided.actions


def check_numbers(decided, view):
    """Servers are numbered below the most that the job may have; one that takes another's place has one number more."""
    most = {job.name: job.servers.max_replicas for job in view.jobs if job.servers is not None}
    for action in decided.actions:
        if isinstance(action, CreatePod) and action.role is Role.SERVER:
            assert action.ordinal < most[action.job] + (action.replaces is not None)


@given(clusters(), stories(), open_policies, st.booleans(), st.randoms(use_true_random=False))
def test_every_turn_keeps_the_order_of_the_roles(cluster, story, policy, moves, chance):
    """Events fall into changes that are under way, and pods leave in any order."""
    make_elastic(cluster, moves=moves)
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


@given(clusters(has_limits=False), stories(), policies(has_gates=False, is_frozen=False))
def test_servers_that_move_come_to_rest(cluster, story, policy):
    """After every event: no move leads back, and nothing moves at rest however long one waits."""
    make_elastic(cluster, moves=True)
    driver = Driver(cluster, policy)
    for event in story:
        happen(cluster, event)
        driver.rest()
    cluster.advance(120.0)
    assert not [action for action in driver.settle().actions if action.cause is Cause.DEFRAGMENTATION]
