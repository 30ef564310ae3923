"""What web pods cost trainers is bounded by node, and the bounds change no plan (ADR 0276)."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Cause
from autoscaler.planner import Memo
from autoscaler.planner.phases.p3_side_costs import side_costs_of
from autoscaler.planner.placement.victims import cheapest_victims
from autoscaler.planner.working_copy.ranks import full_rank, shrink
from tests.property.planner_cases import Driver
from tests.property.planner_draws import clusters, open_policies, stories

RANK = full_rank(10)


@given(clusters(), stories(), open_policies, st.integers(1, 6))
def test_bounds_end_the_search_earlier_and_not_elsewhere(cluster, story, policy, alike):
    """For want after want, and after all of it is undone, a look at every node finds the same victims."""
    driver = Driver(cluster, policy)
    driver.live(story)
    copy = Memo().begin(cluster.view(history=driver.history), policy, cluster.now())
    shapes = [number for job in copy.jobs.values() for number in job.shapes.values()]
    doubled = [
        replace(
            copy.shapes.shapes[number],
            requests=copy.shapes.shapes[number].requests.plus(copy.shapes.shapes[number].requests, times=1),
        )
        for number in shapes
    ]
    start = copy.mark()
    for _ in range(2):
        for shape in [*shapes, *map(copy.shapes.number, doubled)]:
            for left in range(alike, 0, -1):
                costs = side_costs_of(copy, shape, RANK)
                costs.begin_want(left)
                bounded = cheapest_victims(copy, shape, RANK, side_cost=costs.of, least_side_cost=costs.least)
                assert bounded == cheapest_victims(copy, shape, RANK, side_cost=costs.of)
                if bounded is None:
                    break
                for job, pods in bounded.taken:
                    shrink(copy, job, pods, Cause.POD)
                copy.capacity.allocate(bounded.at, shape, now=False)
        copy.roll_back(start)
