"""Fairness by progress: what others leave of their parts speeds all jobs up alike (ADR 0292)."""

from dataclasses import replace
from itertools import pairwise

import pytest

from autoscaler.domain import Admission, Bottleneck, Fairness
from autoscaler.planner.working_copy.progress import LEAST_GAIN, progress_scale, speeds_of
from autoscaler.throughput import CurveShape, FittedCurve
from tests.unit.planner.setups import CALM, decision, job, node, settled

BY_PROGRESS = replace(CALM, fairness=Fairness.PROGRESS, transfers_per_minute=1_000)
BY_SHARE = replace(BY_PROGRESS, fairness=Fairness.JOB)


def seen(*sizes, **parts):
    """A curve that was observed at these sizes."""
    shape = CurveShape(work=1.0, **parts)
    return FittedCurve(expected=shape, favourable=shape, sizes=sizes)


BENT = seen(1, 2, 4, serial=0.1)
STUCK = seen(1, 2, 4, serial=10.0)


def sizes(driver):
    return {decision.job: decision.now for decision in driver.plan().decisions}


def test_jobs_that_can_have_their_parts_have_them():
    """Each is as fast as on its part alone, whatever its curve: no job is slowed by another one."""
    jobs = [job("bent", high=32, throughput=BENT), job("even", high=32)]
    driver = settled([node("n", 16_000)], jobs, BY_PROGRESS)
    assert sizes(driver) == {"bent": 8, "even": 8}
    assert [decision(driver.plan(), name).progress for name in ("bent", "even")] == [1.0, 1.0]


def test_what_a_small_job_leaves_speeds_the_others_up_alike():
    """By share the two have half of it each, and the one that scales badly gains less from it."""
    jobs = [job("bent", high=32, throughput=BENT), job("even", high=32), job("small", high=1)]
    nodes = [node("n", 25_000)]
    assert sizes(settled(nodes, jobs, BY_SHARE)) == {"bent": 12, "even": 12, "small": 1}
    driver = settled(nodes, jobs, BY_PROGRESS)
    found = sizes(driver)
    assert found["bent"] > found["even"] > 25 / 3
    faster = [decision(driver.plan(), name).progress for name in ("bent", "even")]
    assert max(faster) - min(faster) <= 3 / 25  # a trainer of the even one, whose part is 25 / 3
    assert min(faster) > 1.0


@pytest.mark.parametrize(
    "queued",
    [job("queued", weight=900, cpu_milli=100_000), job("queued", weight=900, low=40, high=40)],
    ids=["fits on no node", "waits"],
)
def test_a_job_that_gets_nothing_makes_no_part_smaller(queued):
    """As by share, where a queued job changes nobody's size: the parts are those of the jobs that run."""
    jobs = [job("bent", high=32, throughput=BENT), job("even", high=32), job("small", high=1)]
    nodes = [node("n", 25_000)]
    alone, beside = settled(nodes, jobs, BY_PROGRESS), settled(nodes, [*jobs, queued], BY_PROGRESS)
    assert sizes(beside) == {**sizes(alone), "queued": 0}
    for name in ("bent", "even", "small"):
        assert decision(beside.plan(), name).progress == decision(alone.plan(), name).progress
    assert sizes(settled(nodes, [*jobs, queued], BY_SHARE)) == {**sizes(settled(nodes, jobs, BY_SHARE)), "queued": 0}


@pytest.mark.parametrize("admission", Admission)
def test_the_plan_that_starts_a_job_gives_it_its_part(admission):
    """So the next plan, in whose view the job runs, finds everybody's progress as this one left it (A5)."""
    policy = replace(BY_PROGRESS, admission=admission)
    driver = settled([node("n", 11_000)], [job("bent", high=5, throughput=BENT), job("even", high=5)], policy)
    driver.cluster.put(job("new", weight=400, high=1))
    starts = driver.turn()
    assert sizes(driver) == {"bent": 5, "even": 5, "new": 1}
    after = driver.plan()
    for name in ("bent", "even", "new"):
        assert decision(starts, name).progress == decision(after, name).progress
    assert decision(starts, "even").progress == round(5 / (11 / 6), 3)


def test_without_curves_the_order_is_that_of_shares():
    """Of a job that was seen at one size nothing is known, and it counts as scaling perfectly."""
    jobs = [job("a", high=32, weight=300, throughput=seen(4)), job("b", high=32), job("c", low=2, high=3)]
    nodes = [node("n", 21_000)]
    assert sizes(settled(nodes, jobs, BY_PROGRESS)) == sizes(settled(nodes, jobs, BY_SHARE))


def test_job_that_gets_no_faster_does_not_take_the_cluster():
    """Trainers that bring nothing count as a tenth of one each: the other job keeps more than its part."""
    jobs = [job("stuck", high=64, throughput=STUCK), job("even", high=64), job("small", high=1)]
    found = sizes(settled([node("n", 48_000)], jobs, BY_PROGRESS))
    assert found["even"] > 48 / 3
    assert found["stuck"] + found["even"] == 47


def test_weight_is_a_larger_part():
    """Three quarters of 16 trainers, at which a job of weight 300 is as fast as on its part alone."""
    jobs = [job("bent", high=32, weight=300, throughput=BENT), job("even", high=32)]
    driver = settled([node("n", 16_000)], jobs, BY_PROGRESS)
    assert sizes(driver) == {"bent": 12, "even": 4}
    assert decision(driver.plan(), "bent").progress == 1.0


def test_why_says_that_progress_decides():
    """The bottleneck is that of fairness; its text names the measure."""
    jobs = [job("bent", high=32, throughput=BENT), job("even", high=32)]
    found = decision(settled([node("n", 16_000)], jobs, BY_PROGRESS).plan(), "even")
    assert found.bottleneck is Bottleneck.FAIR_SHARE
    assert found.message == "could grow by 1: by progress the capacity is the fair share of bent"
    assert decision(settled([node("n", 16_000)], jobs, BY_SHARE).plan(), "even").progress is None


def test_a_new_curve_moves_trainers():
    """What a job shows of itself counts from the next plan on."""
    driver = settled([node("n", 25_000)], [job("a", high=32), job("b", high=32), job("small", high=1)], BY_PROGRESS)
    assert sizes(driver) == {"a": 12, "b": 12, "small": 1}
    driver.cluster.put(replace(driver.cluster.jobs["a"], throughput=BENT))
    driver.settle()
    assert sizes(driver)["a"] > sizes(driver)["b"]


@pytest.mark.parametrize("curve", [BENT, STUCK, seen(1, 2, serial=0.1, exchange=0.2)], ids=["bent", "stuck", "slower"])
@pytest.mark.parametrize("fair_size", [0.4, 3.5, 16.0, 1_000.0])
def test_progress_rises_with_every_trainer(curve, fair_size):
    """Also where trainers make a job slower, and for parts of less than one trainer and of more than it may have."""
    spec = job("j", low=2, high=16, throughput=curve)
    scale = progress_scale(spec, unit=1_000, total_weight=100, share_unit=round(fair_size * 100_000))
    assert scale.fair_size == fair_size
    found = [scale.attained(size) for size in range(32)]
    assert all(after > before for before, after in pairwise(found))
    assert scale.relative(0) == 0.0


def test_speeds_are_those_of_the_curve_but_for_what_brings_least():
    """Amdahl's curve up to where a trainer adds a tenth of what the first did, then a straight line."""
    spec = job("j", high=12).trainer
    curve = CurveShape(work=1.0, serial=1.0)
    found = speeds_of(curve, spec, None)
    of_one = curve.samples_per_s(1)
    assert found[:3] == (0.0, of_one, curve.samples_per_s(2))
    assert found[12] - found[11] == pytest.approx(LEAST_GAIN * of_one)


def test_a_trainer_that_no_node_may_take_has_no_progress():
    """Nothing of the cluster is its part, so no throughput relates to it."""
    spec = replace(job("j"), throughput=BENT)
    scale = progress_scale(spec, unit=0, total_weight=100, share_unit=1)
    assert (scale.fair_size, scale.attained(3), scale.relative(3)) == (0.0, 0, 0.0)
