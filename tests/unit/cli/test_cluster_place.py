"""`edl` on a cluster: what is listed, watched, waited for and read of its objects."""

import re

import pytest

from autoscaler.cli.exit_codes import Exit
from autoscaler.cli.kubernetes.cluster_place import conditions_of
from autoscaler.cli.kubernetes.live_replicas import live_replicas_of
from autoscaler.cli.output.object_tables import GrowingTable
from autoscaler.cli.place_values import JobFacts, LogOptions, PodSelector, SizeRequest
from autoscaler.clusters.kubernetes.api import kinds
from autoscaler.clusters.kubernetes.objects.labels import COMPARE
from tests.unit.cli.kube_place import NAMESPACE, STATUS, event, raw_pod, refused, stage, status, table


@pytest.mark.parametrize("kind", ["TrainingJob", "Pod", "Deployment", "Node"])
@pytest.mark.parametrize("raw", [{}, {"status": None}, {"status": {}}, {"status": {"conditions": None}}])
def test_an_object_without_a_status_meets_no_condition(kind, raw):
    """`edl wait` goes on waiting for it: an API server may answer it before anybody has written one."""
    assert conditions_of({"kind": kind, **raw}) <= {""}


def test_tables_of_a_cluster(digits):
    """Jobs as `kubectl get tj` has them and what they aim at; nodes with what is taken of them; everybody's pods."""
    _, place = digits
    heading, row = table(place, "tj")
    assert heading.split()[:10] == [
        "NAME",
        "TRAINERS",
        "TARGET",
        "MIN",
        "MAX",
        "SERVERS",
        "PROGRESS",
        "REMAINING",
        "CHECKPOINT",
        "REASON",
    ]
    assert row.split()[:7] == ["digits", "2", "3", "2", "8", "-", "25.0%"]
    assert row.split()[7] == "-", "nothing is known of the time that it still takes"
    assert row.split()[8].endswith("d"), "the age of its last checkpoint"
    assert row.split()[9] == "NodeFit"
    assert table(place, "trainingjobs", "digits", "wide")[1].endswith("n1 is full")
    assert table(place, "nodes")[1].split()[:6] == ["n1", "Ready", "3/8", "3Gi/32Gi", "-", "3/110"]
    pods = {line.split()[0]: line.split()[1:5] for line in table(place, "pod")[1:]}
    assert pods["digits-trainer-1"] == ["Running", "trainer", "core", "n1"]
    assert pods["web-1"] == ["Running", "-", "-", "n1"]
    assert table(place, "tj", f"{NAMESPACE}/digits", "name") == ["trainingjob/digits"]
    assert table(place, "deployments") == ["nothing there"]


def test_all_namespaces_say_which():
    """With -A a column more, and things of everywhere."""
    with stage(is_all_namespaces=True) as (made, place):
        made.make(kinds.PODS, raw_pod("web-1", namespace="default", node="n1"))
        assert table(place, "pods")[1].split()[:2] == ["default", "web-1"]


def test_a_misspelt_name_is_answered(digits):
    """With what is near, and where it was looked for."""
    _, place = digits
    assert "in namespace team-a; did you mean digits?" in refused(Exit.NOT_FOUND, place.get, "tj", "digit")
    assert "known here: tj, node" in refused(Exit.USAGE, place.get, "foo", "")
    assert "no deployment at all" in refused(Exit.NOT_FOUND, place.get, "deployment", "web")


def test_replicas_are_compared_by_a_request_that_the_status_answers():
    """The last comparison, if none is made in time; why the job has failed where they differ; nothing of other jobs."""
    last = {"step": 8, "trainers": 2, "digest": "d8", "request": "an older one"}
    group = {"group": {"globalBatch": 32}}
    with stage() as (made, place):
        made.make_job(told=status(progress=STATUS["progress"] | {"replicas": last}), **group)
        late = place.compare_replicas("digits", budget_s=0)
        request = made.get(kinds.TRAINING_JOBS, "digits")["metadata"]["annotations"][COMPARE]
        assert (late.step, late.is_answer, late.is_settled) == (8, False, False)
        assert late.line == (
            "after step 8 the replicas of 2 trainers are the same, digest d8, the last comparison; "
            "no newer one was made in time"
        )
    answer = live_replicas_of({"status": {"progress": {"replicas": last | {"request": request}}}}, request)
    assert answer.is_settled
    assert answer.content == {"step": 8, "trainers": 2, "digest": "d8", "is_fresh": True, "problem": ""}
    with stage() as (made, place):
        failed = {"type": "Failed", "status": "True", "message": "replicas differ: w is not the same at t0 and t1"}
        made.make_job(told=status(failed), **group)
        assert "w is not the same" in place.compare_replicas("digits", budget_s=60).problem
        made.make_job("shares")
        assert "no group" in refused(Exit.USAGE, place.compare_replicas, "shares", budget_s=0)


def test_a_server_that_is_draining_is_still_there():
    """It serves until what it holds has been moved: wanted and present are told apart while a job shrinks."""
    with stage() as (made, place):
        made.make_job(told=status(servers={"ready": 3, "target": 2, "draining": 1}), server={"maxReplicas": 3})
        heading, row = table(place, "tj")
    assert row.split()[heading.split().index("SERVERS")] == "3/2"


def test_every_kind_has_a_table(digits):
    """Nothing that can be asked for is without columns."""
    made, place = digits
    made.make(kinds.DEPLOYMENTS, {"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": {"replicas": 1}})
    for kind in ("tj", "node", "pod", "deployment"):
        assert len(table(place, kind, output="wide")) >= 2


def test_a_watched_table_stays_aligned(digits):
    """A short name after a long one keeps its columns."""
    _, place = digits
    found, lines = place.get("pod", ""), GrowingTable(is_wide=False)
    heading, first = lines.add(found.objects[0], found.columns)
    (second,) = lines.add(found.objects[-1], found.columns)
    assert heading.index("STATUS") == first.index("Running") == second.index("Running")


def test_events_are_those_of_jobs_in_order(digits):
    """Of the jobs and their pods, gone ones too; other people's are left out."""
    made, place = digits
    made.make(kinds.EVENTS, event("Late", "b", at="2026-01-02T03:06:05Z"))
    made.make(kinds.EVENTS, event("Killing", "a", kind="Pod", name="digits-trainer-7"))
    made.make(kinds.EVENTS, event("Pulled", "c", kind="Pod", name="web-1"))
    told = [one.text.split(" ago  ")[1] for one in place.events(is_watching=False)]
    assert [line.split() for line in told] == [["pod/digits-trainer-7", "Killing", "a"], ["tj/digits", "Late", "b"]]


def test_logs_by_role_and_number(digits):
    """The master that leads, the first trainer, or the one of a number; whole characters across chunks."""
    made, place = digits
    for name, ready in (("digits-master-a", "True"), ("digits-master-b", "False")):
        labels = {"edl.dev/job": "digits", "edl.dev/role": "master"}
        told = {"conditions": [{"type": "Ready", "status": ready}]}
        made.make(kinds.PODS, raw_pod(name, node="n1", labels=labels, status=told))
    made.server.logs[NAMESPACE, "digits-master-b"] = [b"leads\n"]
    made.server.logs[NAMESPACE, "digits-trainer-1"] = ["é\n".encode()[:1], "é\n".encode()[1:]]
    assert "".join(place.log("tj", "digits", PodSelector(role="master"), LogOptions())) == "leads\n"
    assert "".join(place.log("tj", "digits", PodSelector(ordinal=1), LogOptions())) == "é\n"
    assert "".join(place.log("pod", "digits-trainer-1", PodSelector(), LogOptions(tail=0))) == ""
    assert "tj/digits has no trainer 9 now; trainers that it has: 0, 1" in refused(
        Exit.NOT_FOUND, lambda: list(place.log("tj", "digits", PodSelector(ordinal=9), LogOptions()))
    )
    assert "no server now" in refused(
        Exit.NOT_FOUND, lambda: list(place.log("tj", "digits", PodSelector(role="server"), LogOptions()))
    )


def test_watching_tells_each_change_once(digits):
    """What stands, then what comes; and refuses what is not there."""
    made, place = digits
    changes = place.watch("tj", "digits")
    assert next(changes).objects[0]["status"]["reason"] == "NodeFit"
    place.scale("tj", "digits", [SizeRequest(field="trainers", count=5)], is_dry=False)
    assert next(changes).objects[0]["spec"]["trainer"]["replicas"] == 5
    place.delete("tj", "digits", is_dry=False)
    assert next(changes).objects[0]["metadata"]["name"] == "digits"
    made.make_job("other")
    assert "did you mean" in refused(Exit.NOT_FOUND, lambda: next(place.watch("tj", "othr")))
    news = place.events(is_watching=True)
    made.make(kinds.EVENTS, event("Gone", "of a job that was there"))
    made.make(kinds.EVENTS, event("Started", "begins", name="other"))
    assert "Gone" in next(news).text
    assert "Started" in next(news).text


def test_what_wait_waits_for(digits):
    """Conditions by their types, and by the names that runs have; a failed job never completes."""
    made, place = digits
    assert place.is_condition_met("tj", "digits", "ready")
    assert place.is_condition_met("tj", "digits", "running")
    assert not place.is_condition_met("tj", "digits", "completed")
    assert place.is_condition_met("pod", "digits-trainer-0", "ready")
    assert place.is_condition_met("tj", "gone", "delete")
    assert not place.is_condition_met("tj", "digits", "delete")
    made.make_job("bad", status({"type": "Failed", "status": "True", "message": "6 failures in a row"}))
    assert "6 failures in a row" in refused(Exit.FAILED, place.is_condition_met, "tj", "bad", "completed")


def test_what_no_plan_knows_of_a_job():
    """It has ended, when, and why; its ratio is measured."""
    with stage() as (made, place):
        made.make_job(told=status(), server={"maxReplicas": 4, "trainersPerServer": "auto"})
        ended = {"type": "Failed", "status": "True", "message": "6 failures in a row"}
        made.make_job("bad", status(ended, completionTime="2026-01-02T03:04:05Z"))
        assert place.job_facts("digits") == JobFacts(is_ratio_measured=True)
        assert re.fullmatch("Failed [0-9]+d ago: 6 failures in a row", place.job_facts("bad").ended)
        assert place.job_facts("none") == JobFacts()
        still = {"type": "Idle", "status": "True", "message": "still-trainer-0 has completed no batch"}
        made.make_job("still", status(still))
        made.make_job("works", status({**still, "status": "False"}))
        assert place.job_facts("still").idle == still["message"]
        assert not place.job_facts("works").idle
        alone = {"type": "Progressing", "status": "False", "reason": "NoTrainer", "message": "no trainer takes part"}
        made.make_job("alone", status(alone))
        assert place.job_facts("alone").not_training == "NoTrainer: no trainer takes part"
        assert not place.job_facts("works").not_training
