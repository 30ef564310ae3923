"""How long a job still takes at a size: by its present rate, by the curve, in a range, or not known."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.throughput import CurveShape, FittedCurve
from autoscaler.throughput.remaining_time import LONGEST_S, RemainingTime, RemainingWork, remaining_time

BENT, STRAIGHT = CurveShape(work=0.01, serial=0.25), CurveShape(work=0.01)
CURVE = FittedCurve(expected=BENT, favourable=STRAIGHT, sizes=(1, 2))
SEEN_ONCE = FittedCurve(expected=BENT, favourable=STRAIGHT, sizes=(2,))
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


def test_present_size_takes_its_present_rate_whatever_the_curve_says():
    found = remaining_time(RemainingWork(samples=6_000, samples_per_s=100.0, trainers=2), CURVE, trainers=2, servers=0)
    assert found == RemainingTime(trainers=2, seconds=60.0, shortest_s=60.0, longest_s=60.0)


def test_another_size_is_scaled_from_the_present_rate():
    """The curve gives 80 samples/s at 1 and 200 at 4: by 40 at 1 it is 100, and 160 where four are four times one."""
    work = RemainingWork(samples=16_000, samples_per_s=40.0, trainers=1)
    assert remaining_time(work, CURVE, trainers=4, servers=0) == RemainingTime(
        trainers=4, seconds=160.0, shortest_s=100.0, longest_s=260.0
    )


def test_smaller_size_takes_longer_by_the_favourable_curve():
    work = RemainingWork(samples=16_000, samples_per_s=200.0, trainers=4)
    found = remaining_time(work, CURVE, trainers=1, servers=0)
    assert found == RemainingTime(trainers=1, seconds=200.0, shortest_s=120.0, longest_s=320.0)


def test_waiting_job_takes_what_the_curve_says():
    """It was measured before it lost its trainers."""
    found = remaining_time(RemainingWork(samples=20_000), CURVE, trainers=4, servers=0)
    assert (found.seconds, found.shortest_s) == (100.0, 50.0)


def test_servers_that_come_with_the_size_count():
    work = RemainingWork(samples=16_000, samples_per_s=80.0, trainers=1, servers=1)
    few, many = (remaining_time(work, CURVE, trainers=4, servers=count) for count in (1, 4))
    assert many.seconds < few.seconds


def test_work_that_is_done_takes_no_time():
    work = RemainingWork(samples=0, samples_per_s=80.0, trainers=1)
    assert remaining_time(work, CURVE, trainers=4, servers=0).longest_s == 0.0


@pytest.mark.parametrize("curve", [None, SEEN_ONCE])
def test_size_that_was_never_measured_is_not_known_without_a_curve_of_two_sizes(curve):
    work = RemainingWork(samples=6_000, samples_per_s=100.0, trainers=2)
    assert remaining_time(work, curve, trainers=3, servers=0) is None
    assert remaining_time(work, curve, trainers=2, servers=0).seconds == 60.0


@pytest.mark.parametrize("samples", [nan, inf, -inf, -1.0])
def test_samples_that_are_no_count_make_it_unknown(samples):
    work = RemainingWork(samples=samples, samples_per_s=100.0, trainers=2)
    assert remaining_time(work, CURVE, trainers=2, servers=0) is None


@pytest.mark.parametrize("rate", [nan, inf, -inf, -1.0, 0.0])
def test_rate_that_is_none_makes_it_unknown_without_a_curve(rate):
    """The curve stands in where there is one."""
    work = RemainingWork(samples=200.0, samples_per_s=rate, trainers=4)
    assert remaining_time(work, None, trainers=4, servers=0) is None
    assert remaining_time(work, CURVE, trainers=4, servers=0).seconds == 1.0


def test_no_size_and_a_time_without_end_are_unknown():
    work = RemainingWork(samples=LONGEST_S * 2, samples_per_s=1.0, trainers=1)
    assert remaining_time(work, CURVE, trainers=1, servers=0) is None
    assert remaining_time(RemainingWork(samples=1.0), CURVE, trainers=0, servers=0) is None


@given(
    samples=NUMBERS,
    rate=NUMBERS,
    now=st.integers(-5, 10_000),
    planned=st.integers(-5, 10_000),
    favourable=st.builds(CurveShape, work=st.floats(1e-200, 1e200), serial=st.floats(0.0, 1e200)),
)
def test_every_answer_is_a_finite_range_around_what_is_expected(samples, rate, now, planned, favourable):
    curve = FittedCurve(expected=BENT, favourable=favourable, sizes=(1, 2))
    work = RemainingWork(samples=samples, samples_per_s=rate, trainers=now)
    found = remaining_time(work, curve, trainers=planned, servers=0)
    assert found is None or 0 <= found.shortest_s <= found.seconds <= found.longest_s <= LONGEST_S
