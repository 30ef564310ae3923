"""Hostile manifests against an operator at work: all at once, beside an honest job that must not feel them (A11)."""

import json

import pytest
from kubernetes import client

from tests.cluster.chart_control_plane import job_of, open_admin, start_charted
from tests.cluster.hostile_manifests import CASES, Judge, by_judge
from tests.cluster.trainingjobs import GONE, GROUP, make_job
from tests.harness.waiting import wait_for

HOSTILE = "tenant-x"
HONEST = "tenant-a"
SMALL = {
    "spec.trainer.minReplicas": 1,
    "spec.trainer.maxReplicas": 1,
    "spec.parameterServer.maxReplicas": GONE,
}


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    with start_charted(tmp_path_factory.mktemp("hostile"), cluster_tools, namespaces=[HOSTILE, HONEST]) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane):
    with open_admin(plane, cpu="40", nodes=4) as api:
        yield api


@pytest.fixture(scope="module")
def names(plane, admin, operator):
    """{case: name of its job}: all that the API server takes, and the honest job last."""
    taken = [*by_judge(Judge.OPERATOR), *by_judge(Judge.NOBODY)]
    found = {case: f"x{number}" for number, case in enumerate(taken)}
    jobs = client.CustomObjectsApi(admin)
    for case, name in found.items():
        body = make_job(**{**SMALL, **CASES[case].edits, "metadata.name": name})
        jobs.create_namespaced_custom_object(**GROUP, namespace=HOSTILE, body=body)
    plane.kubectl("apply", "-n", HONEST, "-f", "-", stdin=json.dumps(job_of("honest")))
    return found


def read(admin, namespace):
    found = client.CustomObjectsApi(admin).list_namespaced_custom_object(**GROUP, namespace=namespace)["items"]
    return {job["metadata"]["name"]: job for job in found}


def condition(job, kind):
    conditions = job.get("status", {}).get("conditions", [])
    found = next((one for one in conditions if one["type"] == kind), {})
    return found.get("status"), found.get("reason", ""), found.get("message", "")


def ready(admin):
    return read(admin, HONEST)["honest"].get("status", {}).get("trainers", {}).get("ready", 0)


def test_an_honest_job_starts_grows_and_is_told(plane, admin, operator, names):
    """As if the others were not there; and it follows an edit."""
    wait_for("it has grown", lambda: ready(admin) == 4)
    wait_for("told", lambda: condition(read(admin, HONEST)["honest"], "Scaled")[:2] == ("True", "Max"))
    wait_for("nothing troubles the operator", lambda: operator.get("/readyz") == (200, "leads\n"))
    plane.kubectl("scale", "tj/honest", "-n", HONEST, "--replicas=2")
    wait_for("it has shrunk", lambda: ready(admin) == 2)


def test_each_mistake_is_told_with_its_field(plane, admin, operator, names):
    """On the job itself, and to whoever reads its events."""
    mistakes = by_judge(Judge.OPERATOR)

    def untold():
        jobs = read(admin, HOSTILE)
        return [case for case in mistakes if condition(jobs[names[case]], "Admitted")[:2] != ("False", "InvalidSpec")]

    left = mistakes

    def are_all_told():
        nonlocal left
        left = untold()
        return not left

    try:
        wait_for("all told", are_all_told)
    finally:
        print("untold:", left)
    jobs = read(admin, HOSTILE)
    for case in mistakes:
        message = condition(jobs[names[case]], "Admitted")[2]
        assert CASES[case].field.removeprefix("spec.trainer.template.spec.") in message, message
        assert jobs[names[case]]["status"]["reason"] == "InvalidSpec"

    def are_in_events():
        events = plane.read(f"/apis/events.k8s.io/v1/namespaces/{HOSTILE}/events")["items"]
        said = {event["regarding"]["name"] for event in events if event["reason"] == "InvalidSpec"}
        return {names[case] for case in mistakes} <= said

    wait_for("events", are_in_events)


def test_what_harms_nobody_is_no_invalid_spec(admin, operator, names):
    """Whether it runs is a question of room and classes."""
    jobs = read(admin, HOSTILE)
    for case in by_judge(Judge.NOBODY):
        assert condition(jobs[names[case]], "Admitted")[1] != "InvalidSpec", case


def test_a_field_that_this_kubernetes_does_not_know_is_told(admin, operator, names):
    """No pod is made without it: the API server was asked strictly."""
    name = names["a field of a later Kubernetes"]
    wait_for("told", lambda: condition(read(admin, HOSTILE)[name], "Admitted")[1] == "PodInvalid")
    assert 'unknown field "spec.quantumEntanglement"' in condition(read(admin, HOSTILE)[name], "Admitted")[2]
    pods = client.CoreV1Api(admin).list_namespaced_pod(HOSTILE, label_selector=f"edl.dev/job={name}").items
    assert not pods


def test_a_mistake_that_is_mended_is_over_at_once(plane, admin, operator, names):
    """The job then starts."""
    name = names["nodeSelectr"]
    fields = {"spec": {"trainer": {"template": {"spec": {"nodeSelectr": None}}}}}
    plane.kubectl("patch", "tj", name, "-n", HOSTILE, "--type=merge", "-p", json.dumps(fields))
    wait_for("admitted", lambda: condition(read(admin, HOSTILE)[name], "Admitted")[0] == "True")
