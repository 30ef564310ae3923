"""The bound by whole pods on every node lies between the optimum and the linear bound."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.bounds import Worth, best_whole, pattern_bound, upper_bound
from experiments.bounds.configured import CLOSE
from tests.property.planner_draws import clusters, jobs

ROUNDING = 1e-6


@settings(max_examples=60)
@given(clusters(), st.lists(jobs("j"), min_size=1, max_size=3), st.sampled_from(list(Worth)))
def test_the_pattern_bound_lies_between_the_optimum_and_the_linear_bound(cluster, listed, worth):
    """It is a bound, and no weaker than the one that it tightens."""
    for number, spec in enumerate(listed):
        cluster.put(replace(spec, name=f"j{number}"))
    view = cluster.view()
    bound = pattern_bound(view, worth)
    assert best_whole(view, worth) <= bound + ROUNDING
    assert bound <= upper_bound(view, worth) * (1 + CLOSE) + ROUNDING
