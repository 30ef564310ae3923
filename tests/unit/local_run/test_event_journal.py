"""The story of a run, from what has become different in its objects."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.local.control_plane.pod_annotations import PID
from autoscaler.clusters.local.run_files.run_folder import make_run_folder
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import Bottleneck, Decision, Reason
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key
from autoscaler.local_run import event_journal
from autoscaler.local_run.decision_journal import DecisionJournal
from autoscaler.local_run.event_journal import EventJournal
from autoscaler.loop import JournalEntry

USER = FieldOwner("kubectl", is_apply=False)
ONE = {"name": "main", "image": "none"}
DECISION = Decision(
    job="digits",
    now=1,
    target=1,
    min=1,
    max=1,
    servers=0,
    servers_target=0,
    reason=Reason.KEPT,
    bottleneck=Bottleneck.NOT_ACTIVE,
    message="stays",
)


class Story:
    """A server whose changes are told one after the other, as the control plane does."""

    def __init__(self, journal):
        self.now_s = 0.0
        self.server = MemoryServer(now=lambda: 0.0)
        self.journal = journal
        self.errors = JobErrors(lambda: self.now_s)
        self.events = EventJournal(journal, clock=lambda: self.now_s, errors=self.errors)
        self._version = self.server.history.version

    def tell(self):
        """What is new since the last call: object, reason and message."""
        changes, self._version = self.server.history.since(self._version), self.server.history.version
        before = len(self.journal.events)
        self.events.handle_changes(changes)
        return [(event.object, event.reason, event.message) for event in list(self.journal.events)[before:]]

    def create(self, kind, name, spec, **metadata):
        self.server.create(kind, {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": spec}, USER)
        return self.tell()

    def rewrite(self, kind, name, **parts):
        before = self.server.get(kind, "default", name)
        self.server.rewrite(kind, before, {**before, **{part: {**before[part], **new} for part, new in parts.items()}})
        return self.tell()

    def report(self, name="p", *, pid="", is_ready=False, phase="Running", restarts=0, **status):
        """As the kubelet does."""
        told = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
            "containerStatuses": [{"name": "main", "restartCount": restarts, "state": {}, "lastState": {}, **status}],
        }
        return self.rewrite(PODS, name, metadata={"annotations": {PID: pid}}, status=told)


@pytest.fixture
def story(tmp_path):
    folder = make_run_folder(tmp_path, "test", described={})
    with RunJournal(folder, clock=lambda: 0.0) as journal:
        yield Story(journal)


def add_pod(story, name="p"):
    return story.create(PODS, name, {"containers": [ONE], "terminationGracePeriodSeconds": 5})


def test_the_life_of_a_pod_is_told_step_by_step(story):
    """From its creation to the end of its process, each step once, also on disk."""
    assert add_pod(story) == [("pod/p", "Pending", "waits for a node")]
    story.server.bind("default", "p", "node-1")
    assert story.tell() == [("pod/p", "Scheduled", "to node-1")]
    assert story.report(pid="7") == [("pod/p", "Started", "pid 7 on node-1")]
    assert story.report(pid="7", is_ready=True) == [("pod/p", "Ready", "on node-1")]
    assert story.report(pid="7", is_ready=True) == []
    story.server.delete(PODS, "default", "p")
    assert story.tell() == [("pod/p", "Leaving", "has 5 s to end")]
    assert story.report(phase="Failed", state={"terminated": {"exitCode": 3}}) == [("pod/p", "Gone", "exited with 3")]
    story.server.finish("default", "p")
    assert story.tell() == []
    written = [json.loads(line)["reason"] for line in story.journal.folder.events.read_text().splitlines()]
    assert written == ["Pending", "Scheduled", "Started", "Ready", "Leaving", "Gone"]


def test_a_pod_without_room_and_one_deleted_before_it_started_are_told(story):
    """Whoever waits reads why."""
    add_pod(story)
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    told = story.rewrite(PODS, "p", status={"conditions": [verdict]})
    assert told == [("pod/p", "Unschedulable", "no node has free capacity for it")]
    story.server.delete(PODS, "default", "p")
    assert story.tell() == [("pod/p", "Gone", "it had no process yet")]


def test_a_restart_is_told_with_the_last_words_and_what_comes_next(story):
    """Each one, also when two ended alike."""
    add_pod(story)
    ended = {"terminated": {"exitCode": 137, "message": "; the last lines of its log:\n  | on"}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "the process was killed; starts again at once"}}
    words = "was killed by SIGKILL; the last lines of its log:\n  | on\nstarts again at once"
    for restarts in (0, 1):
        told = story.report(state=waiting, lastState=ended, restarts=restarts)
        assert told == [("pod/p", "Restarting", words)]
    full = {"waiting": {"reason": "NoRoom", "message": "no task; starts again in 1 s"}}
    assert story.report(state=full) == [("pod/p", "NoRoom", "no task; starts again in 1 s")]


def test_a_pod_that_did_not_leave_in_time_is_told(story):
    """Apart from one that was killed by somebody else."""
    add_pod(story)
    story.server.bind("default", "p", "node-1")
    story.report(pid="7")
    story.server.delete(PODS, "default", "p")
    story.tell()
    told = story.report(phase="Failed", state={"terminated": {"exitCode": 137, "reason": "GraceOver"}})
    assert [reason for _, reason, _ in told] == ["GraceOver", "Gone"]
    assert told[0][2] == "pid 7 did not leave within its grace of 5 s"


def test_how_long_a_pod_waited_is_known_to_the_moment(story):
    """From creation to readiness; a restart changes nothing, and who is gone is forgotten."""
    add_pod(story)
    pod = story.server.get(PODS, "default", "p")
    story.now_s = 0.25
    assert story.events.pending_s(pod) is None
    story.report(pid="7", is_ready=True)
    assert story.events.pending_s(pod) == 0.25
    story.now_s = 9.0
    story.report(pid="8", is_ready=True)
    assert story.events.pending_s(pod) == 0.25
    story.server.delete(PODS, "default", "p")
    story.tell()
    assert story.events.pending_s(pod) is None


def test_what_users_change_is_told(story):
    """Jobs, Deployments and nodes."""
    assert story.create(TRAINING_JOBS, "digits", {"trainer": {}}) == [("tj/digits", "Submitted", "")]
    assert story.rewrite(TRAINING_JOBS, "digits", spec={"trainer": {"replicas": 3}}) == [
        ("tj/digits", "Pinned", "pinned to 3 trainers")
    ]
    assert story.rewrite(TRAINING_JOBS, "digits", spec={"trainer": {"replicas": 0}}) == [
        ("tj/digits", "Unpinned", "EDL decides the number of trainers again")
    ]
    spec = {"replicas": 1, "template": {"spec": {"containers": [ONE]}}}
    assert story.create(DEPLOYMENTS, "web", spec) == [("deployment/web", "Submitted", "1 replicas wanted")]
    assert story.rewrite(DEPLOYMENTS, "web", spec={"replicas": 2}) == [
        ("deployment/web", "Scaled", "from 1 to 2 replicas")
    ]
    owner = {"apiVersion": "edl.dev/v1alpha1", "kind": "TrainingJob", "name": "digits", "uid": "u", "controller": True}
    assert story.create(DEPLOYMENTS, "digits-master", spec, ownerReferences=[owner]) == []
    story.server.create(NODES, {"metadata": {"name": "node-1"}, "spec": {}}, USER)
    node = story.server.get(NODES, None, "node-1")
    story.server.rewrite(NODES, node, {**node, "metadata": {**node["metadata"], "labels": {"edl.dev/drain": "1"}}})
    assert story.tell() == [("node/node-1", "Draining", "")]
    story.server.delete(TRAINING_JOBS, "default", "digits")
    assert story.tell() == [("tj/digits", "Gone", "")]


def test_what_the_operator_tells_of_a_job_is_told_once(story):
    """A warning is a failure; a longer series is no news, nor a decision, which is told where it is taken."""
    kinds = []
    for reason, level in (("Completed", "Normal"), ("TrainerFailed", "Warning"), ("Shrunk", "Normal")):
        body = {
            "metadata": {"name": f"digits.{reason}".lower(), "namespace": "default"},
            "reason": reason,
            "note": f"{reason}!",
            "type": level,
            "regarding": {"kind": "TrainingJob", "name": "digits", "namespace": "default"},
        }
        story.server.create(EVENTS, body, USER)
        assert story.tell() == ([] if reason == "Shrunk" else [("tj/digits", reason, f"{reason}!")])
        kinds.append(story.journal.events[-1].kind)
    assert kinds == ["Job", "Failed", "Failed"]
    event = story.server.get(EVENTS, "default", "digits.trainerfailed")
    story.server.rewrite(EVENTS, event, {**event, "series": {"count": 2}})
    assert story.tell() == []


def test_a_fault_with_one_object_keeps_no_other_from_the_journal(story, monkeypatch):
    """Nor does it end the run: it is recorded with the object (A11)."""

    def fail(_before, _after):
        raise ValueError("a fault of EDL")

    monkeypatch.setitem(event_journal._WRITERS, PODS, fail)
    assert add_pod(story) == []
    assert story.errors.fails(object_key("pods", "default", "p"), GuardedTask.EVENT)
    spec = {"replicas": 1, "template": {"spec": {"containers": [ONE]}}}
    assert story.create(DEPLOYMENTS, "web", spec) == [("deployment/web", "Submitted", "1 replicas wanted")]


def test_a_fault_with_one_decision_keeps_no_other_from_the_journal(story):
    """Also not what the pass has written."""
    decisions = [SimpleNamespace(job="default/faulty"), replace(DECISION, job="default/digits")]
    loop = SimpleNamespace(journal=[JournalEntry(at_s=0.0, decision=decision) for decision in decisions])
    journal = DecisionJournal(story.journal, loop, story.errors)
    journal.record_pass(SimpleNamespace(applied=()))
    assert story.errors.fails("default/faulty", GuardedTask.REPORT)
    (line,) = [json.loads(line) for line in story.journal.folder.decisions.read_text().splitlines()]
    assert line["job"] == "default/digits"


def test_a_decision_taken_again_is_told_again(story):
    """With the same words as before, which the operator's events count as one series; a size that stays is no event."""
    grown = replace(DECISION, job="default/digits", reason=Reason.GROWN, bottleneck=Bottleneck.MAX, message="1 to 2")
    shrunk = replace(grown, reason=Reason.SHRUNK, message="2 to 1")
    kept = replace(grown, reason=Reason.KEPT, message="stays at 2")
    taken = [grown, kept, shrunk, grown]
    loop = SimpleNamespace(journal=[])
    journal = DecisionJournal(story.journal, loop, story.errors)
    for at_s, decision in enumerate(taken):
        loop.journal.append(JournalEntry(at_s=float(at_s), decision=decision))
        journal.record_pass(SimpleNamespace(applied=()))
    told = [(event.kind, event.object, event.reason, event.message) for event in story.journal.events]
    assert told == [
        ("Decided", "tj/digits", "Grown", "1 to 2"),
        ("Decided", "tj/digits", "Shrunk", "2 to 1"),
        ("Decided", "tj/digits", "Grown", "1 to 2"),
    ]
    lines = [json.loads(line) for line in story.journal.folder.decisions.read_text().splitlines()]
    assert [line["decision"] for line in lines] == ["Grown", "Kept", "Shrunk", "Grown"]
