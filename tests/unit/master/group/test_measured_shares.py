"""Shares of a group's members by their measured speed (rule 63, ADR 0296)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.group.measured_shares import EQUAL, LEAST, MOST, measured_weights
from tests.unit.master.group.group_driver import broken_number, training

EQUALS = (EQUAL,) * 4


@pytest.mark.parametrize(
    ("rates", "before", "expected"),
    [
        ((10.0, 10.0, 10.0, 10.0), EQUALS, EQUALS),
        ((10.0, 10.0, 10.0, 9.5), EQUALS, EQUALS),  # too little to gain
        ((10.0, 10.0, 10.0, 5.0), EQUALS, (114, 114, 114, 57)),
        ((10.0, 10.0, 10.0, 0.1), EQUALS, (133, 133, 133, LEAST)),  # within bounds
        ((40.0, 10.0, 10.0, 10.0), EQUALS, (MOST, 57, 57, 57)),
        ((0.0, 0.0, 0.0, 0.0), (57, 114, 114, 114), (57, 114, 114, 114)),  # nothing is known
        ((0.0, 10.0, 10.0, 5.0), EQUALS, (100, 120, 120, 60)),  # a joiner counts as the mean
        ((10.0, 10.0, 10.0, 5.2), (114, 114, 114, 57), (114, 114, 114, 57)),  # as before, but for some percent
        ((10.0, 10.0, 10.0, 10.0), (114, 114, 114, 57), EQUALS),  # it is as quick as the others again
    ],
)
def test_weights_follow_measured_speeds_in_bounds_where_it_is_worth_it(rates, before, expected):
    assert measured_weights(rates, before) == expected


@given(st.lists(st.floats(0.0, 1e12), min_size=1, max_size=8))
def test_weights_are_bounded_and_stay_once_they_are_taken(rates):
    """Measured again with the same speeds there is nothing to change, so no change brings the next."""
    weights = measured_weights(rates, (EQUAL,) * len(rates))
    assert all(LEAST <= weight <= MOST for weight in weights)
    assert measured_weights(rates, weights) == weights


def reported(driver, members, rates, seconds):
    for _ in range(seconds):
        for member, rate in zip(members, rates, strict=True):
            number, step = driver.record.number, driver.state.newest + 1
            driver.progress(member, number, step, compute_rate=rate)
        driver.pass_time(1.0)


def weights(driver):
    return [one.share for one in driver.record.members]


def test_slow_member_gets_a_smaller_share_by_a_plan_once_it_was_slow_for_a_while():
    """Nobody is disturbed, and another half a minute changes nothing."""
    driver, members = training("t0", "t1", "t2", measures_shares=True)
    assert weights(driver) == [EQUAL] * 3
    reported(driver, members, (10.0, 10.0, 4.0), 25)
    assert driver.record.number == 1
    reported(driver, members, (10.0, 10.0, 4.0), 25)
    assert (driver.record.number, driver.record.planned_from, weights(driver)) == (2, 1, [125, 125, 50])
    reported(driver, members, (10.0, 10.0, 4.0), 100)
    assert driver.record.number == 2
    assert broken_number(driver, members[0]) == 0


def test_member_that_is_slow_for_a_moment_keeps_its_share():
    driver, members = training("t0", "t1", measures_shares=True)
    for _ in range(4):
        reported(driver, members, (10.0, 4.0), 15)
        reported(driver, members, (10.0, 10.0), 15)
    assert driver.record.number == 1


def test_next_record_of_other_members_has_the_measured_shares():
    """A change that is made anyway takes them along at once."""
    driver, members = training("t0", "t1", measures_shares=True)
    reported(driver, members, (10.0, 5.0), 3)
    driver.join("t2")
    driver.pass_time(1.5)
    assert (driver.record.number, weights(driver)) == (2, [133, 67, 100])


def test_without_the_jobs_wish_shares_are_equal():
    driver, members = training("t0", "t1")
    reported(driver, members, (10.0, 1.0), 60)
    assert (driver.record.number, weights(driver)) == (1, [1, 1])
