"""How far the API server's clock is ahead: what its dates prove, and no more."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.kubernetes.api.clock_skew import ServerClock, clock_ahead_s

NOON_S = 1_800_000_000.0


def date_of(unix_s):
    return formatdate(unix_s, usegmt=True)


@pytest.mark.parametrize(
    ("said_s", "sent_s", "received_s", "ahead_s"),
    [
        (NOON_S, NOON_S + 0.2, NOON_S + 0.3, 0.0),
        (NOON_S, NOON_S + 0.9, NOON_S + 1.5, 0.0),  # the second ended on its way
        (NOON_S, NOON_S - 0.5, NOON_S + 60.0, 0.0),  # a minute on the way proves nothing
        (NOON_S + 60.0, NOON_S, NOON_S + 0.5, 59.5),
        (NOON_S - 60.0, NOON_S, NOON_S + 0.5, -59.0),
    ],
)
def test_least_difference_that_explains_the_date_is_told(said_s, sent_s, received_s, ahead_s):
    assert clock_ahead_s(date_of(said_s), sent_s=sent_s, received_s=received_s) == pytest.approx(ahead_s)


@given(
    ahead_s=st.floats(-1e6, 1e6),
    before_s=st.floats(0.0, 100.0),
    after_s=st.floats(0.0, 100.0),
    now_s=st.floats(0.0, 1e9),
)
def test_never_more_than_the_true_difference_is_told(ahead_s, before_s, after_s, now_s):
    """Whatever the delays: a slow machine raises no alarm, and what is told has the right sign."""
    said = date_of(int(NOON_S + now_s + ahead_s))
    told = clock_ahead_s(said, sent_s=NOON_S + now_s - before_s, received_s=NOON_S + now_s + after_s)
    assert min(0.0, ahead_s) - 1e-3 <= told <= max(0.0, ahead_s) + 1e-3


@pytest.mark.parametrize("date", ["", "yesterday", "Sun, 99 Nov 2026 25:00:00 GMT", "\0"])
def test_what_is_no_date_tells_nothing(date):
    assert clock_ahead_s(date, sent_s=NOON_S, received_s=NOON_S) is None


@pytest.mark.parametrize("step_s", [-86_400.0, 0.0, 86_400.0])
def test_step_of_the_clock_here_moves_no_time_of_the_server(step_s):
    """Before any response there is only the clock here; after one, an even one counts from it."""
    here = {"unix": NOON_S, "steady": 50.0}
    clock = ServerClock(lambda: here["unix"], steady_clock=lambda: here["steady"])
    assert clock.now_s() == NOON_S
    clock.set_ahead(30.0)
    assert clock.now_s() == NOON_S + 30.0
    here["unix"] += step_s + 10.0
    here["steady"] += 10.0
    assert clock.now_s() == NOON_S + 40.0
    clock.set_ahead(32.0 - step_s)  # the next response shows what the step was
    assert clock.now_s() == NOON_S + 42.0
