"""Growth stops where trainers bring too little; what is beyond leaves; an unknown job is measured once (ADR 0266)."""

from dataclasses import replace

import pytest

from autoscaler.domain import Bottleneck, Cause, DeletePod
from autoscaler.errors import InvalidSpecError
from autoscaler.planner.counterfactual import ChangeKind, PlanInputs
from autoscaler.planner.sharing.change_limits import gain_of
from autoscaler.planner.sharing.efficiency import PROBED_AFTER_S
from autoscaler.throughput import CurveShape, FittedCurve
from tests.unit.planner.counterfactual.test_answers import answers
from tests.unit.planner.setups import CALM, decision, job, node, settled

AMDAHL = CurveShape(work=1.0, serial=0.045)
"""At 0.7 its knee is 5 trainers: the fifth adds 0.72 of one, the sixth 0.67."""


def known(curve=AMDAHL, sizes=(2, 4)):
    return FittedCurve(expected=curve, favourable=curve, sizes=sizes)


def asking(name, efficiency=0.7, throughput=None, **fields):
    """A job that asks for efficiency."""
    made = job(name, **fields)
    return replace(made, trainer=replace(made.trainer, efficiency=efficiency), throughput=throughput)


def size_of(driver, name="j"):
    return decision(driver.plan(), name).now


def deletions(driver):
    return [one for one, _ in driver.cluster.applied if isinstance(one, DeletePod)]


def test_growth_stops_at_the_knee_and_says_what_more_would_bring():
    driver = settled([node("a", 16_000)], [asking("j", throughput=known(), high=16)])
    found = decision(driver.plan(), "j")
    assert (found.now, found.bottleneck) == (5, Bottleneck.EFFICIENCY)
    assert found.message == "1 more would add 16%, 0.67 of a trainer each; 0.7 is asked"


@pytest.mark.parametrize(("efficiency", "size"), [(0.0, 16), (0.4, 14), (0.5, 10), (1.0, 1)])
def test_less_asked_is_more_trainers(efficiency, size):
    driver = settled([node("a", 16_000)], [asking("j", efficiency, throughput=known(), high=16)])
    assert size_of(driver) == size


def test_knee_is_an_allowed_size():
    listed = asking("j", throughput=known(), high=16)
    listed = replace(listed, trainer=replace(listed.trainer, sizes=(1, 3, 9, 16)))
    assert size_of(settled([node("a", 16_000)], [listed])) == 3


def test_what_one_job_leaves_another_takes():
    driver = settled([node("a", 16_000)], [asking("j", throughput=known(), high=16), job("k", high=16)])
    assert (size_of(driver), size_of(driver, "k")) == (5, 11)


def test_trainers_beyond_the_knee_leave_once_it_is_known():
    """In one plan, so that a group pauses once; then the size stays."""
    driver = settled([node("a", 16_000)], [asking("j", high=16)])
    assert size_of(driver) == 16
    driver.cluster.put(asking("j", throughput=known(), high=16))
    plan = driver.plan()
    assert decision(plan, "j").message == "gave back 11 trainers: beyond 5 each adds less than 0.7 of a trainer"
    driver.settle()
    assert size_of(driver) == 5
    assert [one.cause for one in deletions(driver)] == [Cause.EFFICIENCY] * 11


def test_one_step_beyond_the_knee_is_no_reason_to_leave():
    """The sixth brings 0.67 where 0.7 is asked: not worth a resize."""
    driver = settled([node("a", 6_000)], [asking("j", high=16)])
    driver.cluster.put(asking("j", throughput=known(), high=16))
    driver.settle()
    assert size_of(driver) == 6


def test_nobody_leaves_if_the_pause_costs_more():
    driver = settled([node("a", 16_000)], [asking("j", high=16)])
    driver.cluster.put(asking("j", throughput=known(), high=16, resize_cost_s=10_000.0))
    driver.settle()
    assert size_of(driver) == 16


def test_windows_hold_for_what_leaves():
    driver = settled([node("a", 16_000)], [asking("j", high=16)], replace(CALM, down_window_s=30.0))
    driver.cluster.put(asking("j", throughput=known(), high=16))
    plan = driver.plan()
    assert not plan.actions
    assert plan.replan_at_s is not None


def test_job_seen_at_one_size_gets_a_quarter_once_to_see_another():
    """After two minutes at 16; it grows again once 4 has been seen, and it scales."""
    policy = replace(CALM, down_window_s=1.0, up_window_s=1.0)
    driver = settled([node("a", 16_000)], [asking("j", high=16)], policy)
    driver.cluster.put(asking("j", throughput=known(sizes=(16,)), high=16))
    driver.cluster.advance(PROBED_AFTER_S + 1.0)
    found = decision(driver.plan(), "j")
    assert found.message == "gave back 12 trainers: measures its throughput at 4 trainers, which tells how many pay"
    assert found.target == 4
    driver.turn()
    driver.cluster.advance(1.5)
    assert (size_of(driver), driver.plan().actions) == (4, ())
    driver.cluster.put(asking("j", throughput=known(CurveShape(work=1.0), sizes=(4, 16)), high=16))
    driver.settle()
    assert size_of(driver) == 16


@pytest.mark.parametrize("fields", [{"remaining_s": 600.0}, {"efficiency": 0.0}])
def test_job_that_gains_nothing_by_it_is_not_measured(fields):
    driver = settled([node("a", 16_000)], [asking("j", high=16, throughput=known(sizes=(16,)), **fields)])
    driver.cluster.advance(PROBED_AFTER_S + 1.0)
    assert not driver.plan().actions


@pytest.mark.parametrize(("cost_s", "is_measured"), [(413.0, True), (415.0, False)])
def test_job_is_measured_only_if_what_is_learnt_can_make_good_the_two_pauses(cost_s, is_measured):
    """At best 15 of 16 are freed for 600 s; 16 wait, then 4, and 12 are missing for a minute."""
    driver = settled([node("a", 16_000)], [asking("j", high=16)])
    driver.cluster.put(asking("j", throughput=known(sizes=(16,)), high=16, resize_cost_s=cost_s))
    driver.cluster.advance(PROBED_AFTER_S + 1.0)
    assert bool(driver.plan().actions) is is_measured


def test_lower_minimum_is_never_undercut():
    """Even one that is far beyond the knee."""
    driver = settled([node("a", 16_000)], [asking("j", 1.0, throughput=known(), low=8, high=16)])
    assert size_of(driver) == 8


def test_why_answers_with_less_efficiency():
    driver = settled([node("a", 16_000)], [asking("j", throughput=known(), high=16)])
    moment = PlanInputs(view=driver.cluster.view(history=driver.history), policy=CALM, now_s=driver.cluster.now())
    assert answers(moment, "j") == {(ChangeKind.EFFICIENCY,): (6, "trainer.efficiency 0.65 in place of 0.7")}


def test_gain_of_growth_is_counted_in_what_trainers_bring():
    spec = job("j", high=16, resize_cost_s=10.0)
    linear = gain_of(CALM, spec, 4, 8)
    bent = gain_of(CALM, replace(spec, throughput=known()), 4, 8)
    assert linear == 4 * 600.0 - 4 * 10.0
    assert 0.4 * linear < bent < 0.7 * linear


def test_efficiency_is_a_share():
    with pytest.raises(InvalidSpecError, match=r"spec\.trainer\.efficiency"):
        replace(job("j").trainer, efficiency=1.5)


def test_curve_is_not_believed_far_below_what_was_seen():
    """Two saturated sizes say that one trainer would do; the job goes to a quarter of the smaller, and looks again."""
    saturated = CurveShape(work=0.25, serial=4.0, overlap=4.0)
    driver = settled([node("a", 64_000)], [asking("j", high=64)])
    driver.cluster.put(asking("j", throughput=known(saturated, sizes=(32, 64)), high=64))
    driver.settle()
    assert size_of(driver) == 8
