"""A job as people see it: every field is that of its document."""

import math

import pytest

from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.views.jobs.job_view import job_view, job_views
from autoscaler.views.jobs.reported_metrics import MOST_METRICS, MetricView
from tests.harness.page_cluster import NOW_S, condition, demo_documents, job, progress


def test_eta_is_the_time_that_the_status_tells():
    """The percentage has one decimal: of a million samples that are nearly trained it is 100.0 %, and 40 s are left."""
    told = progress("100.0%", samplesTotal=1_000_000, samplesPerSecond=10, secondsLeft=40)
    assert job_view(job("x", progress=told)).progress.eta_s == 40.0


@pytest.mark.parametrize("told", [{}, {"secondsLeft": None}, {"secondsLeft": "40"}, {"secondsLeft": -40.0}])
def test_eta_is_unknown_where_the_status_tells_no_time(told):
    found = job_view(job("x", progress=progress(**told))).progress
    assert found is not None
    assert found.eta_s is None


def test_a_job_that_no_operator_has_seen_is_new_and_nothing_else():
    """No zero stands for what is not known."""
    document = job("x")
    del document["status"]
    found = job_view(document)
    assert (found.state, found.is_reconciled, found.is_waiting, found.progress) == ("New", False, False, None)


def test_a_job_without_a_trainer_stands_still_since_an_instant():
    """Its core pods may be ready: "Running" said that all was well (ADR 0261)."""
    document = job("x")
    document["status"] |= {"standstillSince": to_time(NOW_S - 90)}
    assert (job_view(document).state, job_view(document).standstill_since_s) == ("Standing still", NOW_S - 90)
    assert job_view(job("x")).standstill_since_s is None


def test_jobs_that_ended_come_last():
    over = job("a", age_s=9_000, conditions=[condition("Completed", message="done")])
    found = job_views(demo_documents())
    assert [one.name for one in found] == ["digits-a", "digits-b"]
    assert job_view(over).state == "Completed"


def test_troubles_are_told_and_health_is_not():
    healthy = condition("Progressing", status="False", reason="Waiting", message="it waits")
    trouble = condition("Degraded", reason="BelowMinimum", message="one trainer is missing")
    found = job_view(job("x", conditions=[healthy, trouble]))
    assert [(one.condition, one.message) for one in found.problems] == [("Degraded", "one trainer is missing")]


def test_throughput_has_the_measured_points_and_the_knee():
    found = job_views(demo_documents())[0].throughput
    assert found is not None
    assert found.measured == ((1, 400.0), (2, 760.0), (3, 1050.0))
    assert (found.now, found.knee) == (3, 5)


def test_metrics_are_those_of_the_status_by_name():
    """What `Session.report` was given last; no number, no metric, and of too many the first."""
    told = {"loss": 0.123, "accuracy": 1, "odd": "high", "is_good": True, "nan": math.nan}
    found = job_view(job("x", progress={"metrics": told})).metrics  # a script may report before it declares data
    assert found == (MetricView(name="accuracy", value=1), MetricView(name="loss", value=0.123))
    many = {f"metric-{number:03}": number for number in range(100)}
    assert len(job_view(job("x", progress={"metrics": many})).metrics) == MOST_METRICS
    assert job_view(job("x", progress={"metrics": ["loss"]})).metrics == ()


def test_a_status_of_wrong_types_is_read_as_empty():
    """A document may hold anything; the page shows the rest."""
    document = job("x")
    document["status"] |= {"trainers": [1], "progress": "none", "resizes": "no", "throughput": {"points": 5}}
    found = job_view(document)
    assert (found.trainers.ready, found.progress, found.resizes, found.throughput) == (0, None, (), None)
    assert found.created_at_s == NOW_S - 600
