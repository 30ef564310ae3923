"""Starts that only a real API server refuses: their own jobs wait and say why, all others start (A11, ADR 0159)."""

import json

import pytest
from kubernetes import client

from tests.cluster.chart_control_plane import job_of, open_admin, start_charted
from tests.cluster.trainingjobs import GROUP
from tests.harness.waiting import wait_for

REFUSED, FULL, HONEST = "tenant-x", "tenant-y", "tenant-a"
WRONG_SPREAD = {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    folder = tmp_path_factory.mktemp("starts")
    with start_charted(folder, cluster_tools, namespaces=[REFUSED, FULL, HONEST]) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane):
    with open_admin(plane, cpu="40", nodes=3) as api:
        yield api


def submit(plane, namespace, body):
    plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(body))


def wrong_master(name):
    """What the definition lets pass and the API server's own validation does not."""
    body = job_of(name)
    body["spec"]["master"]["template"]["spec"]["topologySpreadConstraints"] = [WRONG_SPREAD]
    return body


def condition(admin, namespace, name, kind):
    jobs = client.CustomObjectsApi(admin)
    raw = jobs.get_namespaced_custom_object(**GROUP, namespace=namespace, name=name)
    found = raw.get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


def admitted(admin, namespace, name):
    found = condition(admin, namespace, name, "Admitted")
    return found.get("status"), found.get("reason")


def test_starts_that_the_server_refuses_are_told_in_its_words_and_hold_up_nobody(plane, admin, operator):
    """A wrong template, a quota on Deployments, somebody else's Deployment under the master's name."""
    core, apps = client.CoreV1Api(admin), client.AppsV1Api(admin)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/deployments.apps": "0"}}}
    core.create_namespaced_resource_quota(FULL, quota)
    labels = {"app": "theirs"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "theirs"}]}}
    theirs = {
        "metadata": {"name": "taken-master"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod},
    }
    apps.create_namespaced_deployment(REFUSED, theirs)
    submit(plane, REFUSED, wrong_master("wrong"))
    submit(plane, REFUSED, job_of("taken"))
    submit(plane, FULL, job_of("full"))
    submit(plane, HONEST, job_of("honest"))
    wait_for("the honest job runs", lambda: admitted(admin, HONEST, "honest") == ("True", "Started"))
    for namespace, name, reason in (
        (REFUSED, "wrong", "PodInvalid"),
        (REFUSED, "taken", "NameTaken"),
        (FULL, "full", "Quota"),
    ):
        wait_for(
            f"{name}: {reason}",
            lambda place=(namespace, name), reason=reason: admitted(admin, *place) == ("False", reason),
        )
    assert "maxSkew" in condition(admin, REFUSED, "wrong", "Admitted")["message"]
    for namespace in (REFUSED, FULL):
        assert core.list_namespaced_pod(namespace, label_selector="edl.dev/job").items == []
    core.delete_namespaced_resource_quota("none", FULL)
    wait_for("the quota is gone", lambda: admitted(admin, FULL, "full") == ("True", "Started"))
