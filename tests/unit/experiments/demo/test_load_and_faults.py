"""The demo's timeline is what it says: web load between two levels, and faults in their order."""

import pytest

from experiments.demo.__main__ import parse_options
from experiments.demo.load_and_faults import Fault, WebLoad, plan_faults


def test_web_load_starts_and_ends_low_and_reaches_high():
    """The web rises to `high`, stays, and comes back to `low`, one direction at a time."""
    load = WebLoad(low=2, high=8, duration_s=60)
    levels = [load.replicas(t / 10) for t in range(650)]
    top = levels.index(8)
    assert levels[0] == levels[-1] == 2
    assert max(levels) == 8
    assert levels[:top] == sorted(levels[:top])
    assert levels[top:] == sorted(levels[top:], reverse=True)


def test_faults_are_three_in_order_and_follow_the_seed():
    """The same seed gives the same play; another job loses its trainer under some other seed."""
    play = plan_faults(("a", "b"), (), duration_s=60, seed=7)
    assert [f.fault for f in play] == [Fault.KILL_TRAINER, Fault.DRAIN_TRAINER, Fault.KILL_MASTER]
    assert [f.at_s for f in play] == sorted(f.at_s for f in play)
    assert play == plan_faults(("a", "b"), (), duration_s=60, seed=7)
    assert {plan_faults(("a", "b"), (), duration_s=60, seed=s)[0].job for s in range(8)} == {"a", "b"}


def test_a_group_loses_a_trainer_and_changes_no_other_fault():
    """What jobs with servers suffer is the same where torch, and with it the group, is missing."""
    *others, last = plan_faults(("a", "b"), ("g",), duration_s=60, seed=7)
    assert tuple(others) == plan_faults(("a", "b"), (), duration_s=60, seed=7)
    assert (last.fault, last.job) == (Fault.KILL_TRAINER, "g")
    assert others[-1].at_s < last.at_s < 60


@pytest.mark.parametrize("text", ["40", "40s"])
def test_the_duration_is_written_as_everywhere_else(text):
    """As for `edl run`: with a unit, or in seconds."""
    assert parse_options(["--duration", text]).load_s == 40


@pytest.mark.parametrize("text", ["soon", "nan", "-5s", "5s"])
def test_a_duration_that_cannot_be_is_refused(text):
    """Usage, exit code 2; shorter than a trainer's start makes no demo."""
    with pytest.raises(SystemExit, match="2"):
        parse_options(["--duration", text])
