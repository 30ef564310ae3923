"""What web pods cost trainers is bounded by node, and the bounds change no plan (ADR 0276)."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Cause, Role
from autoscaler.planner import Memo
from autoscaler.planner.phases.p3_side_costs import JobFigures, side_costs_of
from autoscaler.planner.placement.fewest_trainers import FewestTrainers
from autoscaler.planner.placement.reclaimable import NOBODY, reclaimable_for
from autoscaler.planner.placement.victims import candidates, capacity_on, cheapest_victims, fewest_on
from autoscaler.planner.sharing.step_down import last_step_of, share_below
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
                check_figures(copy)
                bounded = cheapest_victims(copy, shape, RANK, side_cost=costs.of, least_side_cost=costs.least)
                assert bounded == cheapest_victims(copy, shape, RANK, side_cost=costs.of)
                if bounded is None:
                    break
                for job, pods in bounded.taken:
                    shrink(copy, job, pods, Cause.POD)
                copy.capacity.allocate(bounded.at, shape, now=False)
        copy.roll_back(start)


def check_figures(copy):
    """What was kept of the jobs is what a look at all of them finds."""
    kept, anew = copy.cache.get(JobFigures, lambda: JobFigures(copy)), JobFigures(copy)
    richest = {}
    for job in copy.jobs.values():
        rich = richest.get(job.spec.priority)
        if job.spare and (rich is None or share_below(copy, job) > share_below(copy, rich)):
            richest[job.spec.priority] = job
    assert kept.richest() == anew.richest() == richest
    moved = [
        last_step_of(rich)
        if (rich := richest.get(job.spec.priority)) and job.spare and job.attained() < share_below(copy, rich)
        else 0
        for job in copy.jobs.values()
    ]
    assert kept.moved_back_by_one(richest).tolist() == moved
    assert kept.can_lose_one.tolist() == anew.can_lose_one.tolist()


@given(clusters(), stories(), open_policies, st.integers(1, 3))
def test_known_choice_is_the_one_that_a_look_at_the_node_finds(cluster, story, policy, times):
    """Also after jobs have given, when the nodes and the order of prices are others, and after that is undone."""
    driver = Driver(cluster, policy)
    driver.live(story)
    copy = Memo().begin(cluster.view(history=driver.history), policy, cluster.now())
    reclaimable = reclaimable_for(copy, RANK, None)
    for job in list(copy.jobs.values()):
        one = copy.shapes.shapes[job.shapes[Role.TRAINER]]
        wanted = replace(one, requests=one.requests.plus(one.requests, times=times))
        known = FewestTrainers(copy, copy.shapes.number(wanted), reclaimable)
        start = copy.mark()
        while (victims := cheapest_victims(copy, copy.shapes.number(wanted), RANK)) is not None:
            check_known(copy, known, copy.shapes.number(wanted))
            for giver, pods in victims.taken:
                shrink(copy, giver, pods, Cause.POD)
            copy.capacity.allocate(victims.at, copy.shapes.number(wanted), now=False)
        copy.roll_back(start)
        check_known(copy, known, copy.shapes.number(wanted))


def check_known(copy, known, shape):
    reclaimable = reclaimable_for(copy, RANK, None)
    nodes, fewest, _ = reclaimable.bounds(shape, None)
    known.update(nodes, fewest)
    for at, count in zip(nodes.tolist(), fewest.tolist(), strict=True):
        if known.is_known[at]:
            found = fewest_on(capacity_on(copy, at, shape), candidates(copy, reclaimable, at), count)
            given = zip(known.givers[at].tolist(), known.counts[at].tolist(), strict=True)
            taken = {reclaimable.jobs[giver].spec.name: count for giver, count in given if giver != NOBODY}
            assert taken == {job.spec.name: len(pods) for job, pods in found.taken}
            assert known.trainers[at] == found.cost[0]
            free = copy.capacity.later[:, at] + sum(
                np.array(copy.capacity.request_amounts(copy.shapes.number(pod.shape))) for pod in found.pods
            )
            assert known.free[:, at].tolist() == free.tolist()
