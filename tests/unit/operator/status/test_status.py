"""What a TrainingJob's status says, and when it is written."""

from dataclasses import replace
from math import inf

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.clusters.kubernetes.gangs.start_backoff import StartBackoff
from autoscaler.domain import Bottleneck, Decision, Reason
from autoscaler.errors import InvalidSpecError
from autoscaler.jobs.answers import NoProgress
from autoscaler.jobs.lifecycle import Ending, Life, Stage
from autoscaler.jobs.progress import JobProgress
from autoscaler.operator.controllers.status_writer import PROGRESS_EVERY_S, StatusWriter
from autoscaler.operator.job.job_record import JobRecord, facts_of, heard_of, next_look_at_s, uncommitted_since_s
from autoscaler.operator.status.conditions import Kind
from autoscaler.operator.status.job_report import JobReport, Refusal, reason_of
from autoscaler.operator.status.job_status import chief_reason, status_of, wrong_status
from autoscaler.operator.status.resizes import Author, Resize
from autoscaler.operator.status.status_inputs import Seen
from master.api.master_status import JobPhase
from tests.cluster.trainingjobs import DEFINITION
from tests.unit.clusters.kubernetes.objects import UID, condition, kube_job, raw_pod
from tests.unit.operator.bench import JOB, OperatorBench

OFFSET_S = -1_700_000_000.0
NOW_S = 1_000.0
PROGRESS = JobProgress(
    phase=JobPhase.TRAINING, total=200, done=50, committed=40, epochs=2, lineage=1, checkpoint_age_s=30.0
)
OWNER = {"kind": "TrainingJob", "apiVersion": "edl.dev/v1alpha1", "uid": UID, "controller": True, "name": "digits"}


def decision(now=2, target=3, **fields):
    return Decision(
        **{
            "job": JOB,
            "now": now,
            "target": target,
            "min": 2,
            "max": 8,
            "servers": 0,
            "servers_target": 0,
            "reason": Reason.GROWN,
            "bottleneck": Bottleneck.FAIR_SHARE,
            "message": "others have less",
        }
        | fields
    )


def pod(number, role="trainer", tier="core", *, is_ready=True):
    status = {"conditions": [condition("Ready", "True" if is_ready else "False")]}
    labels = {"edl.dev/job": "digits", "edl.dev/role": role, "edl.dev/tier": tier, "edl.dev/ordinal": str(number)}
    return raw_pod(f"digits-{role}-{number}", node="n1", labels=labels, owner=OWNER, status=status)


def saved(record):
    """As the operator keeps it when its master has answered."""
    age_s = None if record.progress is None else record.progress.checkpoint_age_s
    return record if age_s is None else replace(record, checkpoint_at_s=record.progress_at_s - age_s)


def seen(*pods, life=None, **fields):
    job, pods = kube_job(), fields.pop("pods", pods)
    record = JobRecord(job=job, life=life or Life(policy=job.spec.run_policy, started_at_s=900.0))
    values = {
        "record": saved(replace(record, **fields.pop("record", {}))),
        "report": JobReport(decision=decision()),
        "race": StartBackoff(),
        "pods": pods,
        "has_master": bool(pods),
        "before": {},
        "priority": 0,
        "problems": {},
    } | fields
    return Seen(**{"heard": heard_of(values["record"], NOW_S, OFFSET_S)} | values)


NO_ROOM = "0/2 nodes are available: 2 Insufficient cpu."
UNBOUND = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def unplaced(message, number=0):
    """A trainer of which kube-scheduler has said this."""
    raw = pod(number, is_ready=False)
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return raw | {"status": {"phase": "Pending", "conditions": [verdict]}}


def status(what):
    return status_of(what, now_s=NOW_S, offset_s=OFFSET_S)


def told(what):
    return {one["type"]: (one["status"], one["reason"]) for one in status(what)["conditions"]}


RUNNING = (pod(0), pod(1), pod(2, tier="surplus", is_ready=False), pod(0, "master"))


def test_counts_and_names_are_those_of_the_pods():
    trainers = status(seen(*RUNNING))["trainers"]
    assert (trainers["ready"], trainers["target"], trainers["core"], trainers["surplus"]) == (2, 3, 2, 1)
    assert trainers["names"] == ["digits-trainer-0", "digits-trainer-1", "digits-trainer-2"]


def test_progress_is_told_as_far_as_it_is_known():
    what = seen(*RUNNING, record={"progress": PROGRESS, "progress_at_s": NOW_S})
    progress = status(what)["progress"]
    assert (progress["samplesCommitted"], progress["samplesTotal"], progress["percent"]) == (40, 200, "25.0%")
    assert progress["lastCheckpointTime"] == "2023-11-14T22:29:30Z"
    assert "progress" not in status(seen(*RUNNING))


def failed_life():
    return Life(policy=kube_job().spec.run_policy, stage=Stage.STOPPING, ending=Ending.FAILED, started_at_s=900.0)


def saying(**words):
    """A job that has run for long, whose master says so."""
    life = Life(policy=kube_job().spec.run_policy, started_at_s=-9_000.0)
    record = {"progress": replace(PROGRESS, **words), "progress_at_s": NOW_S}
    return {"pods": RUNNING, "has_master": True, "life": life, "record": record}


def quiet(what, for_s=20.0):
    """No word of progress came for so long."""
    record = {"progress": PROGRESS, "progress_at_s": 950.0, "quiet": what, "quiet_since_s": NOW_S - for_s}
    return {"pods": RUNNING, "has_master": True, "record": record}


def unheard(what, **kept):
    """This operator has had no answer of it, for long; `kept`: what one before it has told."""
    return {"pods": RUNNING, "has_master": True, "record": {"quiet": what, "quiet_since_s": NOW_S - 20.0, **kept}}


@pytest.mark.parametrize(
    ("fields", "kind", "expected"),
    [
        ({}, "Admitted", ("False", "FairShare")),
        ({"priority": None}, "Admitted", ("False", "PriorityClassMissing")),
        ({"problems": {"PriorityClasses": "edl-core is missing"}}, "Admitted", ("False", "PriorityClasses")),
        ({"race": StartBackoff(lost=3)}, "Admitted", ("False", "RoomTaken")),
        ({"is_observed": True}, "Admitted", ("False", "Observed")),
        ({"report": JobReport()}, "Admitted", ("Unknown", "NotPlanned")),
        (
            {"report": JobReport(refusal=Refusal(at_s=0.0, reason="Quota", message="exceeded quota"))},
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
        ({"race": StartBackoff(lost=1, unschedulable_reason=UNBOUND)}, "Admitted", ("False", "Unschedulable")),
        ({"race": StartBackoff(lost=1, unschedulable_reason=UNBOUND)}, "Scaled", ("False", "Unschedulable")),
        (
            {"pods": RUNNING, "race": StartBackoff(lost=1, unschedulable_reason=UNBOUND)},
            "Scaled",
            ("True", "FairShare"),
        ),  # all are there
        ({"pods": (*RUNNING[:2], unplaced(UNBOUND, 2))}, "Scaled", ("False", "Unschedulable")),
        ({"is_contested": True}, "Scaled", ("False", "ConflictingAutoscaler")),
        ({"pods": RUNNING[:1], "has_master": True}, "Degraded", ("True", "FairShare")),
        ({"pods": RUNNING, "has_master": True}, "Degraded", ("False", "AsWanted")),
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
        (saying(store_problem="etcd is away"), "CheckpointsCurrent", ("False", "StoreAway")),
        (saying(moves_problem="3 buckets"), "Progressing", ("True", "Training")),
        (saying(moves_problem="3 buckets"), "Scaled", ("False", "BucketsLate")),
        (saying(phase=JobPhase.RESTORING), "Progressing", ("False", "Restoring")),
        (saying(phase=JobPhase.WAITING_FOR_SERVERS), "Progressing", ("False", "WaitingForServers")),
        (saying(checkpoint_age_s=1_700.0), "CheckpointsCurrent", ("False", "Overdue")),
        (saying(checkpoint_age_s=1_700.0, done=40), "CheckpointsCurrent", ("True", "UpToDate")),
        (quiet(NoProgress.SILENT), "Progressing", ("Unknown", "MasterSilent")),
        (quiet(NoProgress.SILENT), "CheckpointsCurrent", ("Unknown", "MasterSilent")),
        (quiet(NoProgress.REFUSED), "Progressing", ("Unknown", "NoLeader")),
        (quiet(NoProgress.REFUSED), "CheckpointsCurrent", ("Unknown", "NoLeader")),
        (quiet(NoProgress.SILENT, for_s=5.0), "Progressing", ("True", "Training")),
        ({"pods": RUNNING, "has_master": True}, "CheckpointsCurrent", ("Unknown", "NoAnswer")),
        (unheard(NoProgress.SILENT), "Progressing", ("Unknown", "NoAnswer")),
        (unheard(NoProgress.REFUSED), "Progressing", ("Unknown", "NoLeader")),
        (unheard(NoProgress.SILENT, checkpoint_at_s=950.0), "Progressing", ("Unknown", "MasterSilent")),
        ({}, "CheckpointsCurrent", ("False", "Waiting")),
        ({}, "Suspended", ("False", "NotSo")),
    ],
)
def test_conditions(fields, kind, expected):
    assert told(seen(**fields))[kind] == expected


@pytest.mark.parametrize(
    ("words", "must"),
    [
        (
            {"checkpoint_problem": "disk full"},
            ("training goes on", "trained again", "leave trainers and servers alone"),
        ),
        ({"store_problem": "training goes on, checkpoints wait: etcd"}, ("training goes on", "Bring etcd back")),
    ],
)
def test_what_keeps_commits_away_says_what_it_costs_and_what_to_do(words, must):
    """Somebody who restarts a job that trains loses what its last checkpoint lacks (ADR 0173)."""
    [one] = [c for c in status(seen(**saying(**words)))["conditions"] if c["type"] == "CheckpointsCurrent"]
    assert all(text in one["message"] for text in must), one["message"]


def test_silence_has_an_instant_of_its_own():
    """The message stands still while the silence lasts: each of its words would be one more write."""
    messages = set()
    for now_s in (NOW_S, NOW_S + 40.0):
        what = seen(**quiet(NoProgress.SILENT))
        what = replace(what, heard=heard_of(what.record, now_s, OFFSET_S))
        told_now = status_of(what, now_s=now_s, offset_s=OFFSET_S)["conditions"]
        messages |= {one["message"] for one in told_now if one["type"] == "Progressing"}
    [message] = messages
    assert "since 2023-11-14T22:29:40Z" in message


def test_a_resumed_job_is_not_told_of_by_what_was_said_before():
    """Until its new master answers nobody knows; the silence of the suspension is none of it."""
    life = Life(policy=kube_job().spec.run_policy, started_at_s=NOW_S - 2.0)
    record = {"progress": PROGRESS, "progress_at_s": 100.0, "quiet": NoProgress.SILENT, "quiet_since_s": 110.0}
    assert told(seen(*RUNNING, life=life, record=record))["Progressing"] == ("Unknown", "NoAnswer")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (saying(), "FairShare"),
        (saying(checkpoint_problem="disk full"), "CommitFails"),
        (saying(store_problem="etcd"), "StoreAway"),
        (saying(problem="no file", checkpoint_problem="disk full"), "Problem"),
        (saying(problem="no file") | {"pods": RUNNING[:1]}, "Problem"),
        (saying(checkpoint_problem="disk full") | {"pods": RUNNING[:1]}, "FairShare"),
        (saying(phase=JobPhase.STARTING), "FairShare"),
        (quiet(NoProgress.SILENT), "MasterSilent"),
        (quiet(NoProgress.REFUSED), "NoLeader"),
    ],
)
def test_the_column_reason_shows_what_matters_most(fields, reason):
    """No training, then below its minimum, then no checkpoints, then its size."""
    assert status(seen(**fields))["reason"] == reason


def test_a_definition_that_lacks_a_condition_is_not_told_it():
    """It would refuse the whole status, and with it the words that it is too old."""
    problems = {"OldDefinition": "revision 4"}
    assert "CheckpointsCurrent" not in told(seen(*RUNNING, problems=problems))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 980.0),  # the last checkpoint
        ({"checkpoint_at_s": -inf}, 900.0),  # nobody knows of one: its start
        ({"checkpoint_at_s": 10.0}, 900.0),  # of before its resume
        ({"progress": None}, 980.0),  # this operator has heard nothing yet
        ({"progress": replace(PROGRESS, done=40)}, None),
        ({"life": failed_life()}, None),
        ({"life": Life(policy=kube_job().spec.run_policy, stage=Stage.SUSPENDED)}, None),
        ({"life": Life(policy=kube_job().spec.run_policy)}, None),
    ],
)
def test_since_when_nothing_is_committed_is_known_from_the_jobs_start(changes, expected):
    """Not only once a checkpoint was seen, and not of jobs that commit nothing more: an alert rests on it."""
    record = seen(*RUNNING, record={"progress": PROGRESS, "progress_at_s": NOW_S}).record
    assert uncommitted_since_s(replace(record, **{"checkpoint_at_s": 980.0} | changes)) == expected


def failed(**fields):
    policy = kube_job().spec.run_policy
    words = "2 trainer failures in a row (backoffLimit 2)"
    return Life(policy=policy, stage=Stage.STOPPING, ending=Ending.FAILED, message=words, ended_at_s=950.0, **fields)


def test_a_failure_is_told_once_no_trainer_stands():
    """So that beside a standing trainer it can only be forged (ADR 0152)."""
    assert told(seen(*RUNNING, life=failed()))["Failed"] == ("False", "Stopping")
    over = seen(pod(0, "server"), life=failed())
    assert told(over)["Failed"] == ("True", "BackoffLimitExceeded")
    assert status(over)["completionTime"] == "2023-11-14T22:29:10Z"
    assert status(over)["reason"] == "BackoffLimitExceeded"


def test_what_edl_has_told_a_trainer_counts_once_it_is_seen():
    """A deletion that was lost would leave a trainer at work beside the job's end."""
    what = seen(pod(0), life=failed(), record={"told": frozenset({"uid-digits-trainer-0"})})
    assert told(what)["Failed"] == ("False", "Stopping")


def test_a_failure_whose_pod_still_stands_is_not_counted_yet():
    """The next leader judges that pod again: counted in both it would be two."""
    life = Life(policy=kube_job().spec.run_policy, failures=2)
    dead = pod(1) | {"status": {"phase": "Failed"}}
    judged = {"judged": frozenset({"uid-digits-trainer-1"})}
    assert status(seen(dead, life=life))["failures"] == 2  # not judged: counted by nobody yet
    assert status(seen(dead, life=life, record=judged))["failures"] == 1
    assert status(seen(life=life, record=judged))["failures"] == 2


def test_a_suspended_job_has_no_start():
    life = Life(policy=kube_job().spec.run_policy, stage=Stage.SUSPENDED, started_at_s=900.0)
    assert "startTime" not in status(seen(life=life))
    assert told(seen(life=life))["Suspended"][0] == "True"


def test_a_transition_keeps_its_time_until_it_turns():
    first = status(seen(*RUNNING))
    again = status_of(seen(*RUNNING, before=first), now_s=NOW_S + 100, offset_s=OFFSET_S)
    assert again == first
    turned = status_of(seen(*RUNNING[:2], before=first), now_s=NOW_S + 100, offset_s=OFFSET_S)
    times = {one["type"]: one["lastTransitionTime"] for one in turned["conditions"]}
    assert times["Scaled"] == "2023-11-14T22:31:40Z"
    assert times["Admitted"] == "2023-11-14T22:30:00Z"


def test_a_job_that_cannot_be_read_says_where_it_is_wrong():
    error = InvalidSpecError("spec.trainer.minReplicas", "is 9, maxReplicas is 8")
    written = wrong_status(error, {}, generation=3, now_unix_s=0.0)
    [one] = written["conditions"]
    assert (one["type"], one["status"], one["reason"]) == ("Admitted", "False", "InvalidSpec")
    assert "spec.trainer.minReplicas" in one["message"]


def test_a_job_that_can_no_longer_be_read_has_started_all_the_same():
    """Its pods stand: without the time of its start the definition would let its template change under them."""
    error = InvalidSpecError("spec.trainer.minReplicas", "is 9, maxReplicas is 8")
    before = {"startTime": "2026-01-01T00:00:00Z", "share": "0.25"}
    written = wrong_status(error, before, generation=3, now_unix_s=0.0)
    assert written["startTime"] == before["startTime"]
    assert "share" not in written


def test_refusals_have_one_word():
    assert reason_of('pods "x" is forbidden: exceeded quota: q') == "Quota"
    assert reason_of("the room on n1 is taken") == ""
    invalid = 'create pods a/x: Pod "x" is invalid: spec.containers[0].volumeMounts[0].name: Not found: "data"'
    assert reason_of(invalid, is_final=True) == "PodInvalid"
    webhook = 'create pods a/x: admission webhook "policy" denied the request: no root'
    assert reason_of(webhook, is_final=True) == "PodRefused"
    assert reason_of("create pods a/x: HTTP 503") == ""


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
    stage=st.sampled_from(Stage),
    ending=st.sampled_from([None, *Ending]),
    message=st.text(max_size=2000),
    started_at_s=st.sampled_from([None, 900.0]),
    ended_at_s=st.sampled_from([None, 950.0]),
    failures=st.integers(0, 5),
)
resizes = st.lists(
    st.builds(
        Resize,
        at_s=st.just(1.0),
        before=st.integers(0, 9),
        after=st.integers(0, 9),
        cause=st.text(max_size=99),
        by=st.sampled_from(Author),
        message=st.text(max_size=2000),
    ),
    max_size=10,
)


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
        report=JobReport(decision=decided, resizes=tuple(resized)),
        record={"progress": progress, "progress_at_s": NOW_S},
    )
    written = status(what)
    version = yaml.safe_load(DEFINITION.read_text())["spec"]["versions"][0]
    check(written, version["schema"]["openAPIV3Schema"]["properties"]["status"])
    assert {one["type"] for one in written["conditions"]} == {*Kind}
    assert not (told(what)["Completed"][0] == "True" and told(what)["Failed"][0] == "True")
    assert chief_reason(()) == ""


def resize(to, by=Author.EDL):
    return Resize(at_s=NOW_S, before=2, after=to, cause="FreeRoom", by=by, message="grows")


def test_a_new_leader_tells_on_what_earlier_ones_told_of_resizes():
    earlier = status(seen(report=JobReport(resizes=(resize(3, Author.SCHEDULER), resize(4)))))["resizes"]
    later = seen(report=JobReport(resizes=(resize(5),)), record={"resizes_before": tuple(earlier)})
    assert [(one["to"], one["by"]) for one in status(later)["resizes"]] == [(5, "edl"), (3, "scheduler"), (4, "edl")]
    full = seen(report=JobReport(resizes=(resize(5),) * 10), record={"resizes_before": tuple(earlier)})
    assert [one["to"] for one in status(full)["resizes"]] == [5] * 10


def test_waiting_for_servers_is_told_of_jobs_that_have_some():
    waits = replace(PROGRESS, waiting_share=0.37)
    what = seen(record={"progress": waits, "progress_at_s": NOW_S, "job": kube_job(server={})})
    assert status(what)["progress"]["waitingPercent"] == 37
    assert facts_of(what.record, NOW_S).waiting_share == 0.35, "coarse: not every word of a master is another view"
    assert "waitingPercent" not in status(seen(record={"progress": waits, "progress_at_s": NOW_S}))["progress"]


def test_copies_are_told_of_jobs_that_want_two_while_there_is_a_model():
    def told(progress, *pods):
        record = {"progress": progress, "progress_at_s": NOW_S, "job": kube_job(server={})}
        return {name: count for name, count in status(seen(*pods, record=record))["servers"].items() if name in new}

    new, two = {"copies", "alone"}, replace(PROGRESS, copies=2, alone=5)
    assert told(two, pod(0, "server")) == {"copies": 2, "alone": 5}
    assert told(PROGRESS, pod(0, "server")) == {}
    assert told(two) == {}, "nobody holds it: the job is over, or suspended"
    assert told(replace(two, lineage=0), pod(0, "server")) == {}, "nothing has been declared"


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_what_the_planner_is_told_changes_seldom(age_s, more_s):
    record = seen(record={"progress": replace(PROGRESS, checkpoint_age_s=age_s)}).record
    told_s = facts_of(record, NOW_S).checkpoint_age_s
    assert told_s <= age_s
    assert age_s < max(5.0, 2 * told_s + 1e-6 * age_s) or told_s == 0.0
    assert next_look_at_s(record.life, more_s) > more_s


class Writing:
    """Statuses of one job on an API server in memory."""

    def __init__(self):
        self.bench = OperatorBench()
        self.wanted = {"observedGeneration": 1, "failures": 0}
        self.statuses = StatusWriter(self.bench.api, self.bench.store, self)

    def status_of(self, _job):
        return dict(self.wanted)

    async def write(self):
        await self.bench.refresh()
        await self.statuses.write(JOB)
        await self.bench.refresh()
        raw = self.bench.server.get(TRAINING_JOBS, "team-a", "digits")
        return raw.get("status"), int(raw["metadata"]["resourceVersion"])


async def test_a_status_is_written_when_it_differs():
    writing = Writing()
    standing, version = await writing.write()
    assert standing == writing.wanted
    assert await writing.write() == (standing, version)
    writing.wanted["failures"] = 1
    assert (await writing.write())[0]["failures"] == 1


async def test_progress_alone_is_written_now_and_then():
    writing = Writing()
    await writing.write()
    writing.wanted["progress"] = {"epoch": 1}
    writing.bench.now_s += 1
    assert "progress" not in (await writing.write())[0]
    writing.bench.now_s += PROGRESS_EVERY_S
    assert (await writing.write())[0]["progress"] == {"epoch": 1}


async def test_what_somebody_else_wrote_is_put_right():
    writing = Writing()
    await writing.write()
    writing.bench.write_status({"failures": 99, "observedGeneration": 1})
    assert (await writing.write())[0]["failures"] == 0


async def test_a_job_that_is_gone_is_no_error():
    writing = Writing()
    await writing.write()
    await writing.bench.api.delete(TRAINING_JOBS, "digits", namespace="team-a")
    await writing.statuses.write(JOB)  # before the watch has shown it
    assert writing.bench.names(TRAINING_JOBS) == set()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pods": (unplaced(UNBOUND), unplaced(UNBOUND, 1)), "has_master": False}, "Unschedulable"),
        ({"race": StartBackoff(lost=2, unschedulable_reason=UNBOUND)}, "Unschedulable"),
        ({"pods": (pod(0, is_ready=False), pod(1, is_ready=False), pod(0, "master"))}, "NotReady"),
        ({"pods": (*RUNNING[:2], RUNNING[3])}, "Max"),
    ],
)
def test_reason_of_a_job_none_of_whose_trainers_is_ready_is_not_its_size(fields, reason):
    """`Max` beside 0 trainers told nobody that a volume claim is not bound."""
    what = seen(**fields)
    what = replace(what, report=JobReport(decision=replace(decision(), bottleneck=Bottleneck.MAX, target=2)))
    assert status(what)["reason"] == reason
