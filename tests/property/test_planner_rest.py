"""The planner comes to rest: on a cluster that nobody else changes, plans stop asking for anything (ADR 0269).

Small jobs that reach their maximum, servers that may move, and room for either: what one job gets by a move another
one lacks, and fairness may give it back.
"""

from copy import deepcopy
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Capabilities, PodPhase, Policy, Role, ServerSpec, Tier
from tests.property.planner_cases import NO_GATES, Driver
from tests.property.planner_draws import often
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import core_pod, elsewhere, job, node, shape

LATER_S = 20.0  # a move that stands still for a minute is late, and begins again
TURNS = 360  # of that length, before nothing may move any more
QUIET_TURNS = 36  # longer than what was refused or given up is left alone


@st.composite
def scenes(draw):
    """Jobs whose core stands, and wherever it fits one server each; the other nodes hold a few trainers or servers.

    The node of the other core pods is full, so all that can happen is growth, transfers and moves.
    """
    places = [node(f"n{at}", 1_000 * draw(st.integers(2, 7))) for at in range(draw(st.integers(2, 4)))]
    free = {place.name: place.allocatable.cpu_milli for place in places}
    jobs, pods = [], []
    for at in range(draw(st.integers(2, 3))):
        spec, server = draw(bounded_jobs(f"j{at}")), None
        if spec.servers is not None:
            asked = spec.servers.shape.requests.cpu_milli
            fitting = [name for name, left in free.items() if left >= asked]
            server = draw(st.sampled_from(fitting)) if fitting else None
            spec = spec if fitting else replace(spec, servers=None)
        if server is not None:
            free[server] -= spec.servers.shape.requests.cpu_milli
            pods.append(core_pod(spec, Role.SERVER, server))
        pods += [core_pod(spec, role, "core") for role in (Role.TRAINER, Role.MASTER)]
        jobs.append(spec)
    full = node("core", sum(spec.trainer.shape.requests.cpu_milli for spec in jobs))
    cluster = MemoryCluster([*places, full], jobs, pods=pods)
    cluster.capabilities = Capabilities(servers_elastic=draw(often(True, False)), moves_servers=True)
    return cluster


@st.composite
def bounded_jobs(draw, name):
    """A job that soon has all that it may have, of any weight, with a server in two of three draws."""
    spec = job(
        name,
        high=1 + draw(st.integers(1, 4)),
        cpu_milli=1_000 * draw(st.integers(2, 5)),
        weight=draw(st.sampled_from([50, 100, 900])),
    )
    server = ServerSpec(
        shape=shape(1_000 * draw(st.integers(1, 3))),
        min_replicas=1,
        max_replicas=1 + draw(often(0, 1)),
        trainers_per_server=draw(st.integers(1, 4)),
    )
    return replace(spec, servers=draw(st.sampled_from([server, server, None])))


@given(scenes())
def test_plans_without_windows_come_to_rest(cluster):
    """A loop shows at once: nothing delays any change."""
    driver = Driver(cluster, NO_GATES)
    driver.rest()
    cluster.advance(1_200.0)  # what was given up may be tried again
    driver.settle()
    assert not driver.plan().actions


@given(scenes(), st.lists(st.sampled_from([50, 500, 4_000, 6_000, 7_000, 8_000]), min_size=1, max_size=5, unique=True))
def test_servers_move_as_if_unrelated_jobs_that_have_all_were_not_there(cluster, sizes):
    """One to five jobs, of trainers small and large, that stand on nodes of their own and lack nothing."""
    beside = deepcopy(cluster)
    for size in sizes:
        spec, place = elsewhere(f"other-{size}", size)
        core = node(f"core-{size}", size, labels=place.labels, taints=place.taints)
        first = core_pod(spec, Role.TRAINER, core.name)
        more = [replace(first, name=f"{spec.name}-trainer-{at}", ordinal=at, node=place.name) for at in (1, 2)]
        more = [replace(pod, tier=Tier.SURPLUS) for pod in more]
        for item in (place, core, spec, first, core_pod(spec, Role.MASTER, core.name), *more):
            beside.put(item)
    ends = []
    for one in (cluster, beside):
        Driver(one, NO_GATES).rest()
        ends.append({pod.name: pod.node for pod in one.pods.values() if pod.role is Role.SERVER})
    assert ends[0] == ends[1]


@given(scenes())
def test_plans_with_the_usual_windows_come_to_rest(cluster):
    """With them a loop would be slow, and hide behind a plan that asks for nothing yet."""
    driver = Driver(cluster, Policy())
    quiet = 0
    for _ in range(TURNS):
        is_leaving = any(pod.phase is PodPhase.TERMINATING for pod in cluster.pods.values())
        quiet = 0 if driver.turn().actions or is_leaving else quiet + 1
        if quiet == QUIET_TURNS:
            return
        cluster.advance(LATER_S)
    raise AssertionError(f"no rest within {TURNS} turns")
