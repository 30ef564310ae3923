"""No plan exceeds the bounds, and the bounds are as tight as they claim: against brute force and against each other."""

from dataclasses import replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain import Role
from experiments.bounds import PackingItem, Worth, best_whole, fill, upper_bound
from tests.property.planner_cases import NO_GATES, Driver
from tests.property.planner_draws import DEVICES, clusters, jobs, open_policies, stories
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node

PLENTY = 1_000  # tickets
ROUNDING = 1e-6  # the linear solver's, in units of worth


@st.composite
def crowded(draw, max_nodes=2, max_jobs=2):
    """A small cluster that two jobs want: of all sizes between their bounds, which is what the optimum allows."""
    cluster = draw(clusters(max_nodes=max_nodes, has_limits=False))
    for number in range(draw(st.integers(1, max_jobs))):
        spec = draw(jobs(f"j{number}", sizes=("ones",)))
        most = min(spec.trainer.max_replicas, spec.trainer.min_replicas + 3)
        cluster.put(replace(spec, trainer=replace(spec.trainer, max_replicas=most, pinned_replicas=0)))
    return cluster


@settings(max_examples=60)
@given(crowded(), st.sampled_from(list(Worth)))
def test_the_optimum_is_that_of_brute_force(cluster, worth):
    """The integer programme finds what trying every set of sizes and every placement finds."""
    view = cluster.view()
    assert best_whole(view, worth) == brute_force(view, worth)


@settings(max_examples=60)
@given(clusters(has_limits=False), st.lists(jobs("j"), min_size=1, max_size=3), st.sampled_from(list(Worth)))
def test_the_relaxed_bound_is_never_below_the_optimum(cluster, listed, worth):
    """What is quick to compute at 10,000 nodes is a bound."""
    for number, spec in enumerate(listed):
        cluster.put(replace(spec, name=f"j{number}"))
    view = cluster.view()
    assert upper_bound(view, worth) >= best_whole(view, worth) - ROUNDING


@settings(max_examples=40)
@given(clusters(has_limits=False), stories(), open_policies, st.sampled_from(list(Worth)))
def test_no_plan_exceeds_the_bounds(cluster, story, policy, worth):
    """Whatever happened before, what stands on open nodes at rest is worth at most the optimum, and that the bound.

    The bounds take every job as whole, on nodes that take pods, with as many servers as are fixed: so nothing is
    closed, killed or ended here, and servers keep their number.
    """
    driver = Driver(cluster, policy)
    driver.live([event for event in story if event[0] in {"submit", "web", "odd web", "web leaves", "workload", "age"}])
    view = cluster.view()
    assert worth_of(view, worth) <= best_whole(view, worth) <= upper_bound(view, worth) + ROUNDING


@settings(max_examples=60)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 4))
def test_equal_trainers_reach_the_optimum(rooms, cpu, count):
    """Where all pods are alike nothing can be placed badly: the planner fills what the bound allows, to the pod."""
    nodes = [node(f"n{number}", room * 1_000) for number, room in enumerate(rooms)]
    listed = [job(f"j{number}", low=1, high=60, cpu_milli=cpu * 1_000) for number in range(count)]
    cluster = MemoryCluster(nodes, listed)
    Driver(cluster, NO_GATES).settle()
    view = cluster.view()
    best = best_whole(view, Worth.TRAINERS)
    assert worth_of(view, Worth.TRAINERS) == best == sum(room // cpu for room in rooms)
    assert upper_bound(view, Worth.TRAINERS) <= best + ROUNDING


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=3),
)
def test_filling_is_that_of_brute_force(rooms, requests):
    """The patterns of rooms lose nothing: same best worth, and None exactly where the least counts do not fit."""
    items = [PackingItem(request=(cpu, memory), worth=cpu, least=least, most=3) for cpu, memory, least in requests]
    answers = [
        sum(n * item.worth for n, item in zip(counts, items, strict=True))
        for counts in product(*(range(item.least, item.most + 1) for item in items))
        if can_pack([item.request for n, item in zip(counts, items, strict=True) for _ in range(n)], rooms)
    ]
    found = fill(rooms, items)
    assert (None if found is None else found.worth) == max(answers, default=None)


def worth_of(view, worth):
    """What EDL's pods on open nodes are worth."""
    open_nodes = {n.name for n in view.nodes if n.is_open()}
    own = [pod for pod in view.pods if pod.role is not Role.EXTERNAL and pod.node in open_nodes]
    match worth:
        case Worth.CPU:
            return sum(pod.requests.cpu_milli for pod in own)
        case Worth.GPU:
            return sum(pod.requests.gpu_count for pod in own)
        case Worth.TRAINERS:
            return sum(pod.role is Role.TRAINER for pod in own)


def brute_force(view, worth):
    """The best of all sizes for which some placement exists."""
    shapes = {shape: number for number, shape in enumerate(shapes_of(view))}
    rooms = [(*tuple_of(n.allocatable), *(PLENTY * n.accepts(shape) for shape in shapes)) for n in view.nodes]
    best = 0
    for sizes in product(*([0, *range(j.trainer.min_replicas, j.trainer.max_replicas + 1)] for j in view.jobs)):
        pods, value = [], 0
        for spec, size in zip(view.jobs, sizes, strict=True):
            if size:
                core = [spec.master.shape] * spec.master.replicas
                core += [spec.servers.shape] * spec.servers.min_replicas if spec.servers else []
                wanted = [*core, *[spec.trainer.shape] * size]
                pods += [(*tuple_of(s.requests), *(int(s == other) for other in shapes)) for s in wanted]
                value += sum(value_of(shape, worth) for shape in core)
                value += size if worth is Worth.TRAINERS else size * value_of(spec.trainer.shape, worth)
        if value > best and can_pack(pods, rooms):
            best = value
    return best


def shapes_of(view):
    """Each shape once: a pod takes a ticket for its own, of which only nodes that accept it have any."""
    return dict.fromkeys(
        shape
        for spec in view.jobs
        for shape in (spec.trainer.shape, spec.master.shape, *([spec.servers.shape] if spec.servers else []))
    )


def tuple_of(amounts):
    return tuple(amounts.amount(name) for name in ("cpu", "memory", "gpu", *DEVICES))


def value_of(shape, worth):
    amounts = {Worth.CPU: shape.requests.cpu_milli, Worth.GPU: shape.requests.gpu_count, Worth.TRAINERS: 0}
    return amounts[worth]


def can_pack(pods, rooms):
    """Whether all pods find a room: every choice is tried, equal states once."""
    pods = sorted(pods, reverse=True)
    states = {tuple(sorted(rooms))}
    for pod in pods:
        states = {
            tuple(sorted((*state[:n], tuple(a - b for a, b in zip(room, pod, strict=True)), *state[n + 1 :])))
            for state in states
            for n, room in enumerate(state)
            if all(a >= b for a, b in zip(room, pod, strict=True))
        }
    return bool(states)
