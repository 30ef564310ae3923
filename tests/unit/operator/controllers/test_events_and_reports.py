"""What the operator tells: events, metrics, health, and what kopf passes on; kopf itself writes nothing."""

from dataclasses import replace

import kopf
import pytest

from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.clusters.kubernetes.api.kinds import EVENTS
from autoscaler.domain import Cause, DeletePod, Plan, Reason, Role
from autoscaler.jobs.lifecycle import Life
from autoscaler.jobs.progress import WhyNoAnswer
from autoscaler.loop import LoopPass
from autoscaler.operator.controllers.job_reporter import JobReporter
from autoscaler.operator.job.job_record import JobRecord
from autoscaler.operator.job.pod_termination import TerminationCause
from autoscaler.operator.metered_api import MeteredApi
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.process.kopf_handlers import MemoryDiffBase, edit_of, make_registry, make_settings
from autoscaler.operator.process.probes import STUCK_AFTER_S, OperatorState
from autoscaler.operator.status.event_series import WRITE_EVERY_S
from autoscaler.operator.status.status_inputs import MOST_POSITIONS, ResizeAuthor, queue_positions
from autoscaler.operator.store.event_recorder import BURST, ONE_MORE_EVERY_S, EventRecorder, JobEvent
from tests.unit.clusters.kubernetes.raw_objects import kube_job
from tests.unit.operator.bench import JOB, OperatorBench, write_events
from tests.unit.operator.status.status_cases import PROGRESS, RUNNING, decision, seen, status


class Talk:
    """Events of one job on an API server in memory."""

    def __init__(self):
        self.bench = OperatorBench()
        self.events = EventRecorder(
            self.bench.api, identity="edl-0", wall_s=lambda: self.bench.now_s, errors=self.bench.errors
        )

    async def say(self, message="grows", **fields):
        self.events.emit(kube_job(), JobEvent(reason="Grown", message=message, **fields))
        await write_events(self.events)

    def written(self):
        return self.bench.server.all(EVENTS)


async def test_an_event_names_its_job_and_who_says_it():
    talk = Talk()
    await talk.say(pod=f"{JOB}-trainer-0", is_warning=True)
    [event] = talk.written()
    assert event["regarding"]["name"] == "digits"
    assert event["related"]["name"] == "digits-trainer-0"
    assert (event["reason"], event["type"], event["reportingController"]) == ("Grown", "Warning", "edl.dev/operator")


async def test_an_event_that_repeats_becomes_a_series():
    talk = Talk()
    for _ in range(5):
        await talk.say()
        talk.bench.now_s += WRITE_EVERY_S / 2
    [event] = talk.written()
    assert event["series"]["count"] == 5


@pytest.mark.parametrize("letter", ["x", "é", "列"])
async def test_a_long_story_is_cut_to_what_the_api_takes(letter):
    """It counts bytes: the last words of a script that writes Chinese were refused whole."""
    talk = Talk()
    await talk.say(letter * 5_000)
    note = talk.written()[0]["note"]
    assert set(note) == {letter}
    assert 1024 - len(letter.encode()) < len(note.encode()) <= 1024


async def test_too_much_to_say_is_dropped_not_waited_for():
    talk = Talk()
    for number in range(1_200):
        talk.events.emit(replace(kube_job(), uid=f"of job {number}"), JobEvent(reason="Grown", message=str(number)))
    assert talk.events.dropped == 200


async def test_job_that_talks_without_end_takes_no_words_from_others():
    """A master's words are its owner's: beyond its allowance nothing is said, and in time it may speak again (A11)."""
    talk, loud = Talk(), replace(kube_job(), uid="loud")
    for number in range(500):
        talk.events.emit(loud, JobEvent(reason="Problem", message=str(number)))
    talk.events.emit(kube_job(), JobEvent(reason="Grown", message="to 3"))
    assert talk.events.dropped == 500 - BURST
    talk.bench.now_s += ONE_MORE_EVERY_S
    talk.events.emit(loud, JobEvent(reason="Problem", message="again"))
    talk.events.emit(loud, JobEvent(reason="Problem", message="and again"))
    await write_events(talk.events)
    notes = [event["note"] for event in talk.written()]
    assert len(notes) == BURST + 2
    assert {"to 3", "again"} <= set(notes)


def test_a_job_that_is_gone_leaves_no_series():
    metrics = Metrics()
    metrics.set_job(JOB, status(seen()), checkpoint_every_s=60.0)
    metrics.set_instants(JOB, checkpoint=1.0, uncommitted=2.0, waiting=3.0)
    told = 'edl_job_condition{job="digits",namespace="team-a",reason="NotFailed",status="False",type="Failed"} 1.0'
    assert told in text(metrics)
    assert 'edl_job_waiting_since_timestamp_seconds{job="digits",namespace="team-a"} 3.0' in text(metrics)
    metrics.forget_job(JOB)
    metrics.forget_job("team-a/never-shown")
    assert "digits" not in text(metrics)


def test_an_instant_that_is_over_leaves_no_series():
    """A job that runs waits for nothing, and one that is suspended commits nothing: alerts rest on what is there."""
    metrics = Metrics()
    metrics.set_instants(JOB, checkpoint=1.0, uncommitted=2.0, waiting=3.0)
    metrics.set_instants(JOB, checkpoint=1.0, uncommitted=None, waiting=None)
    assert "since_timestamp_seconds{" not in text(metrics)
    assert "edl_job_last_checkpoint_timestamp_seconds{" in text(metrics)


def test_a_reason_that_turns_is_shown_once():
    """The label `reason` is one word at a time: the series of the word before goes."""
    metrics = Metrics()
    for silent in (None, WhyNoAnswer.SILENT, WhyNoAnswer.NOT_LEADING):
        record = {"progress": PROGRESS, "progress_at_s": 900.0, "missing_answer": silent, "unanswered_since_s": 901.0}
        metrics.set_job(JOB, status(seen(*RUNNING, record=record)), checkpoint_every_s=60.0)
    assert text(metrics).count('type="Progressing"') == 1
    assert 'reason="NoLeader",status="Unknown",type="Progressing"' in text(metrics)


def test_a_job_that_wants_one_copy_of_everything_lacks_none():
    """It may have wanted two until it was suspended: the gauge does not stand where it stood."""
    metrics = Metrics()
    for servers in ({"singleCopies": 5}, {}):
        metrics.set_job(JOB, {"servers": servers}, checkpoint_every_s=60.0)
        assert ('edl_job_buckets_with_one_copy{job="digits"' in text(metrics)) is bool(servers)


def test_a_condition_that_turns_is_shown_once():
    metrics = Metrics()
    metrics.set_job(JOB, status(seen()), checkpoint_every_s=60.0)
    metrics.set_job(JOB, status(seen(is_contested=True)), checkpoint_every_s=60.0)
    assert text(metrics).count('type="Scaled"') == 1


def text(metrics):
    return metrics.render().decode()


async def test_calls_are_counted_by_outcome():
    bench, counted = OperatorBench(), []
    api = MeteredApi(bench.api, lambda *call: counted.append(call))
    await api.list(EVENTS)
    with pytest.raises(Exception, match="nothing"):
        await api.get(EVENTS, "nothing", namespace="team-a")
    assert counted == [("list", "events", "ok"), ("get", "events", "NotFoundError")]


class Counted:
    """Metrics that keep the resizes."""

    def __init__(self):
        self.resizes = []

    def count_resize(self, cause, role):
        self.resizes.append((cause, role))

    def count_decision(self, reason):
        assert reason in set(Reason)


def reports():
    """A reporter of a job that has its record, the events that it emits, and the resizes that it counts."""
    bench, counted = OperatorBench(), Counted()
    bench.store.records[JOB] = JobRecord(job=kube_job(), life=Life(policy=kube_job().spec.run_policy))
    made = JobReporter(bench.store, None, counted, None)
    return made, bench.said, counted.resizes


def passed(*applied, decided=None):
    decisions = (decided,) if decided is not None else ()
    return LoopPass(plan=Plan(revision=1, planned_at_s=0.0, decisions=decisions), applied=applied)


def delete(number):
    return DeletePod(
        pod=f"{JOB}-trainer-{number}", job=JOB, role=Role.TRAINER, node="n1", cause=Cause.HEADROOM, grace_s=1.0
    )


DONE = WriteOutcome(result=WriteResult.DONE)


def test_a_decision_is_said_once():
    made, said, _ = reports()
    for _ in range(3):
        made.report(passed(decided=decision()))
    assert [note.reason for note in said] == ["Grown"]


def test_a_decision_is_counted_once():
    """Until another one is taken: a pass of the loop is no news."""
    bench, metrics = OperatorBench(), Metrics()
    made = JobReporter(bench.store, None, metrics, None)
    for reason in (Reason.GROWN, Reason.GROWN, Reason.SHRUNK):
        made.report(passed(decided=decision(reason=reason)))
    assert 'edl_decisions_total{reason="Grown"} 1.0' in text(metrics)
    assert 'edl_decisions_total{reason="Shrunk"} 1.0' in text(metrics)


def test_the_queue_of_a_plan_is_the_position_of_each_job_in_it():
    """Of those that still wait after the plan; it goes where a job starts or ends, and is told to no job twice."""
    bench = OperatorBench()
    made, store = JobReporter(bench.store, None, Metrics(), None), bench.store
    made.report(LoopPass(plan=replace(queued("a", "b", "c"), queue=()), applied=()))
    made.report(LoopPass(plan=queued("a", "b", "c", starting="a"), applied=()))
    assert {name: store.plan_report_of(name).queue_position for name in "abc"} == {"a": None, "b": 1, "c": 2}
    for name in "abc":
        store.to_write_status.remove(name)
    made.report(LoopPass(plan=queued("c", "b"), applied=()))
    assert {name: store.plan_report_of(name).queue_position for name in "abc"} == {"a": None, "b": 2, "c": 1}
    bench.now_s += 60.0
    assert sorted(store.to_write_status.due()) == ["b", "c"]
    made.forget("b")
    made.report(LoopPass(plan=queued(), applied=()))
    assert "b" not in store.plan_reports
    assert store.plan_report_of("c").queue_position is None


def test_of_a_long_queue_the_first_have_a_position():
    """Each that starts moves all behind it, and each of these is a write."""
    names = [f"job-{number:03}" for number in range(MOST_POSITIONS + 5)]
    found = queue_positions(queued(*names))
    assert list(found.items()) == [(name, at) for at, name in enumerate(names[:MOST_POSITIONS], start=1)]


def queued(*names, starting=""):
    """A plan that leaves all of these waiting but one."""
    decisions = tuple(
        replace(decision(reason=Reason.STARTED if name == starting else Reason.WAITING), job=name) for name in names
    )
    return Plan(revision=1, planned_at_s=0.0, decisions=decisions, queue=names)


def test_a_shrink_is_a_resize_with_its_cause():
    made, _, counted = reports()
    made.report(passed((delete(3), DONE), (delete(2), DONE), decided=decision(now=4, target=2)))
    [resize] = made._store.plan_report_of(JOB).resizes
    assert (resize.before, resize.after, resize.cause, resize.by) == (4, 2, "Headroom", ResizeAuthor.EDL)
    assert counted == [("Headroom", Role.TRAINER)]


def test_servers_have_resizes_of_their_own():
    made, _, counted = reports()
    gone = DeletePod(pod=f"{JOB}-server-1", job=JOB, role=Role.SERVER, node="n1", cause=Cause.RATIO, grace_s=1.0)
    decided = replace(decision(now=4, target=2), servers=2, servers_target=1)
    made.report(passed((delete(3), DONE), (delete(2), DONE), (gone, DONE), decided=decided))
    trainers, servers = made._store.plan_report_of(JOB).resizes
    assert (trainers.role, trainers.before, trainers.after) == (Role.TRAINER, 4, 2)
    assert (servers.role, servers.before, servers.after, servers.cause) == (Role.SERVER, 2, 1, "Ratio")
    assert counted == [("Ratio", Role.SERVER), ("Headroom", Role.TRAINER)]


def test_a_refusal_is_kept_until_a_write_goes_through():
    made, said, _ = reports()
    refused = WriteOutcome(result=WriteResult.REFUSED, message="pods is forbidden: exceeded quota: q")
    made.report(passed((delete(1), refused), decided=decision()))
    assert made._store.plan_report_of(JOB).refusal.reason == "Quota"
    assert "Quota" in [note.reason for note in said]
    made.report(passed((delete(1), DONE), decided=decision()))
    assert made._store.plan_report_of(JOB).refusal is None


@pytest.mark.parametrize(
    ("state", "is_healthy", "is_ready"),
    [
        (OperatorState(knows_leader=False, is_leading=False), True, False),
        (OperatorState(knows_leader=True, is_leading=False), True, True),
        (OperatorState(knows_leader=True, is_leading=True), True, False),
        (OperatorState(knows_leader=True, is_leading=True, is_synced=True, passed_s=1.0), True, True),
        (OperatorState(knows_leader=True, is_leading=True, is_synced=True, passed_s=STUCK_AFTER_S), False, True),
    ],
)
def test_health(state, is_healthy, is_ready):
    assert (state.is_healthy, state.is_ready) == (is_healthy, is_ready)


@pytest.mark.parametrize(
    ("path", "before", "after", "reason"),
    [
        (("trainer", "replicas"), 0, 4, "Pinned"),
        (("trainer", "replicas"), 4, 0, "Unpinned"),
        (("trainer", "maxReplicas"), 4, 8, "Edited"),
        (("parameterServer", "replicas"), 0, 3, "Pinned"),
        (("parameterServer", "replicas"), 3, 0, "Unpinned"),
        (("parameterServer", "trainersPerServer"), 4, 2, "Edited"),
        (("runPolicy", "suspend"), False, True, None),
    ],
)
def test_edits_that_are_worth_an_event(path, before, after, reason):
    note = edit_of(path, before, after)
    assert (note.reason if note is not None else None) == reason


def test_a_pin_that_replaces_another_says_so():
    """Two resizes at once: the newest holds."""
    note = edit_of(("parameterServer", "replicas"), 4, 3)
    assert note is not None
    assert note.message == "spec.parameterServer.replicas pins the job to 3 servers, in place of 4"
    assert "in place" not in edit_of(("trainer", "replicas"), 0, 4).message


def test_kopf_writes_nothing():
    """No events, no finalizers, nothing remembered on the object."""
    seen_by_kopf = MemoryDiffBase()
    settings = make_settings(seen_by_kopf)
    assert settings.posting.enabled is False
    patch = kopf.Patch()
    body = kopf.Body({"metadata": {"uid": "u", "name": "x"}, "spec": {"a": 1}})
    seen_by_kopf.store(body=body, patch=patch, essence=seen_by_kopf.build(body=body))
    storage = settings.persistence.progress_storage
    storage.store(key="k", record={}, body=body, patch=patch)
    storage.purge(key="k", body=body, patch=patch)
    storage.touch(body=body, patch=patch, value="now")
    assert dict(patch) == {}
    assert seen_by_kopf.fetch(body=body) == {"spec": {"a": 1}}
    seen_by_kopf.forget("u")
    assert seen_by_kopf.fetch(body=body) is None
    registry = make_registry(None, seen_by_kopf, lambda **_: None)
    handlers = registry._changing.get_all_handlers()
    assert handlers
    assert not any(handler.requires_finalizer for handler in handlers)
    assert not registry._spawning.get_all_handlers()


def test_kopf_keeps_no_template():
    """It may have a megabyte, and there may be hundreds; of an edit of it nothing is told (A11)."""
    spec = {"trainer": {"minReplicas": 1, "template": {"spec": {"x": "y" * 1_000_000}}}, "weight": 7}
    body = kopf.Body({"metadata": {"uid": "u", "name": "x", "annotations": {"note": "z"}}, "spec": spec})
    assert MemoryDiffBase().build(body=body) == {"spec": {"trainer": {"minReplicas": 1}, "weight": 7}}


def test_authors_of_ends_are_those_that_the_definition_knows():
    """A server that its master lets go is EDL's doing."""
    assert {cause.value for cause in TerminationCause} - {"exit", "master"} <= {author.value for author in ResizeAuthor}
