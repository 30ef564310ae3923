"""Comparisons of replicas: what members tell, and requests (rule 65, ADR 0291)."""

from __future__ import annotations

from dataclasses import replace

from master import group
from master.api.messages.generations import ComparisonWanted, ReplicaComparison, StateId
from master.job.domain.job_events import ComparisonRequested
from tests.unit.master.group.group_driver import STEPS, training


def compared(driver, step, **said):
    state = StateId(lineage=driver.state.number, generation=1, step=step)
    return ReplicaComparison(**{"state": state, "members": 2, "digest": f"d{step}", **said})


def told(driver):
    status = group.status(driver.state, driver.now)
    return status.compared_step, status.compared_by, status.compared_digest, status.compared_request


def test_the_newest_comparison_is_in_the_status():
    """Members tell the last one with each report, and some of them later than others."""
    driver, (first, second) = training("t0", "t1")
    assert told(driver) == (0, 0, "", "")
    driver.progress(first, 1, 5, compared=compared(driver, 4))
    driver.progress(second, 1, 5, compared=compared(driver, 2))
    assert told(driver) == (4, 2, "d4", "")


def test_what_cannot_be_is_not_shown():
    """A program of the job's owner may say anything."""
    driver, (first, _) = training("t0", "t1")
    for lie in (
        compared(driver, STEPS + 1),
        compared(driver, 1, digest="d" * 100),
        replace(compared(driver, 1), state=replace(compared(driver, 1).state, lineage=9)),
    ):
        driver.progress(first, 1, 5, compared=lie)
        assert told(driver) == (0, 0, "", "")


def test_request_goes_to_the_first_rank_until_a_later_comparison_answers_it():
    """With each poll, so it outlives a change of members; a comparison that was there before does not answer."""
    driver, (first, second) = training("t0", "t1")
    driver.progress(first, 1, 5, compared=compared(driver, 4))
    for polls in (1, 2):
        driver.feed(ComparisonRequested(request="r1"))
        assert len(driver.told(ComparisonWanted, first)) == polls
        assert told(driver) == (4, 2, "d4", "")
    driver.progress(second, 1, 7, compared=compared(driver, 7))
    assert told(driver) == (7, 2, "d7", "r1")
    driver.feed(ComparisonRequested(request="r1"))
    assert len(driver.told(ComparisonWanted, first)) == 2
    assert not driver.told(ComparisonWanted, second)


def test_request_after_the_last_step_is_answered_by_its_comparison():
    """Nothing newer comes."""
    driver, (first, _) = training("t0", "t1")
    driver.progress(first, 1, STEPS, compared=compared(driver, STEPS))
    driver.feed(ComparisonRequested(request="r1"))
    assert told(driver)[3] == "r1"


def test_a_trainer_alone_is_not_asked():
    driver, (first,) = training("t0")
    driver.feed(ComparisonRequested(request="r1"))
    assert not driver.told(ComparisonWanted, first)
    assert told(driver) == (0, 0, "", "")
