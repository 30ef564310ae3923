"""What one report costs the master of a large group: it comes from each member once a second."""

from __future__ import annotations

import sys
from contextlib import contextmanager

from master import group
from master.api.identities import DatasetSpec
from master.api.messages.generations import GroupPhase, GroupProgress, StateId
from master.job.domain.job_events import MessageReceived
from tests.unit.master.group.group_driver import GroupDriver


def large_group(size: int) -> tuple[GroupDriver, list]:
    """A group of this size that trains, with a plan for one more member under way."""
    driver = GroupDriver(spec=DatasetSpec(name="digits", size=4096, epochs=2, batch_size=1024)).start()
    members = [driver.join(f"t{ordinal}") for ordinal in range(size)]
    driver.pass_time(1.5)
    for member in members:
        driver.progress(member, 1, 1, median_step_s=0.5)
    driver.join(f"t{size}")
    driver.pass_time(1.5)
    assert (driver.record.number, driver.record.planned_from, len(driver.names())) == (2, 1, size + 1)
    return driver, members


@contextmanager
def counted_calls():
    """The number of calls of Python functions meanwhile: the same in every run, unlike a time."""
    calls = [0]

    def count(_frame, event: str, _argument) -> None:
        calls[0] += event == "call"

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def calls_of_a_report(size: int) -> int:
    driver, members = large_group(size)
    own = StateId(lineage=driver.state.number, generation=1, step=2)
    said = GroupProgress(generation=1, phase=GroupPhase.REDUCE, state=own, is_synced=True, steps_begun=3)
    with counted_calls() as calls:
        step = group.handle(driver.state, MessageReceived(sender=members[0], message=said), driver.now)
        assert group.deadlines(step.state)
    return calls[0]


def test_a_report_costs_no_more_than_in_proportion_to_the_members():
    """Four times the members, at most five times the work, also while a planned change is under way."""
    assert calls_of_a_report(128) < 5 * calls_of_a_report(32)
