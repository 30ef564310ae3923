"""The best filling of a room, against every filling; what a pod costs the room."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.planner.placement.packing_patterns import MOST_FILLINGS, Patterns, copies, minus

vectors = st.tuples(st.integers(0, 6), st.integers(0, 6))
pods = st.lists(st.tuples(vectors.filter(any), st.integers(1, 9)), min_size=0, max_size=3)
rooms = st.tuples(st.integers(-2, 18), st.integers(-2, 18))


def best_by_trial(kinds, free):
    """The worth of the best of all multisets that fit."""
    best = 0
    for counts in product(*(range(copies(requests, free) + 1) for requests, _ in kinds)):
        used = [sum(n * requests[r] for n, (requests, _) in zip(counts, kinds, strict=True)) for r in range(2)]
        if all(not amount or amount <= room for amount, room in zip(used, free, strict=True)):
            best = max(best, sum(n * worth for n, (_, worth) in zip(counts, kinds, strict=True)))
    return best


@given(pods, rooms)
def test_no_filling_is_worth_more(kinds, free):
    assert Patterns(kinds).fill(free) == best_by_trial(kinds, free)


@given(pods.filter(bool), vectors.filter(any), st.integers(1, 9), rooms, st.booleans(), st.data())
def test_waste_grows_by_what_the_best_filling_loses_beyond_the_pod(kinds, other, worth, free, is_pattern, data):
    requests, worth = data.draw(st.sampled_from(kinds)) if is_pattern else (other, worth)
    if copies(requests, free) == 0:
        return
    patterns = Patterns(kinds)
    growth = patterns.growth(free, requests, worth)
    assert growth == best_by_trial(kinds, free) - best_by_trial(kinds, minus(free, requests)) - worth
    assert growth >= patterns.least_growth(requests, worth)


def test_a_server_goes_where_it_breaks_no_trainer():
    """Trainers of 5 and servers of 4 cores: 14 cores hold 5 + 5 + 4, 15 cores hold 5 + 5 + 5."""
    patterns = Patterns([((5,), 5), ((4,), 4)])
    assert patterns.growth((14,), (4,), 4) == 0
    assert patterns.growth((15,), (4,), 4) == 1


def test_a_master_goes_where_nothing_else_could():
    """A core that is left over is worth nothing to the patterns, so a pod there makes the waste smaller."""
    patterns = Patterns([((5,), 5), ((4,), 4)])
    assert patterns.growth((11,), (1,), 1) == patterns.least_growth((1,), 1) == -1
    assert patterns.growth((10,), (1,), 1) == 0


def test_a_room_far_from_full_is_not_searched():
    """Its fillings are too many to look at, and a pod there breaks nothing yet."""
    patterns = Patterns([((1, 2), 1), ((2, 1), 1), ((3, 3), 2)])
    assert patterns.growth((MOST_FILLINGS, MOST_FILLINGS), (3, 3), 2) == 0


def test_a_room_for_thousands_of_one_pod_has_a_worth_too():
    """One kind alone has as many fillings as copies: no depth of recursion, no cost."""
    patterns = Patterns([((2,), 2)])
    assert patterns.fill((4_001,)) == 4_000
    assert patterns.growth((1_001,), (2,), 2) == 0
    assert patterns.growth((1_000,), (3,), 3) == 1
