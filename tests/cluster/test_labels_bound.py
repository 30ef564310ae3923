"""EDL's labels are EDL's: what network policies grant by them nobody can take by writing them (ADR 0164)."""

import json

import pytest

from tests.cluster.accounts import open_client, write_account_kubeconfig
from tests.cluster.chart_control_plane import job_of, open_admin, operate, start_charted
from tests.cluster.kwok_nodes import make_pod
from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for

JOBS = "team-a"
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": make_pod("x")["spec"]}
SELECTOR = {"selector": {"matchLabels": {"app": "x"}}}
OURS = {"app.kubernetes.io/managed-by": "edl"}


def of_pods(labels):
    """Everything of Kubernetes' own that makes pods with these labels, and a pod."""
    template = {"metadata": {"labels": {"app": "x", **labels}}, "spec": TEMPLATE["spec"]}
    always = {**template, "spec": {**template["spec"], "restartPolicy": "Always"}}
    yield "v1", "Pod", template
    yield "v1", "ReplicationController", {"spec": {"selector": {"app": "x"}, "template": always}}
    for kind in ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"):
        more = {"serviceName": "x"} if kind == "StatefulSet" else {}
        yield "apps/v1", kind, {"spec": {**SELECTOR, **more, "template": always}}
    yield "batch/v1", "Job", {"spec": {"template": template}}
    yield "batch/v1", "CronJob", {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}}


def manifest(version, kind, body):
    metadata = {**body.get("metadata", {}), "name": "x"}
    return json.dumps({"apiVersion": version, "kind": kind, **body, "metadata": metadata})


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    with start_charted(tmp_path_factory.mktemp("labels"), cluster_tools, namespaces=[JOBS]) as running:
        yield running


@pytest.fixture(scope="module")
def tenant(plane, tmp_path_factory):
    """`tenant("apply", ...)`: kubectl of somebody who may edit everything in the namespace."""
    plane.kubectl("create", "serviceaccount", "tenant", "-n", JOBS)
    plane.kubectl("create", "rolebinding", "t", "--clusterrole=edit", f"--serviceaccount={JOBS}:tenant", "-n", JOBS)
    path = tmp_path_factory.mktemp("tenant") / "kubeconfig"
    with open_client(plane.kubeconfig) as admin:
        write_account_kubeconfig(path, admin, authority=plane.authority, namespace=JOBS, account="tenant")

    def kubectl(*words, stdin=""):
        return plane.kubectl(*words, "-n", JOBS, stdin=stdin, kubeconfig=path)

    wait_for("the right to edit", lambda: _is_taken(kubectl, manifest("v1", "Pod", TEMPLATE)))
    return kubectl


def _is_taken(kubectl, text):
    try:
        kubectl("create", "--dry-run=server", "-f", "-", stdin=text)
    except HarnessError:
        return False
    return True


def refusal(kubectl, *words, stdin=""):
    """What the API server says to it, or nothing."""
    try:
        kubectl(*words, stdin=stdin)
    except HarnessError as error:
        return str(error)
    return ""


def test_a_tenant_makes_no_pod_that_looks_like_edls(tenant):
    """Neither itself nor by a controller; without the label all of them are taken."""
    made = manifest("v1", "Pod", {**TEMPLATE, "metadata": {"labels": OURS}})
    wait_for("the policy is heeded", lambda: not _is_taken(tenant, made))
    for version, kind, body in of_pods({}):
        assert refusal(tenant, "create", "--dry-run=server", "-f", "-", stdin=manifest(version, kind, body)) == ""
    for label in (OURS, {"edl.dev/role": "master"}, {"edl.dev/job": "digits"}):
        for version, kind, body in of_pods(label):
            said = refusal(tenant, "create", "--dry-run=server", "-f", "-", stdin=manifest(version, kind, body))
            assert f"the label {next(iter(label))} is reserved for pods that EDL creates" in said, (kind, said)


def test_the_policy_raises_no_warning(plane):
    """The API server has looked through its expressions."""

    def checked():
        told = json.loads(plane.kubectl("get", "validatingadmissionpolicy", "edl-labels", "-o", "json"))
        return told["status"] if told.get("status", {}).get("observedGeneration") else None

    assert wait_for("it is checked", checked).get("typeChecking") in (None, {})


def test_a_label_that_comes_later_is_refused_too(tenant):
    tenant("create", "-f", "-", stdin=manifest("v1", "Pod", TEMPLATE))
    said = refusal(tenant, "label", "pod/x", "app.kubernetes.io/managed-by=edl")
    assert "is reserved for pods that EDL creates" in said
    tenant("label", "pod/x", "app.kubernetes.io/managed-by=somebody")
    tenant("delete", "pod/x")


def test_edls_own_pods_and_masters_are_made_and_may_be_annotated(plane, tenant, tmp_path):
    """The operator's account makes trainers and the Deployment of the master, Kubernetes' controllers its pods."""
    with open_admin(plane, cpu="4") as admin, operate(tmp_path, plane, admin) as operator:
        operator.wait_leading()
        tenant("apply", "-f", "-", stdin=json.dumps(job_of("digits")))
        ready = ("get", "tj", "digits", "-o", "jsonpath={.status.trainers.ready} {.status.master.ready}")
        wait_for("the job and its master run", lambda: tenant(*ready) == "4 1")
    masters = tenant("get", "pods", "-l", "app.kubernetes.io/managed-by=edl,edl.dev/role=master", "-o", "name").split()
    assert len(masters) == 1
    tenant("annotate", *masters, "note=1")
    assert "is reserved for" in refusal(tenant, "label", *masters, "edl.dev/job=other", "--overwrite")
