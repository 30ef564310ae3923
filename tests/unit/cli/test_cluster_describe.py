"""`edl describe` on a cluster: what is said of a job."""

import pytest

from autoscaler.clusters.kubernetes.api import kinds
from tests.unit.cli.kube_place import STATUS, event, stage, status, table


def test_describe_answers_why_first(digits):
    """State, sizes, the bottleneck, progress; then pods, resizes and events."""
    made, place = digits
    made.make(kinds.EVENTS, event("Scaled", "from 2 to 3"))
    text = "\n".join(place.describe("tj", "digits"))
    assert "State:       Ready; " in text
    assert "Trainers:    2 ready, 3 wanted (2 to 8 allowed): 2 core" in text
    assert "Why:         NodeFit: n1 is full" in text
    assert "epoch 1 of 3, 1,500 of 6,000 samples committed, 25.0%, checkpoint " in text
    assert text.index("Why:") < text.index("Pods:") < text.index("Resizes:") < text.index("Events:")
    assert "2 -> 3     growth by edl  room" in text
    assert "web-1" not in text


@pytest.mark.parametrize(
    ("condition", "line"),
    [
        (("Progressing", "False", "Problem"), "Training:    Problem: so"),
        (("Progressing", "Unknown", "MasterUnreachable"), "Training:    MasterUnreachable: so"),
        (("CheckpointsCurrent", "False", "CommitFails"), "Checkpoints: CommitFails: so"),
        (("CheckpointsCurrent", "False", "NotActive"), ""),
        (("Progressing", "True", "Training"), ""),
    ],
)
def test_describe_shows_what_keeps_a_job_from_training_and_from_checkpoints(condition, line):
    """It was told by kubectl alone: whoever asked `edl` saw a job that was well."""
    kind, truth, reason = condition
    with stage() as (made, place):
        made.make_job(told=status({"type": kind, "status": truth, "reason": reason}))
        lines = [one for one in place.describe("tj", "digits") if one.startswith(("Training:", "Checkpoints:"))]
    assert lines == ([line] if line else [])


def test_describe_shows_what_a_master_tells_of_a_job_that_trains():
    """Data that differ, and trainers that hang: the job goes on, and its Progressing is true."""
    message = "phase of the master: training; t0 and t1 have read other data at position 4"
    with stage() as (made, place):
        made.make_job(told=status({"type": "Progressing", "status": "True", "reason": "Training", "message": message}))
        lines = [one for one in place.describe("tj", "digits") if one.startswith("Training:")]
    assert lines == ["Training:    t0 and t1 have read other data at position 4"]


def test_describe_tells_the_step_and_the_last_pause_of_a_group():
    """And nothing of steps where trainers share out data or use servers."""
    progress = STATUS["progress"] | {
        "step": 483,
        "steps": 1380,
        "samplesPerSecond": 4200,
        "resizePauseMilliseconds": 83,
        "replicas": {"step": 480, "trainers": 4, "digest": "d"},
    }
    with stage() as (made, place):
        made.make_job(told=status(progress=progress))
        text = "\n".join(place.describe("tj", "digits"))
    line = "Group:       step 483 of 1,380, the last resize paused it for 83 ms, 4 equal replicas at step 480"
    assert line in text
    assert "25.0%, 4,200 samples/s, checkpoint" in text
    with stage() as (made, place):
        made.make_job(told=status())
        assert "Group:" not in "\n".join(place.describe("tj", "digits"))


@pytest.mark.parametrize(
    ("trainers", "line"),
    [(3, "12m (8-20m) with 3 trainers"), (2, "unknown")],
)
def test_get_and_describe_tell_how_long_the_job_takes_at_the_size_that_is_wanted(trainers, line):
    """Of another size, of an earlier plan, it is not known; -o json has what was told."""
    remaining = {"trainers": trainers, "seconds": 720.0, "shortestSeconds": 480.0, "longestSeconds": 1200.0}
    with stage() as (made, place):
        made.make_job(told=status(progress=STATUS["progress"] | {"remaining": remaining}))
        assert f"Remaining:   {line}" in place.describe("tj", "digits")
        heading, row = table(place, "tj")
        column = slice(heading.index("REMAINING"), heading.index("CHECKPOINT"))
        assert row[column].strip() == {3: "12m (8-20m)", 2: "-"}[trainers]
        assert place.get("tj", "digits").objects[0]["status"]["progress"]["remaining"] == remaining


def test_describe_tells_no_remaining_time_of_a_job_that_ended():
    with stage() as (made, place):
        made.make_job(told=status({"type": "Completed", "status": "True"}))
        assert "Remaining:" not in "\n".join(place.describe("tj", "digits"))


def test_describe_and_wide_tables_show_what_the_script_reported():
    """`Session.report`; nothing where it reports nothing, or where an object holds what is no number."""
    progress = STATUS["progress"] | {"metrics": {"loss": 0.123, "accuracy": 0.97, "odd": "high"}}
    with stage() as (made, place):
        made.make_job(told=status(progress=progress))
        assert "Metrics:     accuracy=0.97, loss=0.123 (" in "\n".join(place.describe("tj", "digits"))
        assert "accuracy=0.97, loss=0.123" in table(place, "tj", output="wide")[1]
    with stage() as (made, place):
        made.make_job(told=status())
        assert "Metrics:" not in "\n".join(place.describe("tj", "digits"))


def test_describe_shows_no_progress_before_a_data_set_is_declared():
    """A job that starts trains nothing: no "epoch 0 of 0"."""
    with stage() as (made, place):
        made.make_job(told=status(progress={"epoch": 0, "epochs": 0, "samplesCommitted": 0, "samplesTotal": 0}))
        assert "Progress:" not in "\n".join(place.describe("tj", "digits"))


def test_describe_says_for_how_long_a_job_has_waited():
    """As its operators kept it; suspended time is not in it."""
    for told, words in (
        ({"waitingSince": "2026-01-02T03:03:05Z"}, ", has waited for free capacity for "),
        ({"waitingSince": "2026-01-02T03:03:05Z", "queuePosition": 3}, ", number 3 of those that wait\n"),
        ({}, " old\n"),
    ):
        with stage() as (made, place):
            made.make_job(told=status(**told))
            text = "\n".join(place.describe("tj", "digits"))
        state = next(line for line in text.splitlines() if line.startswith("State:"))
        assert words in f"{state}\n"


def test_describe_says_what_other_number_of_servers_would_be_better():
    """While it trains: a share of time that was measured before says nothing of a job that stands still."""
    measured = {
        "servers": {"ready": 2, "target": 2},
        "progress": {**STATUS["progress"], "waitingPercent": 50},
    }
    for is_training in (True, False):
        with stage() as (made, place):
            told = status({"type": "Progressing", "status": str(is_training)}, **measured)
            made.make_job(told=told, server={"minReplicas": 2, "maxReplicas": 4})
            hints = [line for line in place.describe("tj", "digits") if line.startswith("Hint:")]
        told = "Hint:        trainers wait for servers 50% of their time; 4 in place of 2: at most +33%"
        assert hints == ([told] if is_training else [])


@pytest.mark.parametrize(
    ("spec", "told", "words"),
    [
        (
            {"minReplicas": 1, "maxReplicas": 4, "trainersPerServer": 2},
            {},
            "(1 to 4 allowed, one for every 2 trainers)",
        ),
        ({"minReplicas": 1, "maxReplicas": 4, "replicas": 3}, {}, "(pinned to 3 of 1 to 4)"),
        ({"minReplicas": 1, "maxReplicas": 1}, {}, "1 ready, 2 wanted (always 1)"),
        ({"minReplicas": 1, "maxReplicas": 1}, {"leaving": 1}, "; 1 is leaving"),
        ({"minReplicas": 1, "maxReplicas": 1}, {"draining": 2}, "; 2 are draining"),
    ],
)
def test_describe_tells_how_many_servers_and_why(spec, told, words):
    """Pinned, fixed, and while their share of the model is on its way."""
    with stage() as (made, place):
        made.make_job(told=status(servers={"ready": 1, "target": 2, **told}), server=spec)
        (line,) = [line for line in place.describe("tj", "digits") if line.startswith("Servers:")]
    assert line.endswith(words)


def test_a_job_without_servers_says_nothing_of_them(digits):
    """No zeros that mean nothing; and no line is longer than a terminal."""
    _, place = digits
    lines, _, _ = "\n".join(place.describe("tj", "digits")).partition("Pods:")
    assert "Servers:" not in lines
    assert max(map(len, lines.splitlines())) <= 100
    heading, row = table(place, "tj")
    assert row[heading.index("SERVERS")] == "-"


def test_describe_says_that_a_ratio_is_measured():
    with stage() as (made, place):
        made.make_job(
            told=status(servers={"ready": 2, "target": 2, "trainersPerServer": 3}),
            server={"maxReplicas": 4, "trainersPerServer": "auto"},
        )
        text = "\n".join(place.describe("tj", "digits"))
    assert (
        "Servers:     2 ready, 2 wanted (1 to 4 allowed, one for every 3 trainers, "
        "as measured by how long trainers wait for them)" in text
    )


@pytest.mark.parametrize(("single_copies", "words"), [(0, "2 copies of each bucket"), (9, "9 buckets have one copy")])
def test_describe_tells_copies(single_copies, words):
    with stage() as (made, place):
        servers = {"ready": 2, "target": 2, "copies": 2, "singleCopies": single_copies}
        made.make_job(told=status(servers=servers), server={"maxReplicas": 2, "minReplicas": 2, "copies": 2})
        text = "\n".join(place.describe("tj", "digits"))
    assert f"Servers:     2 ready, 2 wanted (always 2); {words}" in text


def test_describe_counts_buckets_in_transit():
    with stage() as (made, place):
        servers = {"ready": 2, "target": 2, "movingBuckets": 9}
        made.make_job(told=status(servers=servers), server={"maxReplicas": 2, "minReplicas": 2})
        text = "\n".join(place.describe("tj", "digits"))
    assert "Servers:     2 ready, 2 wanted (always 2); 9 buckets are moving" in text


def test_a_job_that_no_operator_has_seen_says_so():
    """In place of zeros that nobody has counted."""
    with stage() as (made, place):
        made.make_job(told=None)
        text = "\n".join(place.describe("tj", "digits"))
    assert "no operator has reconciled it yet" in text
    assert "ready" not in text


def test_describe_tells_servers_that_go():
    """Ready ones among them: they serve until what they hold has been moved."""
    with stage() as (made, place):
        made.make_job(
            told=status(servers={"ready": 3, "target": 2, "draining": 1, "leaving": 1}), server={"maxReplicas": 4}
        )
        text = "\n".join(place.describe("tj", "digits"))
        assert table(place, "tj")[1].split()[5] == "3/2"
    assert "3 ready, 2 wanted (1 to 4 allowed, one for every 4 trainers); 1 is draining; 1 is leaving" in text


def test_describe_tells_both_roles():
    """How many servers there are, how many there shall be, and what decides it; resizes say whose they are."""
    resizes = [STATUS["resizes"][0], STATUS["resizes"][0] | {"role": "server", "from": 1, "to": 2}]
    with stage() as (made, place):
        told = status(servers={"ready": 1, "target": 2}, resizes=resizes)
        made.make_job(told=told, server={"maxReplicas": 3, "trainersPerServer": 2})
        text = "\n".join(place.describe("tj", "digits"))
        assert table(place, "tj")[1].split()[5] == "1/2"
    assert "Servers:     1 ready, 2 wanted (1 to 3 allowed, one for every 2 trainers)" in text
    assert "2 -> 3     growth" in text
    assert "1 -> 2     servers: growth" in text
