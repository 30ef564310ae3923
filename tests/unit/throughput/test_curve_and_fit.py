"""The model of throughput, its knee, the points that are kept, and the fit (ADR 0265)."""

from dataclasses import replace
from math import exp, inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.errors import InvalidSpecError
from autoscaler.throughput import CurveShape, knee_of, marginal_gain
from autoscaler.throughput.fit import HALF_LIFE_S, fit_curve
from autoscaler.throughput.observations import (
    LONGEST_S,
    MOST_POINTS,
    MOST_SETTINGS,
    ObservationLog,
    SizeObservation,
)

AMDAHL = CurveShape(work=0.05, serial=0.02)
SIZES = (1, 2, 4, 8, 16, 32, 64)


def point(trainers, samples_per_s, **fields):
    return SizeObservation(
        **{"trainers": trainers, "samples_per_s": samples_per_s, "duration_s": 60.0, "at_s": 0.0, **fields}
    )


def seen(curve, *sizes, noise=0.0, seed=0):
    """What a job with this curve shows at these sizes."""
    rng = np.random.default_rng(seed)
    return [point(size, curve.samples_per_s(size) * exp(noise * rng.standard_normal())) for size in sizes]


def following(size):
    return 2 * size if size < SIZES[-1] else None


def test_perfect_scaling_has_no_knee():
    curve = CurveShape(work=0.5)
    assert curve.samples_per_s(8) == pytest.approx(16.0)
    assert marginal_gain(curve.samples_per_s, 1, 8, 16) == pytest.approx(1.0)
    assert knee_of(curve.samples_per_s, 1, following, 1.0 - 1e-9) == 64


def test_more_servers_divide_what_trainers_share():
    curve = CurveShape(work=0.1, serial=0.5)
    assert curve.samples_per_s(1000, 4) == pytest.approx(4 * curve.samples_per_s(1000, 1), rel=0.01)
    assert curve.samples_per_s(0, 4) == 0.0


def test_trainers_beyond_the_even_ones_count_less():
    curve, alike = CurveShape(work=0.1, serial=0.02, even=8.0, rest=0.5), CurveShape(work=0.1, serial=0.02)
    assert curve.samples_per_s(8) == alike.samples_per_s(8)
    assert curve.samples_per_s(12) == pytest.approx(alike.samples_per_s(10))


@pytest.mark.parametrize("fields", [{"rest": 0.0}, {"rest": 1.1}, {"rest": nan}, {"even": -1.0}, {"even": inf}])
def test_what_is_no_speed_of_later_trainers_is_refused(fields):
    with pytest.raises(InvalidSpecError, match="rest up to 1"):
        CurveShape(work=1.0, **{"even": 4.0, "rest": 0.5, **fields})


def test_fit_finds_where_slower_trainers_begin():
    """The first 32 scale; each of the others brings half of one."""
    curve = CurveShape(work=0.3, even=32.0, rest=0.5)
    fitted = fit_curve(seen(curve, 64, 16, 32, 48, 8, noise=0.005), 0.0)
    steps = range(8, 64, 8)
    gains = {size: marginal_gain(fitted.expected.samples_per_s, 1, size, size + 8) for size in steps}
    assert all(gains[size] == pytest.approx(1.0, abs=0.15) for size in steps if size < 24)
    assert all(gains[size] == pytest.approx(0.5, abs=0.15) for size in steps if size >= 40)
    assert fitted.expected.rest < 1.0


@given(
    st.dictionaries(st.integers(1, 200), st.floats(1e-3, 1e6), min_size=1, max_size=6),
    st.permutations(range(6)),
)
@settings(max_examples=25, deadline=None)
def test_whatever_was_seen_gives_a_curve_that_can_be_written(found, order):
    """Finite and above 0 everywhere, the same in any order, and the slower trainers begin among those seen."""
    points = [point(size, rate) for size, rate in found.items()]
    fitted = fit_curve(points, 0.0)
    assert fitted == fit_curve([points[at] for at in order if at < len(points)], 0.0)
    for shape in (fitted.expected, fitted.favourable):
        assert all(0.0 < shape.samples_per_s(size) < inf for size in (1, *found, 400))
        assert shape.even <= max(found)
        assert 0.0 < shape.rest <= 1.0


def test_knee_is_the_last_size_whose_step_pays():
    """Amdahl at 2 %: from 8 to 16 each trainer adds 0.68, from 16 to 32 still 0.48."""
    speed = AMDAHL.samples_per_s
    gains = [marginal_gain(speed, 1, size, 2 * size) for size in SIZES[:-1]]
    assert gains == sorted(gains, reverse=True)
    for asked in (0.9, 0.7, 0.4, 0.1):
        knee = knee_of(speed, 1, following, asked)
        assert all(gain >= asked for size, gain in zip(SIZES, gains, strict=False) if size < knee)
        assert knee == 64 or gains[SIZES.index(knee)] < asked


@pytest.mark.parametrize(
    "curve",
    [
        AMDAHL,
        CurveShape(work=0.3, serial=0.005, exchange=0.0004),
        CurveShape(work=0.02, serial=0.08, overlap=4.0),
        CurveShape(work=2.0),
    ],
)
def test_fit_of_four_sizes_finds_the_knee(curve):
    fitted = fit_curve(seen(curve, 32, 16, 4, 8, noise=0.01), 0.0)
    for shape in (fitted.expected, fitted.favourable):
        found, true = (knee_of(one.samples_per_s, 1, following, 0.7) for one in (shape, curve))
        assert abs(SIZES.index(found) - SIZES.index(true)) <= 1
    assert fitted.sizes == (4, 8, 16, 32)


def test_one_size_says_nothing_of_others():
    fitted = fit_curve(seen(AMDAHL, 8), 0.0)
    assert not fitted.is_known
    assert fitted.favourable.samples_per_s(8) == pytest.approx(AMDAHL.samples_per_s(8), rel=0.03)
    assert fit_curve([], 0.0) is None


def test_fit_does_not_depend_on_the_order():
    points = seen(AMDAHL, 2, 4, 8, 16, noise=0.02)
    assert fit_curve(points, 0.0) == fit_curve(points[::-1], 0.0)


def test_old_points_fade():
    """The job has become serial; what was seen of it a day ago hardly counts any more."""
    old = [replace(one, at_s=0.0) for one in seen(CurveShape(work=0.05), 4, 8, 16)]
    new = [replace(one, at_s=10 * HALF_LIFE_S) for one in seen(replace(AMDAHL, serial=0.2), 2, 32)]
    faded, fresh = fit_curve([*old, *new], 10 * HALF_LIFE_S), fit_curve(new, 10 * HALF_LIFE_S)
    for size in (2, 32):
        assert faded.expected.samples_per_s(size) == pytest.approx(fresh.expected.samples_per_s(size), rel=0.1)


def test_favourable_curve_gains_no_less():
    fitted = fit_curve(seen(AMDAHL, 8, 9, noise=0.02), 0.0)
    gains = [shape.samples_per_s(64) / shape.samples_per_s(9) for shape in (fitted.expected, fitted.favourable)]
    assert gains[0] <= gains[1] * 1.001
    assert fitted.error > fit_curve(seen(AMDAHL, 1, 4, 16, 64, noise=0.02), 0.0).error


@pytest.mark.parametrize(
    "fields",
    [
        {"samples_per_s": nan},
        {"samples_per_s": 0.0},
        {"samples_per_s": -3.0},
        {"samples_per_s": inf},
        {"samples_per_s": 1e15},
        {"trainers": 0},
        {"trainers": 10**9},
        {"servers": -1},
        {"duration_s": 0.0},
        {"duration_s": nan},
        {"at_s": inf},
    ],
)
def test_what_cannot_be_true_is_refused(fields):
    log = ObservationLog(points=(point(4, 40.0),))
    bad = replace(point(8, 70.0), **fields)
    assert log.add(bad) is log
    assert fit_curve([point(4, 40.0), bad], 0.0) == fit_curve([point(4, 40.0)], 0.0)


def test_wild_point_is_refused_and_a_saturated_one_is_not():
    log = ObservationLog().add(point(2, 20.0)).add(point(4, 38.0))
    assert log.add(point(8, 8_000.0)) is log
    assert log.add(point(8, 0.5)) is log
    assert log.add(point(64, 21.0)) is not log


def test_log_is_bounded_and_keeps_settings_apart():
    log = ObservationLog()
    for number in range(5):
        for size in range(1, 40):
            log = log.add(point(size, 10.0 * size, setting=f"batch {number}", at_s=float(number), duration_s=1e9))
    assert len(log.points) == MOST_POINTS * MOST_SETTINGS
    assert {one.setting for one in log.points} == {"batch 2", "batch 3", "batch 4"}
    assert len(log.of_setting("batch 4")) == MOST_POINTS
    assert max(one.duration_s for one in log.points) == LONGEST_S
    again = log.add(point(39, 400.0, setting="batch 4"))
    assert [one.samples_per_s for one in again.of_setting("batch 4") if one.trainers == 39] == [400.0]
