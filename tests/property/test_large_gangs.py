"""What makes plans for large gangs cheap changes no answer: whole runs of pods, bounds by counting, prices kept."""

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Cause, Role
from autoscaler.planner import Memo
from autoscaler.planner.placement.core_placement import least_costs_of_swap, waste_of_swap
from autoscaler.planner.placement.node_choice import NO_CROWDING, allocate_tightest, nodes_by_tightness
from autoscaler.planner.placement.reclaimable import Reclaimable, reclaimable_for
from autoscaler.planner.placement.victims import cheapest_victims
from autoscaler.planner.working_copy.ranks import full_rank, offers_of, removal_order, shrink
from tests.property.planner_cases import Driver
from tests.property.planner_draws import clusters, open_policies, stories

RANK = full_rank(10)


def working_copy(cluster, story, policy):
    """The copy on which a plan would begin after the story."""
    driver = Driver(cluster, policy)
    driver.live(story)
    return Memo().begin(cluster.view(history=driver.history), policy, cluster.now())


@given(clusters(), stories(), open_policies, st.integers(1, 40), st.booleans(), st.sets(st.integers(0, 5)))
def test_a_run_of_pods_goes_where_one_after_the_other_would(cluster, story, policy, count, now, avoided):
    """`allocate_tightest` is `nodes_by_tightness` for each pod."""
    copy = working_copy(cluster, story, policy)
    avoid = (
        copy.capacity.mask(copy.capacity.names[at] for at in avoided if at < len(copy.capacity)) if avoided else None
    )
    for job in copy.jobs.values():
        shape, mark, by_ones = job.shapes[Role.TRAINER], copy.mark(), []
        while len(by_ones) < count:
            at = next(nodes_by_tightness(copy, shape, now=now, avoid=avoid), None)
            if at is None:
                break
            copy.capacity.allocate(at, shape, now=now)
            by_ones.append(at)
        later = copy.capacity.later.copy()
        copy.roll_back(mark)
        assert allocate_tightest(copy, shape, count, now=now, avoid=avoid) == by_ones
        assert (copy.capacity.later == later).all()
        copy.roll_back(mark)


@given(clusters(), stories(), open_policies, st.lists(st.integers(0, 50), max_size=6))
def test_what_is_brought_up_to_date_is_what_is_made_anew(cluster, story, policy, removals):
    """Rows, sums, prices and removal orders after some trainers have left, and come back."""
    copy = working_copy(cluster, story, policy)
    kept, mark = reclaimable_for(copy, RANK, None), copy.mark()
    for number in removals:
        check_alike(copy, kept)
        givers = [job for job in copy.jobs.values() if job.spare and offers_of(copy, job, RANK).pods]
        if number % 7 == 6 or not givers:
            copy.roll_back(mark)
            continue
        giver = givers[number % len(givers)]
        offered = offers_of(copy, giver, RANK).pods
        shrink(copy, giver, [offered[number % len(offered)]], Cause.GANG)
    check_alike(copy, kept)


def check_alike(copy, kept):
    fresh = Reclaimable(RANK, None)
    fresh.attach(copy)
    for job in copy.jobs.values():
        shape = job.shapes[Role.TRAINER]
        (places, fewest, _), (wanted, least, _) = kept.bounds(shape, None), fresh.bounds(shape, None)
        assert (places.tolist(), fewest.tolist()) == (wanted.tolist(), least.tolist())
        assert (kept.prices, kept.different_prices) == (fresh.prices, fresh.different_prices)
        assert [kept.at(at) for at in places] == [fresh.at(at) for at in places]
        assert kept.copies(shape, None) == fresh.copies(shape, None)
        known = removal_order(copy, job), offers_of(copy, job, RANK).pods
        job.removal_order, job.offers = None, {}
        assert known == (removal_order(copy, job), offers_of(copy, job, RANK).pods)


@given(clusters(), stories(), open_policies)
def test_victims_are_those_that_a_look_at_every_node_finds(cluster, story, policy):
    """The bound by waste ends the search earlier, not elsewhere."""
    copy = working_copy(cluster, story, policy)
    for job in copy.jobs.values():
        shape = job.shapes[Role.TRAINER]
        waste = waste_of_swap(copy, shape, NO_CROWDING)
        if waste is None:
            continue

        def cost(victims, waste=waste):
            return (0, float(waste([victims.at])[0]))

        def least(nodes, _, waste=waste):
            return least_costs_of_swap(nodes, waste)

        bounded = cheapest_victims(copy, shape, RANK, side_cost=cost, least_side_cost=least)
        assert bounded == cheapest_victims(copy, shape, RANK, side_cost=cost)
