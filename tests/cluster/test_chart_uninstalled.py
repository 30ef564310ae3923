"""What runs goes on when the chart is uninstalled in mid-training, and is taken over when it is installed again."""

import json

import pytest
from kubernetes import client

from tests.cluster.chart_control_plane import CHART, IMAGES, NAMESPACE, job_of, open_admin, operate, start_charted
from tests.harness.waiting import wait_for

JOBS = "team-a"
MASTER = "edl.dev/job=digits,edl.dev/role=master"


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninstalled")
    with start_charted(folder, cluster_tools, namespaces=[JOBS]) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane):
    with open_admin(plane, cpu="4") as api:
        yield api


def ready_masters(admin):
    """Names of the master's pods that serve."""
    pods = client.CoreV1Api(admin).list_namespaced_pod(JOBS, label_selector=MASTER).items
    return {
        pod.metadata.name
        for pod in pods
        if not pod.metadata.deletion_timestamp
        and any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())
    }


def trainers(plane):
    return plane.read_job("digits", JOBS).get("status", {}).get("trainers", {}).get("ready", 0)


def test_a_lost_master_comes_back_while_nothing_is_installed(plane, admin, tmp_path):
    """Its Deployment makes a pod of the class edl-core, which therefore stays with the jobs."""
    with operate(tmp_path, plane, admin) as operator:
        operator.wait_leading()
        plane.kubectl("apply", "-n", JOBS, "-f", "-", stdin=json.dumps(job_of("digits")))
        wait_for("the job trains", lambda: trainers(plane) == 4)
        wait_for("its master serves", lambda: ready_masters(admin))

    plane.helm("uninstall", "edl", "--namespace", NAMESPACE)
    classes = plane.kubectl("get", "priorityclass", "-o", "jsonpath={.items[*].metadata.name}").split()
    assert [name for name in classes if name.startswith("edl-")] == ["edl-core"]
    before = ready_masters(admin)
    plane.kubectl("delete", "pod", "-n", JOBS, *before, "--grace-period=0", "--force")
    wait_for("its Deployment has made another one", lambda: ready_masters(admin) - before)
    assert trainers(plane) == 4

    plane.helm("install", "edl", str(CHART), *IMAGES, "--namespace", NAMESPACE, "--set", "operator.replicas=1")
    with operate(tmp_path, plane, admin) as operator:
        operator.wait_leading()
        plane.kubectl("scale", "tj/digits", "-n", JOBS, "--replicas=3")
        wait_for("the job is resized again", lambda: trainers(plane) == 3)


def test_another_release_takes_the_class_and_the_definition_over(plane):
    """Helm asks whose they are: `--take-ownership` is the answer of who knows that the first one is gone."""
    plane.helm("uninstall", "edl", "--namespace", NAMESPACE)
    plane.helm("install", "other", str(CHART), *IMAGES, "--namespace", NAMESPACE, "--take-ownership")
    owner = "jsonpath={.metadata.annotations.meta\\.helm\\.sh/release-name}"
    assert plane.kubectl("get", "priorityclass", "edl-core", "-o", owner) == "other"
    assert plane.kubectl("get", "crd", "trainingjobs.edl.dev", "-o", owner) == "other"
