"""Metrics are read off step functions: means, first instants, shortfall, fairness."""

from math import inf

import pytest

from autoscaler.clusters.simulated import PodTimeline
from autoscaler.domain import Resources, Role, Tier
from experiments.arms.pass_setup import ReplicaChange
from experiments.measuring.bound_samples import BoundSample
from experiments.measuring.pass_metrics import jain, measure, shortfall, time_to_wanted
from experiments.measuring.pass_record import JobTimeline, PassRecord, WebTimeline
from experiments.measuring.series import Steps, add, make_steps

NOTHING = Steps()


def steps(*pairs):
    return make_steps(pairs)


def job_take(submitted_s, trainers, *, weight=100, servers=0):
    return JobTimeline(
        submitted_s=submitted_s,
        weight=weight,
        servers_wanted=servers,
        trainers=trainers,
        servers=NOTHING,
        trainable=trainers,
        trained=NOTHING,
        lost=NOTHING,
    )


def trainer_pod(*, created, ended=None, drained=None, why="planner"):
    return PodTimeline(
        name="p",
        owner="j",
        role=Role.TRAINER,
        tier=Tier.SURPLUS,
        node="n",
        requests=Resources(cpu_milli=1_000),
        created_at_s=created,
        bound_at_s=created,
        running_at_s=created + 1,
        terminating_at_s=ended,
        gone_at_s=ended,
        was_drained=drained,
        is_preempted=False,
        end_reason=why,
    )


def take(**fields):
    defaults = {
        "until_s": 100.0,
        "measured_until_s": 100.0,
        "utilisation": steps((0, 50), (50, 90)),
        "gpu_utilisation": None,
        "jobs": {"a": job_take(0.0, steps((10, 4))), "b": job_take(20.0, NOTHING)},
        "web": {},
        "rises": (),
        "pods": (),
        "zero_s": 0.0,
        "removals": {},
        "bounds": (),
    }
    return PassRecord(**{**defaults, **fields})


def test_a_step_holds_until_the_next_one():
    """Values, integrals and means of a step function."""
    series = steps((1, 10), (3, 20))
    assert [series.at(t) for t in (0, 1, 2.9, 3, 99)] == [0, 10, 10, 20, 20]
    assert series.integral(0, 4) == 40
    assert series.mean(2, 4) == 15
    assert series.first(lambda value: value >= 20, 0) == 3
    assert series.first(lambda value: value > 20, 0) == inf


def test_rows_that_say_nothing_new_are_left_out():
    """A change is an instant at which the value changes."""
    assert steps((0, 1), (1, 1), (2, 3)).times_s == (0, 2)


def test_the_sum_of_steps_changes_where_any_of_them_does():
    """Total trainers are the sum over jobs at each instant."""
    total = add([steps((0, 1), (2, 5)), steps((1, 10))])
    assert (total.times_s, total.values) == ((0, 1, 2), (1, 11, 15))


def test_a_job_that_never_started_waits_until_the_end():
    """A mean over jobs must not lose the worst of them."""
    found = measure(take())
    assert found["mean_pending_s"] == (10 + 80) / 2
    assert found["jobs_without_trainer"] == 1
    assert found["mean_utilisation_percent"] == 70
    assert found["trainer_seconds"] == 4 * 90


def test_jain_is_one_for_even_shares_and_counts_weights():
    """1 is even; one of n that has all is 1/n; a job of twice the weight may have twice as many."""
    even = [job_take(0.0, steps((0, 3))), job_take(0.0, steps((0, 3)))]
    assert jain(even, 1.0) == pytest.approx(1)
    assert jain([even[0], job_take(0.0, NOTHING)], 1.0) == pytest.approx(0.5)
    assert jain([even[0], job_take(0.0, steps((0, 6)), weight=200)], 1.0) == pytest.approx(1)


def test_removed_trainers_are_killed_or_drained_and_the_end_of_a_job_is_neither():
    """Only pods that ran and had to leave count."""
    pods = (
        trainer_pod(created=0.0, ended=50.0, drained=True),
        trainer_pod(created=0.0, ended=60.0, drained=False),
        trainer_pod(created=0.0, ended=60.0, drained=True, why="the job is over"),
        trainer_pod(created=0.0),
    )
    found = measure(take(pods=pods, removals={"transfer": 1, "pod": 1}))
    assert (found["trainers_removed"], found["trainers_killed"], found["trainers_drained"]) == (2, 1, 1)
    assert (found["transfers"], found["forced_removals"]) == (1, 1)


def test_shortfall_is_what_was_wanted_and_did_not_run():
    """Pod-seconds; more than wanted does not make up for less."""
    assert shortfall(steps((0, 2), (10, 4)), steps((0, 2), (15, 4)), 0.0, 20.0) == 10
    assert shortfall(steps((0, 2)), steps((0, 5), (10, 1)), 0.0, 20.0) == 10


def test_a_count_that_was_never_reached_counts_until_the_end():
    """One pass of 2017 never got back."""
    assert time_to_wanted(steps((0, 1), (7, 3)), 5.0, 3, 20.0) == 2
    assert time_to_wanted(steps((0, 1)), 5.0, 3, 20.0) == 15


def test_needed_removals_are_what_the_bound_takes_at_each_rise():
    """R sums trainers before each rise minus the pinned bound once the web stands."""
    bounds = tuple(
        BoundSample(at_s=t, pinned_percent=0, free_percent=0, pinned_trainers=n)
        for t, n in ((25.0, 6), (45.0, 3), (55.0, 3), (85.0, 1))
    )
    web = {"w": WebTimeline(wanted=steps((0, 1), (40, 2), (80, 3)), running=steps((0, 1), (42, 2), (82, 3)))}
    rises = tuple(ReplicaChange(web="w", at_s=at_s, before=n, wanted=n + 1) for at_s, n in ((40.0, 1), (80.0, 2)))
    jobs = {"a": job_take(0.0, steps((0, 6), (41, 3), (81, 1)))}
    assert measure(take(bounds=bounds, web=web, rises=rises, jobs=jobs))["removals_needed"] == (6 - 3) + (3 - 1)
