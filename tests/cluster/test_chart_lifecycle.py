"""The chart on a real API server: installed, upgraded, rolled back, uninstalled; jobs and secrets outlive it.

A control plane of its own: the names of priority classes and of the kind TrainingJob are the cluster's.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from kubernetes import client

from tests.cluster.accounts import open_client, write_account_kubeconfig
from tests.cluster.chart_control_plane import CHART, IMAGES, NAMESPACE
from tests.cluster.control_plane import start_control_plane
from tests.cluster.trainingjobs import make_job
from tests.harness.errors import HarnessError
from tests.harness.waiting import BUDGET_S, wait_for

SURPLUS = {f"edl-surplus-{grade}": -grade for grade in range(1, 9)}


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    with start_control_plane(tmp_path_factory.mktemp("chart"), cluster_tools) as running:
        running.kubectl("create", "namespace", NAMESPACE)
        yield running


@pytest.fixture
def helm(plane):
    """`helm("install", sets...)` on the release `edl`.  Afterwards nothing of it is left, not even what is kept."""

    def run(what, *more, chart=CHART):
        place = () if what in {"uninstall", "rollback", "history"} else (str(chart), *IMAGES)
        return plane.helm(what, "edl", *place, "--namespace", NAMESPACE, *more)

    yield run
    if "edl" in plane.helm("list", "--short", "--namespace", NAMESPACE):
        run("uninstall")
    plane.delete_definition("trainingjobs.edl.dev")
    plane.kubectl("delete", "priorityclass", "edl-core", "--ignore-not-found")
    plane.kubectl("delete", "secret", "edl-etcd", "--ignore-not-found", "--namespace", NAMESPACE)


def objects(plane, kind, *more):
    return {o["metadata"]["name"]: o for o in json.loads(plane.kubectl("get", kind, "-o", "json", *more))["items"]}


def classes(plane):
    return {name: o["value"] for name, o in objects(plane, "priorityclass").items() if name.startswith("edl-")}


def policy(plane):
    return yaml.safe_load(objects(plane, "cm", "-n", NAMESPACE)["edl-policy"]["data"]["policy.yaml"])


def test_from_installation_to_uninstallation(plane, helm):
    """Each step leaves what it says; a job and its definition are there at the end."""
    notes = helm("install")
    assert "jobs of every namespace are managed" in notes
    assert "Masters have no etcd" in notes
    assert classes(plane) == {"edl-core": 0, "edl-surplus": 0, "edl-operator": 1_000_000, **SURPLUS}
    plane.wait_served("trainingjobs.edl.dev")
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(make_job()))

    helm("upgrade", "--set", "policy.reclaim=planner,policy.headroomPercent=5,operator.replicas=1")
    assert (policy(plane)["reclaim"], policy(plane)["headroomPercent"]) == ("planner", 5)
    assert objects(plane, "deployment", "-n", NAMESPACE)["edl-operator"]["spec"]["replicas"] == 1
    assert "edl-operator" not in objects(plane, "pdb", "-n", NAMESPACE)

    helm("rollback", "1")
    assert policy(plane)["reclaim"] == "scheduler"
    assert "edl-operator" in objects(plane, "pdb", "-n", NAMESPACE)

    helm("uninstall")
    assert classes(plane) == {"edl-core": 0}  # masters come back with it
    assert not [name for name in objects(plane, "clusterrole") if name.startswith("edl")]
    assert "digits" in objects(plane, "tj")

    helm("install")  # a definition that was kept is taken over
    assert "digits" in objects(plane, "tj")
    plane.kubectl("delete", "tj", "digits")


def test_an_upgrade_brings_the_new_definition(plane, helm, tmp_path):
    """Unlike the definitions in a chart's crds/, which Helm never touches again."""
    newer = tmp_path / "edl"
    shutil.copytree(CHART, newer)
    definition = newer / "files" / "trainingjobs.yaml"
    definition.write_text(re.sub(r'crd-revision: "\d+"', 'crd-revision: "1000"', definition.read_text()))
    helm("install")
    helm("upgrade", chart=newer)
    crd = json.loads(plane.kubectl("get", "crd", "trainingjobs.edl.dev", "-o", "json"))
    assert crd["metadata"]["annotations"]["edl.dev/crd-revision"] == "1000"


def test_the_identity_of_etcd_is_made_once(plane, helm):
    def identity():
        data = objects(plane, "secret", "-n", NAMESPACE)["edl-etcd"]["data"]
        return {name: base64.b64decode(value) for name, value in data.items()}

    helm("install", "--set", "etcd.enabled=true")
    first = identity()
    certificate = x509.load_pem_x509_certificate(first["tls.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    members = {f"edl-etcd-{number}.edl-etcd.edl-system.svc" for number in range(3)}
    assert members < set(names.get_values_for_type(x509.DNSName))
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(first["ca.crt"]))
    assert len(first["root-password"]) == 32

    helm("upgrade", "--set", "etcd.enabled=true,operator.logLevel=DEBUG")
    assert identity() == first
    helm("upgrade", "--set", "etcd.enabled=false")
    helm("uninstall")
    helm("install", "--set", "etcd.enabled=true")
    assert identity() == first, "the volumes of members that come back know this password only"


def test_a_class_whose_value_would_change_is_refused_with_the_way_out(plane, helm):
    helm("install")
    with pytest.raises(HarnessError, match=r"edl-core has the value 0, which cannot become 5.*delete priorityclass"):
        helm("upgrade", "--set", "priorityClasses.core=5")
    plane.kubectl("delete", "priorityclass", "edl-core", "edl-surplus")
    helm("upgrade", "--set", "priorityClasses.core=5")
    assert (classes(plane)["edl-core"], classes(plane)["edl-surplus"]) == (5, 5)


def test_notes_name_what_stands_above_core(plane, helm):
    """beside-the-scheduler.md 5: those may take core pods."""
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    usual = urgent | {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True}
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(urgent))
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(usual))
    plane.kubectl("create", "deployment", "shop", "--image=shop")
    patch = {"spec": {"template": {"spec": {"priorityClassName": "urgent"}}}}
    plane.kubectl("patch", "deployment", "shop", "-p", json.dumps(patch))
    plane.kubectl("create", "deployment", "blog", "--image=blog")
    notes = helm("install")
    plane.kubectl("delete", "deployment", "shop", "blog")
    plane.kubectl("delete", "priorityclass", "urgent", "usual")
    assert "default/shop (urgent, 9)" in notes
    assert "blog" not in notes
    assert "Set priorityClasses.core to 3" in notes


def test_everything_in_the_chart_is_accepted_by_the_api_server(plane, helm):
    """Strictly: a field that it does not know would be refused."""
    plane.kubectl("create", "namespace", "research")
    sets = "etcd.enabled=true,namespaces={research},metrics.dashboards.enabled=true"
    text = plane.helm("template", "edl", str(CHART), *IMAGES, "--namespace", NAMESPACE, "--set", sets)
    plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    plane.kubectl("delete", "namespace", "research", "--wait=false")


def test_the_namespace_may_demand_restricted_pods(plane, helm):
    plane.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    helm("install", "--set", "etcd.enabled=true,etcd.storage.persistent=false")
    wait_for("pods of operator and etcd", lambda: len(objects(plane, "pod", "-n", NAMESPACE)) >= 6)
    plane.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce-")


def test_with_namespaces_the_account_writes_nowhere_else(plane, helm, tmp_path):
    plane.kubectl("create", "namespace", "vision")
    helm("install", "--set", "namespaces={vision}")
    with open_client(plane.kubeconfig) as admin:
        kubeconfig = write_account_kubeconfig(
            tmp_path / "operator", admin, authority=plane.authority, namespace=NAMESPACE, account="edl"
        )
    with open_client(kubeconfig) as own:
        wait_for("its right there", lambda: _may(own, "create", "pods", "vision"))
        wait_for("its right to look everywhere", lambda: _may(own, "list", "pods", "default"))
        assert not _may(own, "create", "pods", "default")
        assert not _may(own, "get", "secrets", "default")
    plane.kubectl("delete", "namespace", "vision", "--wait=false")


@pytest.fixture(scope="module")
def standing(plane):
    """The release `edl` as its defaults make it, for tests that change nothing in it; they come last in this file."""
    plane.helm("install", "edl", str(CHART), *IMAGES, "--namespace", NAMESPACE)
    return plane


MAY = [
    ("list", "pods", True),
    ("watch", "nodes", True),
    ("create", "pods", True),
    ("delete", "pods", True),
    ("create", "pods/eviction", False),
    ("patch", "trainingjobs.edl.dev", False),
    ("patch", "trainingjobs/status.edl.dev", True),
    ("create", "deployments.apps", True),
    ("patch", "deployments.apps", True),
    ("get", "secrets", True),
    ("list", "secrets", False),
    ("delete", "secrets", False),
    ("update", "nodes", False),
    ("create", "priorityclasses", False),
    ("create", "trainingjobs.edl.dev", False),
    ("patch", "horizontalpodautoscalers", False),
    ("create", "clusterrolebindings", False),
    ("create", "pods/exec", False),
]


def test_the_operators_account_may_what_it_needs_and_no_more(standing, tmp_path):
    with open_client(standing.kubeconfig) as admin:
        kubeconfig = write_account_kubeconfig(
            tmp_path / "operator", admin, authority=standing.authority, namespace=NAMESPACE, account="edl"
        )
    with open_client(kubeconfig) as own:
        for verb, resource, answer in MAY:
            wait_for(f"{verb} {resource}: {answer}", lambda q=(verb, resource), a=answer: _may(own, *q, "default") == a)


def test_the_clusters_own_roles_include_jobs_but_nobodys_status(standing):
    """Aggregated: whoever may edit Deployments may edit jobs."""
    wanted = {
        "view": {"list": True, "create": False, "deletecollection": False},
        "edit": {"list": True, "create": True, "deletecollection": False},
        "admin": {"list": True, "create": True, "deletecollection": True},
    }
    for role, answers in wanted.items():
        standing.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
        for verb, answer in answers.items():
            question = ("auth", "can-i", verb, "trainingjobs.edl.dev", f"--as={role}")
            wait_for(f"{role} {verb}: {answer}", lambda q=question, a=answer: _says_yes(standing, *q) == a)
        status = ("trainingjobs.edl.dev", "--subresource=status", f"--as={role}")
        wait_for(f"{role} reads status", lambda s=status: _says_yes(standing, "auth", "can-i", "get", *s))
        for verb in ("update", "patch"):
            assert not _says_yes(standing, "auth", "can-i", verb, *status)
    standing.kubectl("delete", "rolebinding", *wanted)


def test_the_planner_may_be_asked_with_the_charts_role_and_no_more(standing, tmp_path):
    """`edl plan` names what is missing and the role; with that it works, and nothing else is opened by it."""
    standing.kubectl("create", "serviceaccount", "analyst", "-n", "default")
    with open_client(standing.kubeconfig) as admin:
        kubeconfig = write_account_kubeconfig(
            tmp_path / "analyst", admin, authority=standing.authority, namespace="default", account="analyst"
        )
    refused = _edl("plan", kubeconfig=kubeconfig)
    assert refused.returncode == 4
    for resource in ("pods", "nodes", "trainingjobs"):
        assert f'cannot list resource "{resource}"' in refused.stderr
    assert "--clusterrole=edl-planner-view" in refused.stderr

    account = "--serviceaccount=default:analyst"
    standing.kubectl("create", "clusterrolebinding", "analysts", "--clusterrole=edl-planner-view", account)
    asked = wait_for("the right", lambda: (ok := _edl("plan", kubeconfig=kubeconfig)).returncode == 0 and ok)
    assert "the policy is that of ConfigMap edl-system/edl-policy" in asked.stderr
    assert "left out" not in asked.stderr
    for question in (("get", "pods/log"), ("get", "secrets"), ("list", "configmaps"), ("delete", "pods")):
        assert not _says_yes(standing, "auth", "can-i", *question, "--as=system:serviceaccount:default:analyst")
    standing.kubectl("delete", "clusterrolebinding", "analysts")
    standing.kubectl("delete", "serviceaccount", "analyst", "-n", "default")


def _edl(*words, kubeconfig):
    command = [str(Path(sys.executable).with_name("edl")), *words, "--kubeconfig", str(kubeconfig)]
    environment = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "EDL_RUN", "EDL_ON"}}
    return subprocess.run(command, capture_output=True, text=True, timeout=BUDGET_S, check=False, env=environment)


def _says_yes(plane, *question):
    try:
        return plane.kubectl(*question).strip() == "yes"
    except HarnessError:  # kubectl's way to say no
        return False


def _may(own, verb, resource, namespace):
    name, _, group = resource.partition(".")
    name, _, part = name.partition("/")
    known = {"priorityclasses": "scheduling.k8s.io", "horizontalpodautoscalers": "autoscaling"}
    known |= {"clusterrolebindings": "rbac.authorization.k8s.io"}
    attributes = {"verb": verb, "resource": name, "group": group or known.get(name, ""), "namespace": namespace}
    if part:
        attributes["subresource"] = part
    review = client.AuthorizationV1Api(own).create_self_subject_access_review(
        {"spec": {"resourceAttributes": attributes}}
    )
    return review.status.allowed
