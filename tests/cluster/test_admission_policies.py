"""What an administrator says of jobs holds for tenants, and EDL's labels fence what the operator may do (ADR 0162)."""

import json

import pytest
from kubernetes import client

from tests.cluster.accounts import open_client
from tests.cluster.chart_control_plane import job_of, open_admin, operate, start_charted, write_operator_kubeconfig
from tests.cluster.kwok_nodes import make_pod
from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for

JOBS = "team-a"
TRUSTED = "team-b"
BOUNDS = ("admissionPolicy.maxWeight=200", "admissionPolicy.priorityClasses={edl-core}")
OURS = {"app.kubernetes.io/managed-by": "edl", "edl.dev/job": "digits"}


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    folder = tmp_path_factory.mktemp("policies")
    with start_charted(folder, cluster_tools, namespaces=[JOBS, TRUSTED], values=BOUNDS) as running:
        yield running


@pytest.fixture(scope="module")
def submit(plane):
    """`submit(namespace, **edits)`: what the API server says to such a job; empty where it takes it."""

    def submitted(namespace, *, is_dry=True, **edits):
        words = ["--dry-run=server"] if is_dry else []
        return refusal(plane, "apply", *words, "-n", namespace, "-f", "-", stdin=json.dumps(job_of("digits", **edits)))

    wait_for("the policy is heeded", lambda: submitted(JOBS, **{"spec.weight": 201}))
    return submitted


def refusal(plane, *words, **options):
    try:
        plane.kubectl(*words, **options)
    except HarnessError as error:
        return str(error)
    return ""


def test_a_weight_and_a_class_are_bounded(submit):
    """With the field, the bound, and who may change it."""
    assert submit(JOBS) == ""
    assert submit(JOBS, **{"spec.weight": 200}) == ""
    said = submit(JOBS, **{"spec.weight": 201})
    assert "spec.weight: 201 is more than the 200" in said
    assert "admissionPolicy.maxWeight" in said
    said = submit(JOBS, **{"spec.priorityClassName": "system-cluster-critical"})
    assert "spec.priorityClassName: system-cluster-critical is not allowed in this namespace" in said
    assert "edl-core" in said


def test_a_namespace_has_bounds_of_its_own(plane, submit):
    """Its annotations stand above the chart's values; what is no number lets nothing by."""
    plane.kubectl(
        *("annotate", "namespace", TRUSTED, "edl.dev/max-weight=500"),
        "edl.dev/priority-classes=edl-core, system-cluster-critical",
    )
    heard = {"spec.weight": 500, "spec.priorityClassName": "system-cluster-critical"}
    wait_for("the annotations are heeded", lambda: submit(TRUSTED, **heard) == "")
    assert "more than the 500" in submit(TRUSTED, **{"spec.weight": 501})
    assert submit(JOBS, **heard) != ""
    plane.kubectl("annotate", "namespace", TRUSTED, "edl.dev/max-weight=many", "--overwrite")
    wait_for("the slip is told", lambda: "many, not an integer" in submit(TRUSTED))
    plane.kubectl("annotate", "namespace", TRUSTED, "edl.dev/max-weight-", "edl.dev/priority-classes-")
    wait_for("the chart's again", lambda: "more than the 200" in submit(TRUSTED, **{"spec.weight": 201}))


def test_what_a_job_had_before_the_bound_stays_allowed(plane, submit):
    """Else nobody could suspend it."""
    plane.kubectl("annotate", "namespace", TRUSTED, "edl.dev/max-weight=0", "--overwrite")
    wait_for("no bound", lambda: submit(TRUSTED, **{"spec.weight": 9_999}) == "")
    assert submit(TRUSTED, is_dry=False, **{"spec.weight": 9_999}) == ""
    plane.kubectl("annotate", "namespace", TRUSTED, "edl.dev/max-weight=many", "--overwrite")
    wait_for("the slip is told", lambda: "many, not an integer" in submit(TRUSTED, **{"spec.weight": 9_998}))
    edit = json.dumps({"metadata": {"finalizers": ["example.com/held"]}, "spec": {"trainer": {"maxReplicas": 9}}})
    for patch in (edit, json.dumps({"metadata": {"finalizers": None}})):
        plane.kubectl("patch", "tj", "digits", "-n", TRUSTED, "--type=merge", "-p", patch)
    plane.kubectl("annotate", "namespace", TRUSTED, "edl.dev/max-weight-")
    wait_for("the bound", lambda: submit(TRUSTED, **{"spec.weight": 10_000}))
    suspend = json.dumps({"spec": {"runPolicy": {"suspend": True}}})
    plane.kubectl("patch", "tj", "digits", "-n", TRUSTED, "--type=merge", "-p", suspend)
    plane.kubectl("delete", "tj", "digits", "-n", TRUSTED)


def test_the_policies_raise_no_warning(plane):
    """The API server has looked through their expressions."""
    for name in ("edl-jobs", "edl-operator"):

        def checked(name=name):
            told = json.loads(plane.kubectl("get", "validatingadmissionpolicy", name, "-o", "json"))
            return told["status"] if told.get("status", {}).get("observedGeneration") else None

        assert wait_for("it is checked", checked).get("typeChecking") in (None, {})


def test_the_operators_account_touches_only_what_is_edls(plane, tmp_path):
    """Its role lets it; the policy does not.  Everybody else's right to the same objects stands."""
    web = {**make_pod("web"), "apiVersion": "v1", "kind": "Pod"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {**web["spec"], "restartPolicy": "Always"}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template, "replicas": 0}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    for body in (web, deployment):
        plane.kubectl("apply", "-n", JOBS, "-f", "-", stdin=json.dumps(body))
    with open_client(plane.kubeconfig) as admin:
        kubeconfig = write_operator_kubeconfig(tmp_path / "operator", plane, admin)

    def said(*words, stdin=""):
        return refusal(plane, *words, "-n", JOBS, stdin=stdin, kubeconfig=kubeconfig)

    wait_for(
        "the policy is heeded",
        lambda: "only objects with EDL's labels" in said("delete", "pod/web", "--dry-run=server"),
    )
    other = json.dumps({**web, "metadata": {"name": "other"}})
    ours = json.dumps({**web, "metadata": {"name": "ours", "labels": OURS}})
    halves = [json.dumps({**web, "metadata": {"name": "half", "labels": {key: OURS[key]}}}) for key in OURS]
    for words, stdin in (
        (("delete", "pod/web"), ""),
        (("delete", "deployment/web"), ""),
        (("annotate", "pod/web", "a=b"), ""),
        (("label", "pod/web", "app.kubernetes.io/managed-by=edl", "edl.dev/job=x"), ""),
        (("create", "-f", "-"), other),
        *((("create", "-f", "-"), half) for half in halves),
        (("create", "secret", "generic", "theirs"), ""),
    ):
        assert "only objects with EDL's labels" in said(*words, stdin=stdin), words
    assert said("create", "--dry-run=server", "-f", "-", stdin=ours) == ""
    plane.kubectl("delete", "pod/web", "deployment/web", "-n", JOBS)


def test_all_that_the_operator_does_for_a_job_is_let_by(plane, tmp_path):
    """From its Secrets to its end: the fence stands around others' objects, not in EDL's way."""
    with open_admin(plane, cpu="4") as admin, operate(tmp_path, plane, admin) as operator:
        operator.wait_leading()
        plane.kubectl("apply", "-n", JOBS, "-f", "-", stdin=json.dumps(job_of("digits")))

        def ready():
            told = plane.read_job("digits", JOBS).get("status", {})
            return tuple(told.get(role, {}).get("ready") for role in ("trainers", "master"))

        wait_for("it runs", lambda: ready() == (4, 1))
        plane.kubectl("scale", "tj/digits", "-n", JOBS, "--replicas=2")
        wait_for("it shrinks", lambda: ready() == (2, 1))
        suspend = json.dumps({"spec": {"runPolicy": {"suspend": True}}})
        plane.kubectl("patch", "tj", "digits", "-n", JOBS, "--type=merge", "-p", suspend)
        core = client.CoreV1Api(admin)
        wait_for("all have left", lambda: not core.list_namespaced_pod(JOBS).items)
        assert "only objects with EDL's labels" not in operator.log.read_text(encoding="utf-8")
