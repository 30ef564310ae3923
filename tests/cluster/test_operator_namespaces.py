"""The operator with the rights of the chart's `namespaces`: two of three, each by a Role of its own."""

import json
import re

import pytest
from kubernetes import client

from autoscaler.clusters.kubernetes.cache.object_cache import STALE_LIMIT_S
from tests.cluster.chart_control_plane import NAMESPACE, has_right, job_of, open_admin, operate, start_charted
from tests.harness.waiting import wait_for

OURS = ("team-a", "team-b")
OTHERS = "team-c"


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    """The chart, with two namespaces named."""
    named = f"namespaces={{{','.join(OURS)}}}"
    folder = tmp_path_factory.mktemp("namespaces")
    with start_charted(folder, cluster_tools, namespaces=(*OURS, OTHERS), values=[named]) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane):
    with open_admin(plane, cpu="8") as api:
        yield api


@pytest.fixture(scope="module")
def operator(plane, admin, tmp_path_factory):
    for namespace in OURS:  # what is refused before is in its log for good
        wait_for(f"its rights in {namespace}", lambda there=namespace: has_right(plane, "create", "pods", "-n", there))
    wait_for("its right to look", lambda: has_right(plane, "list", "pods", "--all-namespaces"))
    with operate(tmp_path_factory.mktemp("operator"), plane, admin) as process:
        assert process.more == ("--namespaces=team-a,team-b",)
        yield process


def status(plane, namespace, job="digits"):
    return plane.read_job(job, namespace).get("status", {})


def ready(plane, namespace, job="digits"):
    return status(plane, namespace, job).get("trainers", {}).get("ready", 0)


def test_jobs_of_the_named_namespaces_run_and_the_others_are_not_touched(plane, admin, operator):
    """The web pods of any namespace are seen: they take room that trainers must give."""
    operator.wait_leading()
    for namespace in (*OURS, OTHERS):
        plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(job_of("digits", maximum=6)))
    for namespace in OURS:
        wait_for(f"{namespace} runs", lambda there=namespace: ready(plane, there) == 6)
        secrets = client.CoreV1Api(admin).list_namespaced_secret(namespace).items
        assert {one.metadata.name for one in secrets} >= {"digits-authority", "digits-member", "digits-master"}
    assert status(plane, OTHERS) == {}
    assert client.CoreV1Api(admin).list_namespaced_pod(OTHERS).items == []

    plane.kubectl("patch", "tj", "digits", "-n", "team-b", "--type=merge", "-p", '{"spec":{"trainer":{"replicas":2}}}')
    wait_for("the edit is heard", lambda: ready(plane, "team-b") == 2)
    wait_for("that is told", lambda: "Shrunk" in plane.event_reasons("team-b"))
    refused = re.findall(r".*(?:[Ff]orbidden|\b403\b).*", operator.log.read_text(encoding="utf-8"))
    assert refused == []
    for namespace in (*OURS, OTHERS):
        plane.kubectl("delete", "tj", "digits", "-n", namespace)
    wait_for("no pods", lambda: not client.CoreV1Api(admin).list_pod_for_all_namespaces().items)


def test_a_namespace_whose_rights_are_gone_stops_all_writing_and_is_named(plane, operator):
    """Nobody knows what its jobs are asked for now (rule 21)."""
    operator.wait_leading()
    plane.kubectl("delete", "rolebinding", "edl-operator", "-n", "team-b")
    wait_for("it says so", lambda: "team-b" in operator.get("/readyz")[1])
    wait_for("the view is old", lambda: view_age_s(operator) > STALE_LIMIT_S)
    plane.kubectl("apply", "-n", "team-a", "-f", "-", stdin=json.dumps(job_of("late")))
    plane.kubectl(
        "create", "rolebinding", "back", "--role=edl-operator", f"--serviceaccount={NAMESPACE}:edl", "-n", "team-b"
    )
    wait_for("it goes on", lambda: ready(plane, "team-a", "late") == 4)
    wait_for("all is well", lambda: operator.get("/readyz")[1] == "leads\n")


def view_age_s(operator):
    return float(re.findall(r"^edl_view_age_seconds (\S+)", operator.get("/metrics")[1], re.MULTILINE)[0])
