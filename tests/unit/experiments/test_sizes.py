"""The experiment on sizes in small: knees, the trace, Pollux' policy, the bound, and the cases of 2017 (ADR 0268)."""

from dataclasses import replace

import pytest

from autoscaler.throughput import CurveShape
from experiments.sizes.bound import bound_of_mean_s, flow_on_one_machine_s
from experiments.sizes.knees import KINDS, find_knee, list_jobs
from experiments.sizes.pollux import PolluxJob, choose_sizes
from experiments.sizes.trace_pass import ARMS, simulate
from experiments.sizes.workload import CLASSES, LARGEST, draw_trace

NODES = 4


def test_knee_is_found_after_four_sizes():
    """Twelve of each kind; the whole experiment has fifty."""
    results = [find_knee(job, 0.7) for job in list_jobs(12)]
    assert {one.kind for one in results} == set(KINDS)
    assert sum(one.steps_off <= 1 for one in results) >= 0.93 * len(results)
    assert all(len(one.seen) == 4 for one in results)


def test_trace_has_the_published_mixture():
    trace = draw_trace(5, jobs=2_000)
    small = sum(job.gpu_hours <= 1.0 for job in trace) / len(trace)
    assert small == pytest.approx(CLASSES[0][0], abs=0.03)
    by_hour = [sum(hour * 3_600 <= job.at_s < (hour + 1) * 3_600 for job in trace) for hour in range(8)]
    assert by_hour[3] == max(by_hour)
    assert by_hour[3] / by_hour[0] == pytest.approx(3.0, rel=0.2)
    assert draw_trace(5, jobs=2_000) == trace


@pytest.mark.parametrize("name", ["EDL", "EDL, by progress", "EDL, efficiency 0.5", "Pollux, with EDL's pause"])
def test_no_arm_beats_the_bound(name):
    """Every job ends, under every arm, and the same pass gives the same times."""
    trace = [replace(job, gpu_hours=min(job.gpu_hours, 2.0)) for job in draw_trace(3, jobs=8, hours=0.5)]
    arm = next(one for one in ARMS if one.name == name)
    times = simulate(trace, arm, nodes=NODES)
    assert len(times) == len(trace)
    assert sum(times.values()) / len(times) >= bound_of_mean_s(trace, NODES * 4)
    assert simulate(trace, arm, nodes=NODES) == times


def test_shortest_remaining_first_on_one_machine():
    """A job of four GPU-hours is interrupted by one of a GPU-hour: 5 and 1 hours on one GPU."""
    long, short = draw_trace(1, jobs=2)
    trace = [replace(long, at_s=0.0, gpu_hours=4.0), replace(short, at_s=3_600.0, gpu_hours=1.0)]
    assert flow_on_one_machine_s(trace, 1) == pytest.approx((5 + 1) * 3_600.0)


def test_pollux_gives_gpus_to_those_who_gain():
    """A job that scales and one that does not; a restart is avoided where it gains little."""
    scales = PolluxJob(curve=CurveShape(work=1.0), submitted_s=0.0)
    bent = PolluxJob(curve=CurveShape(work=1.0, serial=0.5), submitted_s=0.0)
    sizes = choose_sizes({"a": scales, "b": bent}, 8, 100.0, 30.0)
    assert sizes["a"] + sizes["b"] == 8
    assert sizes["a"] > 1 < sizes["b"]
    alone = choose_sizes({"a": scales}, 64, 100.0, 30.0)
    assert alone == {"a": LARGEST}
    young = replace(scales, size=15)
    assert choose_sizes({"a": young}, 64, 31.0, 30.0) == {"a": 15}
    assert choose_sizes({"a": young}, 64, 3e4, 30.0) == {"a": 16}
