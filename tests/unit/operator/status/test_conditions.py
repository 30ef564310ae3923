"""The conditions of a job, their reasons and messages, and when they change."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.gangs.start_backoff import StartBackoff
from autoscaler.domain import Bottleneck
from autoscaler.errors import InvalidSpecError
from autoscaler.jobs.lifecycle import Life
from autoscaler.jobs.progress import WhyNoAnswer
from autoscaler.operator.job.job_record import facts_of, master_report_of
from autoscaler.operator.status.job_status import differs_only_in_progress, status_of, unreadable_status
from autoscaler.operator.status.status_inputs import PlanReport, WriteRefusal, reason_of
from master.api.master_status import JobPhase
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

NO_ROOM = "0/2 nodes are available: 2 Insufficient cpu."


UNBOUND = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def unplaced(message, number=0):
    """A trainer of which kube-scheduler has said this."""
    raw = pod(number, is_ready=False)
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return raw | {"status": {"phase": "Pending", "conditions": [verdict]}}


def saying(**words):
    """A job that has run for long, whose master says so."""
    life = Life(policy=kube_job().spec.run_policy, started_at_s=-9_000.0)
    record = {"progress": replace(PROGRESS, **words), "progress_at_s": NOW_S}
    return {"pods": RUNNING, "has_master": True, "life": life, "record": record}


def quiet(what, for_s=20.0):
    """No word of progress came for so long."""
    record = {"progress": PROGRESS, "progress_at_s": 950.0, "missing_answer": what, "unanswered_since_s": NOW_S - for_s}
    return {"pods": RUNNING, "has_master": True, "record": record}


def unheard(what, **kept):
    """This operator has had no answer of it, for long; `kept`: what one before it has told."""
    return {
        "pods": RUNNING,
        "has_master": True,
        "record": {"missing_answer": what, "unanswered_since_s": NOW_S - 20.0, **kept},
    }


@pytest.mark.parametrize(
    ("fields", "kind", "expected"),
    [
        ({}, "Admitted", ("False", "FairShare")),
        ({"priority": None}, "Admitted", ("False", "PriorityClassMissing")),
        ({"problems": {"PriorityClasses": "edl-core is missing"}}, "Admitted", ("False", "PriorityClasses")),
        ({"start_backoff": StartBackoff(lost_races=3)}, "Admitted", ("False", "CapacityLost")),
        ({"is_observed": True}, "Admitted", ("False", "Observed")),
        ({"plan_report": PlanReport()}, "Admitted", ("Unknown", "NotPlanned")),
        (
            {"plan_report": PlanReport(refusal=WriteRefusal(at_s=0.0, reason="Quota", message="exceeded quota"))},
            "Admitted",
            ("False", "Quota"),
        ),
        ({"pods": RUNNING, "has_master": True}, "Admitted", ("True", "Started")),
        ({"pods": RUNNING, "has_master": True}, "Ready", ("True", "AllReady")),
        ({"pods": RUNNING[:1], "has_master": True}, "Ready", ("False", "NotReady")),
        ({"pods": RUNNING, "has_master": True}, "Scaled", ("True", "FairShare")),
        ({"pods": RUNNING[:2], "has_master": True}, "Scaled", ("False", "Growing")),
        ({"pods": (unplaced(UNBOUND),), "has_master": False}, "Admitted", ("False", "Unschedulable")),
        ({"pods": (unplaced(NO_ROOM),), "has_master": False}, "Admitted", ("False", "FairShare")),
        (
            {"start_backoff": StartBackoff(lost_races=1, unschedulable_reason=UNBOUND)},
            "Admitted",
            ("False", "Unschedulable"),
        ),
        (
            {"start_backoff": StartBackoff(lost_races=1, unschedulable_reason=UNBOUND)},
            "Scaled",
            ("False", "Unschedulable"),
        ),
        (
            {"pods": RUNNING, "start_backoff": StartBackoff(lost_races=1, unschedulable_reason=UNBOUND)},
            "Scaled",
            ("True", "FairShare"),
        ),  # all are there
        ({"pods": (*RUNNING[:2], unplaced(UNBOUND, 2))}, "Scaled", ("False", "Unschedulable")),
        ({"is_contested": True}, "Scaled", ("False", "ConflictingAutoscaler")),
        ({"pods": RUNNING[:1], "has_master": True}, "Degraded", ("True", "FairShare")),
        ({"pods": RUNNING, "has_master": True}, "Degraded", ("False", "AsExpected")),
        ({"pods": RUNNING, "has_master": True}, "Progressing", ("Unknown", "NoAnswer")),
        ({}, "Progressing", ("False", "Waiting")),
        (
            {"pods": RUNNING, "has_master": True, "record": {"progress": PROGRESS, "progress_at_s": NOW_S}},
            "Progressing",
            ("True", "Training"),
        ),
        (
            {
                "pods": RUNNING,
                "has_master": True,
                "record": {"progress": replace(PROGRESS, problem="disk full"), "progress_at_s": NOW_S},
            },
            "Progressing",
            ("False", "Problem"),
        ),
        (saying(problem="no file"), "CheckpointsCurrent", ("True", "UpToDate")),
        (saying(checkpoint_problem="disk full"), "Progressing", ("True", "Training")),
        (saying(checkpoint_problem="disk full"), "CheckpointsCurrent", ("False", "CommitFails")),
        (saying(store_problem="etcd is away"), "Progressing", ("True", "Training")),
        (saying(store_problem="etcd is away"), "CheckpointsCurrent", ("False", "StoreUnavailable")),
        (saying(moves_problem="3 buckets"), "Progressing", ("True", "Training")),
        (saying(moves_problem="3 buckets"), "Scaled", ("False", "BucketsLate")),
        (saying(phase=JobPhase.RESTORING), "Progressing", ("False", "Restoring")),
        (saying(phase=JobPhase.WAITING_FOR_SERVERS), "Progressing", ("False", "WaitingForServers")),
        (saying(checkpoint_age_s=1_700.0), "CheckpointsCurrent", ("False", "Overdue")),
        (saying(checkpoint_age_s=1_700.0, done=40), "CheckpointsCurrent", ("True", "UpToDate")),
        (quiet(WhyNoAnswer.SILENT), "Progressing", ("Unknown", "MasterUnreachable")),
        (quiet(WhyNoAnswer.SILENT), "CheckpointsCurrent", ("Unknown", "MasterUnreachable")),
        (quiet(WhyNoAnswer.NOT_LEADING), "Progressing", ("Unknown", "NoLeader")),
        (quiet(WhyNoAnswer.NOT_LEADING), "CheckpointsCurrent", ("Unknown", "NoLeader")),
        (quiet(WhyNoAnswer.SILENT, for_s=5.0), "Progressing", ("True", "Training")),
        ({"pods": RUNNING, "has_master": True}, "CheckpointsCurrent", ("Unknown", "NoAnswer")),
        (unheard(WhyNoAnswer.SILENT), "Progressing", ("Unknown", "NoAnswer")),
        (unheard(WhyNoAnswer.NOT_LEADING), "Progressing", ("Unknown", "NoLeader")),
        (unheard(WhyNoAnswer.SILENT, checkpoint_at_s=950.0), "Progressing", ("Unknown", "MasterUnreachable")),
        ({}, "CheckpointsCurrent", ("False", "Waiting")),
        ({}, "Suspended", ("False", "NotSuspended")),
    ],
)
def test_conditions(fields, kind, expected):
    assert told(seen(**fields))[kind] == expected


@pytest.mark.parametrize(
    ("words", "must"),
    [
        (
            {"checkpoint_problem": "disk full"},
            ("disk full. Training continues", "trained again", "do not delete trainers or servers"),
        ),
        ({"store_problem": "training continues, checkpoints wait: etcd"}, ("training continues", "Restore etcd")),
    ],
)
def test_what_keeps_commits_away_says_what_it_costs_and_what_to_do(words, must):
    """Somebody who restarts a job that trains loses what its last checkpoint lacks (ADR 0173)."""
    [one] = [c for c in status(seen(**saying(**words)))["conditions"] if c["type"] == "CheckpointsCurrent"]
    assert all(text in one["message"] for text in must), one["message"]


def alone(*pods, **fields):
    """Its master has answered for 20 s that no trainer takes part."""
    record = {"progress": replace(PROGRESS, term=1), "progress_at_s": NOW_S, "standstill_since_s": NOW_S - 20.0}
    return seen(*pods, has_master=True, record=record, **fields)


@pytest.mark.parametrize(
    ("what", "awaited"),
    [
        (
            alone(pod(1), pod(0, is_ready=False)),
            "digits-trainer-0, digits-trainer-1: not connected to the job's master",
        ),
        (alone(pod(0, "master")), "EDL starts a new trainer as soon as it can: 0 of 3 trainers: others have less"),
        (alone(unplaced(UNBOUND)), f"kube-scheduler: pod team-a/digits-trainer-0: {UNBOUND}"),
    ],
)
def test_a_job_without_a_trainer_says_since_when_and_what_is_awaited(what, awaited):
    """It was told of as one that trains: its last trainer was lost, and its master waited (M10)."""
    now = status(what)
    [one] = [one for one in now["conditions"] if one["type"] == "Progressing"]
    assert (one["status"], one["reason"]) == ("False", "NoTrainer")
    assert one["message"].startswith("no trainer takes part since 2023-11-14T22:29:40Z, so nothing is trained; ")
    assert awaited in one["message"]
    assert now["reason"] == "NoTrainer", "before its being degraded"
    assert now["standstillSince"] == "2023-11-14T22:29:40Z"


def test_a_trainer_that_is_being_replaced_is_no_standstill():
    record = {"progress": replace(PROGRESS, term=1), "progress_at_s": NOW_S, "standstill_since_s": NOW_S - 5.0}
    now = seen(*RUNNING, record=record)
    assert told(now)["Progressing"] == ("True", "Training")
    assert "standstillSince" not in status(now)


def test_silence_has_an_instant_of_its_own():
    """The message stands still while the silence lasts: each of its words would be one more write."""
    messages = set()
    for now_s in (NOW_S, NOW_S + 40.0):
        what = seen(**quiet(WhyNoAnswer.SILENT))
        what = replace(what, master_report=master_report_of(what.record, now_s, OFFSET_S))
        told_now = status_of(what, now_s=now_s, offset_s=OFFSET_S)["conditions"]
        messages |= {one["message"] for one in told_now if one["type"] == "Progressing"}
    [message] = messages
    assert "since 2023-11-14T22:29:40Z" in message


def test_a_resumed_job_is_not_told_of_by_what_was_said_before():
    """Until its new master answers nobody knows; the silence of the suspension is none of it."""
    life = Life(policy=kube_job().spec.run_policy, started_at_s=NOW_S - 2.0)
    record = {
        "progress": PROGRESS,
        "progress_at_s": 100.0,
        "missing_answer": WhyNoAnswer.SILENT,
        "unanswered_since_s": 110.0,
    }
    assert told(seen(*RUNNING, life=life, record=record))["Progressing"] == ("Unknown", "NoAnswer")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (saying(), "FairShare"),
        (saying(checkpoint_problem="disk full"), "CommitFails"),
        (saying(store_problem="etcd"), "StoreUnavailable"),
        (saying(problem="no file", checkpoint_problem="disk full"), "Problem"),
        (saying(problem="no file") | {"pods": RUNNING[:1]}, "Problem"),
        (saying(checkpoint_problem="disk full") | {"pods": RUNNING[:1]}, "FairShare"),
        (saying(phase=JobPhase.STARTING), "Starting"),
        (quiet(WhyNoAnswer.SILENT), "MasterUnreachable"),
        (quiet(WhyNoAnswer.NOT_LEADING), "NoLeader"),
    ],
)
def test_the_column_reason_shows_what_matters_most(fields, reason):
    """No training, then below its minimum, then a script that still starts, then no checkpoints, then its size."""
    assert status(seen(**fields))["reason"] == reason


def test_a_bottleneck_is_told_in_its_own_words_beside_a_change():
    """Servers that leave are no fair share of others: what the plan does stands in events and resizes."""
    made = decision(message="removed 2 servers: its trainers need fewer servers", limit="others have less")
    report = PlanReport(decision=made)
    found = {one["type"]: one for one in status(seen(*RUNNING, has_master=True, plan_report=report))["conditions"]}
    assert (found["Scaled"]["reason"], found["Scaled"]["message"]) == ("FairShare", "3 of 3 trainers: others have less")
    waits = {one["type"]: one for one in status(seen(plan_report=report))["conditions"]}
    assert (waits["Admitted"]["reason"], waits["Admitted"]["message"]) == ("FairShare", "others have less")


def test_a_transition_keeps_its_time_until_it_turns():
    first = status(seen(*RUNNING))
    again = status_of(seen(*RUNNING, previous=first), now_s=NOW_S + 100, offset_s=OFFSET_S)
    assert again == first
    turned = status_of(seen(*RUNNING[:2], previous=first), now_s=NOW_S + 100, offset_s=OFFSET_S)
    times = {one["type"]: one["lastTransitionTime"] for one in turned["conditions"]}
    assert times["Scaled"] == "2023-11-14T22:31:40Z"
    assert times["Admitted"] == "2023-11-14T22:30:00Z"


def test_a_job_that_cannot_be_read_says_where_it_is_wrong():
    error = InvalidSpecError("spec.trainer.minReplicas", "is 9, maxReplicas is 8")
    written = unreadable_status(error, {}, generation=3, now_unix_s=0.0)
    [one] = written["conditions"]
    assert (one["type"], one["status"], one["reason"]) == ("Admitted", "False", "InvalidSpec")
    assert "spec.trainer.minReplicas" in one["message"]


def test_a_job_that_can_no_longer_be_read_has_started_all_the_same():
    """Its pods stand: without the time of its start the definition would let its template change under them."""
    error = InvalidSpecError("spec.trainer.minReplicas", "is 9, maxReplicas is 8")
    before = {"startTime": "2026-01-01T00:00:00Z", "share": "0.25"}
    written = unreadable_status(error, before, generation=3, now_unix_s=0.0)
    assert written["startTime"] == before["startTime"]
    assert "share" not in written


def test_refusals_have_one_word():
    assert reason_of('pods "x" is forbidden: exceeded quota: q') == "Quota"
    assert reason_of("node n1 has no free capacity any more") == ""
    invalid = 'create pods a/x: Pod "x" is invalid: spec.containers[0].volumeMounts[0].name: Not found: "data"'
    assert reason_of(invalid, is_final=True) == "PodInvalid"
    webhook = 'create pods a/x: admission webhook "policy" denied the request: no root'
    assert reason_of(webhook, is_final=True) == "PodRefused"
    assert reason_of("create pods a/x: HTTP 503") == ""


def test_waiting_for_servers_is_told_of_jobs_that_have_some():
    waits = replace(PROGRESS, waiting_share=0.37)
    what = seen(record={"progress": waits, "progress_at_s": NOW_S, "job": kube_job(server={})})
    assert status(what)["progress"]["waitingPercent"] == 37
    assert facts_of(what.record, NOW_S).waiting_share == 0.35, "coarse: not every word of a master is another view"
    assert "waitingPercent" not in status(seen(record={"progress": waits, "progress_at_s": NOW_S}))["progress"]


def test_measured_pause_of_a_resize_reaches_the_planner():
    """ADR 0234: rounded, so that not every word of a master is another view."""
    record = seen(record={"progress": replace(PROGRESS, resize_pause_s=3.14159), "progress_at_s": NOW_S}).record
    assert facts_of(record, NOW_S).resize_pause_s == 3.1
    assert facts_of(seen().record, NOW_S).resize_pause_s == 0.0


def test_copies_are_told_of_jobs_that_want_two_while_there_is_a_model():
    def told(progress, *pods):
        record = {"progress": progress, "progress_at_s": NOW_S, "job": kube_job(server={})}
        return {name: count for name, count in status(seen(*pods, record=record))["servers"].items() if name in new}

    new, two = {"copies", "singleCopies"}, replace(PROGRESS, copies=2, single_copy_buckets=5)
    assert told(two, pod(0, "server")) == {"copies": 2, "singleCopies": 5}
    assert told(PROGRESS, pod(0, "server")) == {}
    assert told(two) == {}, "nobody holds it: the job is over, or suspended"
    assert told(replace(two, lineage=0), pod(0, "server")) == {}, "nothing has been declared"


def test_buckets_in_transit_are_counted_and_are_progress():
    def told(moving):
        record = {"progress": replace(PROGRESS, moving=moving), "progress_at_s": NOW_S, "job": kube_job(server={})}
        return status(seen(pod(0, "server"), record=record))

    assert told(7)["servers"]["movingBuckets"] == 7
    assert differs_only_in_progress(told(7), told(3)), "else each poll would be a write"
    fewer = told(7) | {"servers": told(7)["servers"] | {"ready": 9}}
    assert not differs_only_in_progress(told(7), fewer)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pods": (unplaced(UNBOUND), unplaced(UNBOUND, 1)), "has_master": False}, "Unschedulable"),
        ({"start_backoff": StartBackoff(lost_races=2, unschedulable_reason=UNBOUND)}, "Unschedulable"),
        ({"pods": (pod(0, is_ready=False), pod(1, is_ready=False), pod(0, "master"))}, "NotReady"),
        ({"pods": (*RUNNING[:2], RUNNING[3])}, "Max"),
    ],
)
def test_reason_of_a_job_none_of_whose_trainers_is_ready_is_not_its_size(fields, reason):
    """`Max` beside 0 trainers told nobody that a volume claim is not bound."""
    what = seen(**fields)
    what = replace(what, plan_report=PlanReport(decision=replace(decision(), bottleneck=Bottleneck.MAX, target=2)))
    assert status(what)["reason"] == reason
