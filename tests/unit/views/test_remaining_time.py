"""The time that a job still takes, as every command and the page have it: read off its document, and in words."""

import json
from dataclasses import asdict

import pytest

from autoscaler.page.answers.json_answers import encode_view
from autoscaler.throughput.remaining_time import RemainingTime
from autoscaler.views.jobs.job_view import job_view
from autoscaler.views.jobs.remaining_time import format_remaining, remaining_of, work_of
from autoscaler.views.pages.now_view import now_view
from tests.harness.page_cluster import demo_documents, job, progress

REMAINING = {"trainers": 4, "seconds": 720.0, "shortestSeconds": 480.0, "longestSeconds": 1200.0}


def told(**changes):
    return job("x", ready=2, target=4, progress=progress(remaining=REMAINING | changes, secondsLeft=60))


def test_every_field_of_the_page_is_that_of_the_job():
    documents = demo_documents()
    shown = json.loads(encode_view(now_view(documents), documents))["jobs"]
    for one, document in zip(shown, documents.jobs, strict=True):
        status = document["status"]["progress"].get("remaining")
        expected = status and {
            "trainers": status["trainers"],
            "seconds": status["seconds"],
            "shortest_s": status["shortestSeconds"],
            "longest_s": status["longestSeconds"],
        }
        assert one["progress"]["remaining"] == expected
    assert any(one["progress"]["remaining"] for one in shown)


def test_job_view_has_the_time_at_the_wanted_size_beside_that_at_the_present_pace():
    found = job_view(told()).progress
    assert asdict(found.remaining) == {"trainers": 4, "seconds": 720.0, "shortest_s": 480.0, "longest_s": 1200.0}
    assert found.eta_s == 60.0


@pytest.mark.parametrize(
    "changes",
    [
        {"trainers": 3},  # of an earlier plan
        {"trainers": 0},
        {"seconds": float("nan")},
        {"seconds": float("inf"), "longestSeconds": float("inf")},
        {"seconds": -1.0, "shortestSeconds": -2.0},
        {"shortestSeconds": 800.0},
        {"longestSeconds": "long"},
    ],
)
def test_what_is_no_time_or_of_another_size_is_not_known(changes):
    assert remaining_of(told()) is not None
    assert remaining_of(told(**changes)) is None


@pytest.mark.parametrize("wrong", [{"remaining": None}, {"remaining": [1]}, {"remaining": {}}, {}])
def test_a_document_without_a_time_has_none(wrong):
    assert remaining_of(job("x", progress=progress(**wrong))) is None
    assert remaining_of({"status": {"progress": wrong}}) is None


def test_work_is_what_is_neither_done_nor_in_quarantine():
    work = work_of(job("x", ready=3, progress=progress("40.0%", samplesQuarantined=500)))
    assert (work.samples, work.samples_per_s, work.trainers, work.servers) == (5_500.0, 100.0, 3, 0)


@pytest.mark.parametrize("wrong", [{"samplesTotal": -5}, {"percent": "nan%"}, {"percent": "-inf%"}, {"percent": "x"}])
def test_work_of_impossible_progress_is_not_known(wrong):
    """And the bar shows nothing that is done."""
    document = job("x", progress=progress() | wrong)
    found = job_view(document).progress
    assert work_of(document) is None
    assert found is None or not found.share


@pytest.mark.parametrize(
    ("seconds", "shortest_s", "longest_s", "words"),
    [
        (720.0, 720.0, 720.0, "12m"),
        (720.0, 480.0, 1200.0, "12m (8-20m)"),
        (720.0, 600.0, 1200.0, "12m (10-20m)"),
        (60.0, 40.0, 90.0, "60s (40-90s)"),
        (3600.0, 1800.0, 7200.0, "1h0m (30m-2h0m)"),
        (0.0, 0.0, 0.0, "0s"),
    ],
)
def test_words(seconds, shortest_s, longest_s, words):
    found = RemainingTime(trainers=1, seconds=seconds, shortest_s=shortest_s, longest_s=longest_s)
    assert format_remaining(found) == words
    assert not format_remaining(None)
