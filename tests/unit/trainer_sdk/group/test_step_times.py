"""What a member reports of its steps: figures of complete ones alone, and the pause of a change of members."""

from threading import Event
from time import monotonic

import pytest

from master.api.positions import PositionSet
from trainer_sdk.group.port import StepShare
from trainer_sdk.group.step_times import SIZES_KEPT, StepTimes


def share(step: int, generation: int = 1, *, records: int = 2, size: int = 2) -> StepShare:
    positions = PositionSet.span(4 * step, 4 * step + records)
    return StepShare(step=step, epoch=0, positions=positions, records=4, rank=0, size=size, generation=generation)


def test_figures_are_of_complete_steps():
    """A step that was dropped counts as begun, and in no median and no rate."""
    times = StepTimes()
    for step, (began_s, ended_s) in enumerate(((0.0, 1.0), (1.0, 2.0), (2.0, 5.0))):
        times.begin(share(step), began_s)
        times.end(ended_s)
    times.begin(share(3), 5.0)
    times.begin(share(3), 95.0)
    report = times.report({"loss": 0.5})
    assert (report.steps_begun, report.median_step_s, report.metrics) == (5, 1.0, {"loss": 0.5})
    assert report.samples_per_s == pytest.approx(6 / 5)


def test_figures_are_of_the_groups_present_size():
    """Else the rate of a job that was resized would be of two sizes for 32 steps."""
    times = StepTimes()
    for step in range(4):
        times.begin(share(step, size=4), float(step))
        times.end(step + 0.5)
    times.begin(share(4, generation=2, size=4), 10.0)
    times.end(10.5)
    assert times.report({}).samples_per_s == pytest.approx(4.0)
    times.begin(share(5, generation=3), 20.0)
    assert times.report({}).samples_per_s == 0.0
    times.end(22.0)
    report = times.report({})
    assert (report.samples_per_s, report.median_step_s) == (1.0, 2.0)


def test_step_ends_once():
    """One that was completed before it was computed ends when it is applied, which the runtime says of any step."""
    times = StepTimes()
    times.begin(share(0), 0.0)
    assert times.report({}).is_in_step
    times.end(3.0)
    times.end(9.0)
    report = times.report({})
    assert (report.median_step_s, report.is_in_step) == (3.0, False)


def test_pause_of_a_change_is_from_the_last_step_to_the_first_of_the_next_generation():
    """The same generation's wait for the next step is none, and the figure stays until the next change."""
    times = StepTimes()
    times.begin(share(0), 0.0)
    times.end(1.0)
    times.begin(share(1), 4.0)
    assert times.report({}).pause_s == 0.0
    times.end(5.0)
    times.begin(share(2, generation=2), 12.0)
    times.end(13.0)
    times.begin(share(3, generation=2), 14.0)
    assert times.report({}).pause_s == 7.0


def test_report_says_where_the_scripts_thread_is():
    """In its script until it asks for a step; in a collective also while it has asked for none."""
    times = StepTimes()
    assert (times.report({}).is_in_script, times.report({}).is_reducing) == (True, False)
    with times.asking():
        assert not times.report({}).is_in_script
    with times.reducing():
        assert times.report({}).is_reducing
    assert (times.report({}).is_in_script, times.report({}).is_reducing) == (True, False)


def test_work_on_the_replica_may_hang_as_a_script_may():
    """The script has asked for a step, and its thread reads a checkpoint or copies a tensor that never comes."""
    times = StepTimes()
    with times.asking():
        with times.working():
            assert times.report({}).is_working
        assert not times.report({}).is_working


def test_report_says_that_the_script_waits_for_its_data_and_which_share_of_its_time_it_did():
    """Of complete steps alone: the waiting of a step that was dropped goes with it."""
    times = StepTimes()
    with times.loading():
        assert times.report({}).is_loading
    assert not times.report({}).is_loading
    began_s = monotonic()
    times.begin(share(0), began_s)
    with times.loading():
        Event().wait(0.01)
    assert times.report({}).waiting_share == 0.0
    times.end(monotonic())
    assert 0.0 < times.report({}).waiting_share <= 1.0
    times.begin(share(1), 0.0)
    times.end(1e6)
    assert times.report({}).waiting_share < 1e-3


def test_rate_of_computing_is_without_the_wait_for_others():
    """Told by the script, or else what collectives took is left out; a step on an accelerator says nothing."""
    times = StepTimes()
    times.begin(share(0), 0.0)
    times.computed(0.5)
    times.end(9.0)
    assert times.report({}).compute_rate == pytest.approx(2 / 0.5)
    unknown = StepTimes()
    unknown.begin(share(0), 0.0)
    unknown.computed(0.5, is_known=False)
    unknown.end(9.0)
    assert unknown.report({}).compute_rate == 0.0
    reduced = StepTimes()
    began_s = monotonic()
    reduced.begin(share(0), began_s)
    with reduced.reducing():
        Event().wait(0.02)
        assert reduced.report({}).reducing_s >= 0.02
    reduced.end(monotonic() + 0.5)
    assert reduced.report({}).reducing_s == 0.0
    assert 2 / 0.6 < reduced.report({}).compute_rate <= 2 / 0.5


def test_size_is_new_until_a_step_of_it_is_complete():
    """Who takes the state has no records in its first step, and compiles for its share in the second; the others have
    a larger one first (ADR 0257).  A step that was dropped may not have been computed.
    """
    times, new = StepTimes(), []
    for step, records in enumerate((0, 2, 2, 4, 2, 4)):
        times.begin(share(step, records=records), 0.0)
        new.append(times.report({}).is_size_new)
        times.end(1.0)
    assert new == [True, True, False, True, False, False]
    times.begin(share(6, records=3), 0.0)
    times.begin(share(6, records=3), 0.0)
    assert times.report({}).is_size_new


def test_sizes_are_forgotten_in_the_order_in_which_they_were_trained_last():
    times = StepTimes()
    for records in (1, 2, *range(3, SIZES_KEPT + 1), 1, SIZES_KEPT + 1):
        times.begin(share(0, records=records), 0.0)
        times.end(1.0)
    for records, is_new in ((1, False), (2, True), (3, False)):
        times.begin(share(0, records=records), 0.0)
        assert times.report({}).is_size_new == is_new
