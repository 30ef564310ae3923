"""What more servers would give a job, from how long its trainers wait for those that it has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.jobs.server_ratio import LEAST_GAIN, MOST_TIMES_PRESENT, WAITING_SHARE, find_hint, speed


def test_jobs_that_compute_most_of_their_time_get_no_hint():
    """A little waiting is no bottleneck, and a job without servers has none to wait for."""
    assert find_hint(servers=1, waiting_share=WAITING_SHARE - 0.01) is None
    assert find_hint(servers=0, waiting_share=0.9) is None
    assert find_hint(servers=8, waiting_share=0.3) is None  # a ninth gives 3 %


def test_hint_names_the_number_and_what_it_gives():
    """Half the time is for two: with four it is a quarter of what it was, and a fifth would give 7 %."""
    found = find_hint(servers=2, waiting_share=0.5)
    assert (found.servers, found.better) == (2, 4)
    assert found.gain == pytest.approx(1 / 3)
    assert found.describe(most=8) == "trainers wait for servers 50% of their time; 4 in place of 2: at most +33%"
    assert found.describe(most=3).endswith("+33% (maxReplicas is 3)")


@given(servers=st.integers(1, 200), waiting_share=st.floats(0, 1))
def test_each_server_named_is_worth_it_and_the_next_is_not(servers, waiting_share):
    """The model's bounds: never slower, and the gain stays below what no waiting at all would give."""
    found = find_hint(servers=servers, waiting_share=waiting_share)
    if found is None:
        return
    last, following = (speed(servers, found.better + more, waiting_share) for more in (0, 1))
    assert last >= (1 + LEAST_GAIN) * speed(servers, found.better - 1, waiting_share) * (1 - 1e-9)
    assert following < (1 + LEAST_GAIN) * last or found.better == MOST_TIMES_PRESENT * servers
    assert found.gain > 0
    assert waiting_share == 1 or found.gain <= 1 / (1 - waiting_share) - 1 + 1e-9
