"""Buckets of like weight in classes, of which every server gets its share."""

from hypothesis import given
from hypothesis import strategies as st

from master.job.placement.owner_placement import LEAST_BUCKETS_PER_SERVER, SIMILAR_RATIO, Weight, classes

weights = st.lists(
    st.builds(Weight, size_bytes=st.sampled_from([0, 1, 90, 100, 10_000]), load=st.sampled_from([0.0, 1.0, 50.0])),
    min_size=1,
    max_size=40,
)


@given(weights, st.integers(1, 5))
def test_every_bucket_is_in_one_class_and_no_class_is_too_small_to_share(weighed, servers):
    """Two for each server, or all are one class; the heaviest come first."""
    found = classes(len(weighed), servers, weighed)
    assert sorted(bucket for one in found for bucket in one) == list(range(len(weighed)))
    if len(found) > 1:
        assert min(map(len, found)) >= LEAST_BUCKETS_PER_SERVER * servers
    heaviest = [max(weighed[bucket].size_bytes for bucket in one) for one in found]
    assert heaviest == sorted(heaviest, reverse=True)


@given(st.integers(1, 4), st.integers(1, 3))
def test_buckets_that_differ_are_kept_apart_as_soon_as_each_kind_can_be_shared(servers, more):
    """Large ones, small ones, and of the small ones those under load."""
    each = LEAST_BUCKETS_PER_SERVER * servers + more - 1
    kinds = (Weight(size_bytes=1000), Weight(size_bytes=100, load=9.0), Weight(size_bytes=100))
    weighed = [kinds[bucket % 3] for bucket in range(3 * each)]
    assert classes(len(weighed), servers, weighed) == tuple(tuple(range(kind, 3 * each, 3)) for kind in range(3))


def test_alike_is_what_differs_by_less_than_the_bound():
    """Sizes are measured, and what is almost the same must not be taken for another kind."""
    near, far = Weight(size_bytes=round(1000 * SIMILAR_RATIO) + 1), Weight(size_bytes=round(1000 * SIMILAR_RATIO) - 1)
    assert len(classes(8, 2, [Weight(size_bytes=1000)] * 4 + [near] * 4)) == 1
    assert len(classes(8, 2, [Weight(size_bytes=1000)] * 4 + [far] * 4)) == 2
