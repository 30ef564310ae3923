"""The planner comes to rest: on a cluster that nobody else changes, plans stop asking for anything (ADR 0269).

Small jobs that reach their maximum, servers that may move, and room for either: what one job gets by a move another
one lacks, and fairness may give it back.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Capabilities, PodPhase, Policy, ServerSpec
from tests.property.planner_cases import NO_GATES, Driver, happen
from tests.property.planner_draws import often
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node, shape

LATER_S = 60.0  # as long as the longest window of the defaults
TURNS = 120  # of that length, before nothing may move any more
QUIET_TURNS = 12  # longer than what was refused or given up is left alone


@st.composite
def servers(draw):
    low = draw(st.integers(1, 2))
    return ServerSpec(
        shape=shape(1_000 * draw(st.integers(1, 3))),
        min_replicas=low,
        max_replicas=low + draw(often(0, 1)),
        trainers_per_server=draw(st.integers(1, 4)),
        prefers_anti_affinity=draw(often(False, True)),
    )


@st.composite
def bounded_jobs(draw, name):
    """A job that soon has all that it may have, of any weight, with servers in two of three draws."""
    low = draw(st.integers(1, 2))
    spec = job(
        name,
        low=low,
        high=low + draw(st.integers(1, 4)),
        cpu_milli=1_000 * draw(st.integers(2, 5)),
        weight=draw(st.sampled_from([50, 100, 300, 900])),
        priority=draw(often(0, 1)),
    )
    return replace(spec, servers=draw(st.one_of(servers(), servers(), st.none())))


@st.composite
def scenes(draw):
    """Jobs that were placed while the web stood elsewhere, the cluster without that web, and nothing to come."""
    cluster = MemoryCluster(node(f"n{at}", 1_000 * draw(st.integers(3, 9))) for at in range(draw(st.integers(2, 5))))
    cluster.capabilities = Capabilities(servers_elastic=draw(often(True, False)), moves_servers=True)
    jobs = [draw(bounded_jobs(f"j{at}")) for at in range(draw(st.integers(2, 4)))]
    web = st.tuples(st.just("web"), st.builds(lambda cores: shape(1_000 * cores), st.integers(1, 4)))
    story = [*draw(st.lists(web, max_size=3)), *(("submit", spec) for spec in jobs)]
    return cluster, draw(st.permutations(story)) + [("web leaves", 0)] * 3


@given(scenes())
def test_plans_without_windows_come_to_rest(scene):
    """A loop would show at once: nothing delays any change."""
    cluster, story = scene
    driver = Driver(cluster, NO_GATES)
    for event in story:
        happen(cluster, event)
        driver.rest()
    cluster.advance(1_200.0)
    driver.settle()
    assert not driver.plan().actions


@given(scenes())
def test_plans_with_the_usual_windows_come_to_rest(scene):
    """With them a loop would be slow, and hide behind a plan that asks for nothing yet."""
    cluster, story = scene
    driver = Driver(cluster, Policy())
    for event in story:
        happen(cluster, event)
        cluster.bind_others()
    quiet = 0
    for _ in range(TURNS):
        cluster.bind_others()
        is_leaving = any(pod.phase is PodPhase.TERMINATING for pod in cluster.pods.values())
        quiet = 0 if driver.turn().actions or is_leaving else quiet + 1
        if quiet == QUIET_TURNS:
            return
        cluster.advance(LATER_S)
    raise AssertionError(f"no rest within {TURNS} turns")
