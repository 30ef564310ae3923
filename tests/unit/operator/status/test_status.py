"""A job's status: counts, names, progress, failures and resizes, in the definition's own schema."""

from dataclasses import replace
from functools import cache
from math import inf, nan

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.jobs.life_events import FailureReason
from autoscaler.jobs.lifecycle import JobEnding, Life, LifeStage
from autoscaler.jobs.throughput_watch import ThroughputWatch
from autoscaler.jobs.trainer_ledger import TrainerVerdict, WorkState
from autoscaler.operator.job.idle_status import idle_in_status
from autoscaler.operator.job.job_record import (
    alerted_uncommitted_since_s,
    facts_of,
    idle_trainers_of,
    next_reconcile_at_s,
)
from autoscaler.operator.status.conditions import ConditionType, false_condition, true_condition
from autoscaler.operator.status.job_status import differs_only_in_progress, main_reason
from autoscaler.operator.status.status_inputs import PlanReport, ResizeAuthor, ResizeRecord
from autoscaler.throughput import CurveShape, FittedCurve
from autoscaler.throughput.remaining_time import RemainingTime
from autoscaler.views.jobs.remaining_time import remaining_of
from master.api.master_status import JobPhase
from tests.cluster.trainingjobs import DEFINITION
from tests.unit.clusters.kubernetes.raw_objects import kube_job
from tests.unit.operator.status.status_cases import (
    NOW_S,
    OFFSET_S,
    PROGRESS,
    RUNNING,
    decision,
    pod,
    seen,
    status,
    told,
)


def test_counts_and_names_are_those_of_the_pods():
    trainers = status(seen(*RUNNING))["trainers"]
    assert (trainers["ready"], trainers["target"], trainers["core"], trainers["surplus"]) == (2, 3, 2, 1)
    assert trainers["names"] == ["digits-trainer-0", "digits-trainer-1", "digits-trainer-2"]
    assert "idle" not in trainers


def test_trainers_that_do_no_work_are_read_back_as_the_planner_has_them():
    """Those that may be given away or replaced, by the time of day; one that is only late is none of them."""
    still = (
        TrainerVerdict(name="digits-trainer-1", state=WorkState.IDLE, since_s=700.0, gives=True),
        TrainerVerdict(name="digits-trainer-2", state=WorkState.HUNG, since_s=705.0, is_replaceable=True),
        TrainerVerdict(name="digits-trainer-0", state=WorkState.HUNG, since_s=990.0),
    )
    inputs = seen(*RUNNING, record={"still": still})
    found = idle_in_status(status(inputs), namespace=inputs.job.namespace)
    assert found == tuple(replace(one, since_s=one.since_s - OFFSET_S) for one in idle_trainers_of(inputs.record))
    assert [one.is_hung for one in found] == [False, True]


def test_progress_is_told_as_far_as_it_is_known():
    what = seen(*RUNNING, record={"progress": PROGRESS, "progress_at_s": NOW_S})
    progress = status(what)["progress"]
    assert (progress["samplesCommitted"], progress["samplesTotal"], progress["percent"]) == (40, 200, "25.0%")
    assert progress["lastCheckpointTime"] == "2023-11-14T22:29:30Z"
    assert "progress" not in status(seen(*RUNNING))
    assert not {"step", "samplesPerSecond", "resizePauseMilliseconds"} & set(progress)


def test_progress_of_a_group_tells_step_rate_and_pause():
    """The rate with two digits, since each change of the status is a write."""
    group = replace(PROGRESS, step=7, steps=40, samples_per_s=1234.5, resize_pause_s=0.0834)
    progress = status(seen(*RUNNING, record={"progress": group, "progress_at_s": NOW_S}))["progress"]
    assert (progress["step"], progress["steps"]) == (7, 40)
    assert (progress["samplesPerSecond"], progress["resizePauseMilliseconds"]) == (1200, 83)
    odd = replace(group, samples_per_s=inf, resize_pause_s=nan)
    told = status(seen(*RUNNING, record={"progress": odd, "progress_at_s": NOW_S}))["progress"]
    assert not {"samplesPerSecond", "resizePauseMilliseconds"} & set(told)


def test_remaining_time_is_that_of_the_size_that_is_decided():
    """By the present rate at the present size, by the curve at another one; views read it back."""
    shapes = (CurveShape(work=0.01, serial=0.25), CurveShape(work=0.01, serial=0.125))
    curve = FittedCurve(expected=shapes[0], favourable=shapes[1], sizes=(1, 2))
    training = replace(PROGRESS, total=20_200, quarantined=150, samples_per_s=40.0, training=3)
    record = {"progress": training, "progress_at_s": NOW_S}
    found = status(seen(*RUNNING, record=record))
    same = {"trainers": 3, "seconds": 500.0, "shortestSeconds": 500.0, "longestSeconds": 500.0}
    assert found["progress"]["remaining"] == same
    assert remaining_of({"status": found}) == RemainingTime(
        trainers=3, seconds=500.0, shortest_s=500.0, longest_s=500.0
    )
    grown = {"plan_report": PlanReport(decision=decision(target=6))}
    assert "remaining" not in status(seen(*RUNNING, record=record, **grown))["progress"]
    record |= {"throughput": ThroughputWatch(curve=curve)}
    told = status(seen(*RUNNING, record=record, **grown))["progress"]["remaining"]
    assert told == {"trainers": 6, "seconds": 360.0, "shortestSeconds": 320.0, "longestSeconds": 400.0}


@pytest.mark.parametrize(
    "changes", [{"samples_per_s": nan}, {"samples_per_s": inf}, {"samples_per_s": -1.0}, {"total": 0}]
)
def test_remaining_time_that_is_not_known_is_left_out(changes):
    training = replace(PROGRESS, **{"training": 3, "samples_per_s": 40.0} | changes)
    assert "remaining" not in status(seen(*RUNNING, record={"progress": training, "progress_at_s": NOW_S}))["progress"]


def test_job_that_stops_has_no_remaining_time():
    training = replace(PROGRESS, training=3, samples_per_s=40.0)
    what = seen(*RUNNING, life=failed_life(), record={"progress": training, "progress_at_s": NOW_S})
    assert "remaining" not in status(what)["progress"]


def test_progress_shows_what_the_script_reported():
    """To three digits, since each change is a write; what a trainer sends is bounded, and no control character."""
    metrics = (("accuracy", 0.97123), ("bad\x1b" + "n" * 90, 2.0), ("odd", nan), ("steps", 123456.0))
    told = replace(PROGRESS, metrics=metrics)
    shown = status(seen(*RUNNING, record={"progress": told, "progress_at_s": NOW_S}))["progress"]["metrics"]
    assert shown == {"accuracy": 0.971, "bad\ufffd" + "n" * 60: 2.0, "steps": 123000.0}
    many = replace(PROGRESS, metrics=tuple((f"m{number:02}", 1.0) for number in range(40)))
    shown = status(seen(*RUNNING, record={"progress": many, "progress_at_s": NOW_S}))["progress"]["metrics"]
    assert list(shown) == [f"m{number:02}" for number in range(16)]


def test_a_job_that_waits_has_its_place_in_the_queue():
    """A change of it alone is written seldom, as progress is."""
    told = status(seen(plan_report=PlanReport(decision=decision(), queue_position=3)))
    assert told["queuePosition"] == 3
    moved = status(seen(plan_report=PlanReport(decision=decision(), queue_position=2)))
    assert differs_only_in_progress(told, moved)
    assert "queuePosition" not in status(seen())
    over = seen(life=failed_life(), plan_report=PlanReport(decision=decision(), queue_position=3))
    assert "queuePosition" not in status(over)


def failed_life():
    return Life(
        policy=kube_job().spec.run_policy, stage=LifeStage.STOPPING, ending=JobEnding.FAILED, started_at_s=900.0
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 980.0),  # the last checkpoint
        ({"checkpoint_at_s": -inf}, 900.0),  # nobody knows of one: its start
        ({"checkpoint_at_s": 10.0}, 900.0),  # of before its resume
        ({"progress": None}, 980.0),  # this operator has heard nothing yet
        ({"progress": replace(PROGRESS, done=40)}, None),
        ({"life": failed_life()}, None),
        ({"life": Life(policy=kube_job().spec.run_policy, stage=LifeStage.SUSPENDED)}, None),
        ({"life": Life(policy=kube_job().spec.run_policy)}, None),
    ],
)
def test_since_when_nothing_is_committed_is_known_from_the_jobs_start(changes, expected):
    """Not only once a checkpoint was seen, and not of jobs that commit nothing more: an alert rests on it."""
    record = seen(*RUNNING, record={"progress": PROGRESS, "progress_at_s": NOW_S}).record
    assert alerted_uncommitted_since_s(replace(record, **{"checkpoint_at_s": 980.0} | changes)) == expected


def failed(**fields):
    policy = kube_job().spec.run_policy
    words = "2 trainer failures in a row (backoffLimit 2)"
    return Life(
        policy=policy,
        stage=LifeStage.STOPPING,
        ending=JobEnding.FAILED,
        failure_reason=FailureReason.BACKOFF_LIMIT_EXCEEDED,
        message=words,
        ended_at_s=950.0,
        **fields,
    )


def test_a_failure_is_told_once_no_trainer_stands():
    """So that beside a standing trainer it can only be forged (ADR 0152)."""
    assert told(seen(*RUNNING, life=failed()))["Failed"] == ("False", "Stopping")
    over = seen(pod(0, "server"), life=failed())
    assert told(over)["Failed"] == ("True", "BackoffLimitExceeded")
    assert status(over)["completionTime"] == "2023-11-14T22:29:10Z"
    assert status(over)["reason"] == "BackoffLimitExceeded"


def test_what_edl_has_told_a_trainer_counts_once_it_is_seen():
    """A deletion that was lost would leave a trainer at work beside the job's end."""
    what = seen(pod(0), life=failed(), record={"deleted_by_edl": frozenset({"uid-digits-trainer-0"})})
    assert told(what)["Failed"] == ("False", "Stopping")


def test_a_failure_whose_pod_still_stands_is_not_counted_yet():
    """The next leader judges that pod again: counted in both it would be two."""
    life = Life(policy=kube_job().spec.run_policy, failures=2)
    dead = pod(1) | {"status": {"phase": "Failed"}}
    judged = {"handled": frozenset({"uid-digits-trainer-1"})}
    assert status(seen(dead, life=life))["failures"] == 2  # not judged: counted by nobody yet
    assert status(seen(dead, life=life, record=judged))["failures"] == 1
    assert status(seen(life=life, record=judged))["failures"] == 2


def test_a_suspended_job_has_no_start():
    life = Life(policy=kube_job().spec.run_policy, stage=LifeStage.SUSPENDED, started_at_s=900.0)
    assert "startTime" not in status(seen(life=life))
    assert told(seen(life=life))["Suspended"][0] == "True"


def check(value, schema, path="status"):
    """Every field is one that the definition knows: others would be pruned."""
    kind = schema.get("type")
    if kind == "object":
        for name, inner in value.items():
            assert name in schema["properties"], f"{path}.{name}"
            check(inner, schema["properties"][name], f"{path}.{name}")
        assert set(schema.get("required", ())) <= value.keys(), path
    elif kind == "array":
        assert len(value) <= schema.get("maxItems", len(value)), path
        for item in value:
            check(item, schema["items"], f"{path}[]")
    elif kind == "string":
        assert len(value) <= schema.get("maxLength", len(value)), path
        assert value in schema.get("enum", [value]), path
    else:
        assert isinstance(value, int), path


lives = st.builds(
    Life,
    policy=st.just(kube_job().spec.run_policy),
    stage=st.sampled_from(LifeStage),
    ending=st.sampled_from([None, *JobEnding]),
    message=st.text(max_size=2000),
    started_at_s=st.sampled_from([None, 900.0]),
    ended_at_s=st.sampled_from([None, 950.0]),
    failures=st.integers(0, 5),
)


resizes = st.lists(
    st.builds(
        ResizeRecord,
        at_s=st.just(1.0),
        before=st.integers(0, 9),
        after=st.integers(0, 9),
        cause=st.text(max_size=99),
        by=st.sampled_from(ResizeAuthor),
        message=st.text(max_size=2000),
    ),
    max_size=10,
)


@cache
def status_schema():
    version = yaml.safe_load(DEFINITION.read_text())["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]["properties"]["status"]


@given(
    lives,
    st.sampled_from([(), RUNNING, RUNNING[:1]]),
    st.sampled_from([None, decision(), decision(is_degraded=True, notice="x")]),
    resizes,
    st.sampled_from([None, PROGRESS, replace(PROGRESS, total=0, phase=JobPhase.WAITING_FOR_SERVERS)]),
)
def test_every_status_is_one_that_the_definition_takes(life, pods, decided, resized, progress):
    what = seen(
        *pods,
        life=life,
        plan_report=PlanReport(decision=decided, resizes=tuple(resized)),
        record={"progress": progress, "progress_at_s": NOW_S},
    )
    written = status(what)
    check(written, status_schema())
    assert {one["type"] for one in written["conditions"]} == {*ConditionType}
    assert not (told(what)["Completed"][0] == "True" and told(what)["Failed"][0] == "True")
    assert main_reason(()) == ""


@pytest.mark.parametrize(("reason", "shown"), [("Starting", "Starting"), ("NoAnswer", "Max")])
def test_a_job_whose_script_has_declared_nothing_yet_is_shown_as_such(reason, shown):
    """A script that hangs in an import trains nothing, though its size is right."""
    conditions = [
        true_condition(ConditionType.ADMITTED, "Started"),
        true_condition(ConditionType.READY, "AllReady"),
        true_condition(ConditionType.SCALED, "Max"),
        false_condition(ConditionType.PROGRESSING, reason, "no data set"),
    ]
    assert main_reason(conditions) == shown


@pytest.mark.parametrize(
    ("reason", "shown"), [("AllTrained", "Completed"), ("NoModelKept", "NoModelKept"), ("ScriptFailed", "ScriptFailed")]
)
def test_a_completed_job_without_a_model_is_shown_as_such(reason, shown):
    """`edl get` has one column for it."""
    assert main_reason([true_condition(ConditionType.COMPLETED, reason, "ended")]) == shown


def resize(to, by=ResizeAuthor.EDL):
    return ResizeRecord(at_s=NOW_S, before=2, after=to, cause="FreeCapacity", by=by, message="grows")


def test_a_new_leader_tells_on_what_earlier_ones_told_of_resizes():
    earlier = status(seen(plan_report=PlanReport(resizes=(resize(3, ResizeAuthor.SCHEDULER), resize(4)))))["resizes"]
    later = seen(plan_report=PlanReport(resizes=(resize(5),)), record={"resizes_before": tuple(earlier)})
    assert [(one["to"], one["by"]) for one in status(later)["resizes"]] == [(5, "edl"), (3, "scheduler"), (4, "edl")]
    full = seen(plan_report=PlanReport(resizes=(resize(5),) * 10), record={"resizes_before": tuple(earlier)})
    assert [one["to"] for one in status(full)["resizes"]] == [5] * 10


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_what_the_planner_is_told_changes_seldom(age_s, more_s):
    record = seen(record={"progress": replace(PROGRESS, checkpoint_age_s=age_s)}).record
    told_s = facts_of(record, NOW_S).checkpoint_age_s
    assert told_s <= age_s
    assert age_s < max(5.0, 2 * told_s + 1e-6 * age_s) or told_s == 0.0
    assert next_reconcile_at_s(record.life, more_s) > more_s
