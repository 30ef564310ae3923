"""Waiting for a condition outlives every state in which an object can be met."""

import json
import re
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoscaler.clusters.kubernetes.api.kinds import Kind
from tests.cluster.test_kube_api_real import definition_of
from tests.harness.errors import WaitTimeoutError

KIND = Kind(group="test.edl.dev", plural="waits", kind="Wait")
DONE = {"type": "Done", "status": "True"}
TESTS = Path(__file__).resolve().parents[1]
OF_KUBECTL_ITSELF = {"test_crd_refusals.py"}


@pytest.fixture(scope="module")
def kind(control_plane):
    """A kind whose status may be anything."""
    manifest = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **definition_of(KIND)}
    control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    control_plane.wait_served(f"{KIND.plural}.{KIND.group}")
    yield
    control_plane.delete_definition(f"{KIND.plural}.{KIND.group}")


@pytest.fixture
def put(control_plane, kind, namespace):
    """`put(status=...)`: the object `x` has that status from now on."""

    def replace(**more):
        document = {"apiVersion": f"{KIND.group}/{KIND.version}", "kind": KIND.kind, "metadata": {"name": "x"}, **more}
        control_plane.kubectl("replace", "--force", "-n", namespace, "-f", "-", stdin=json.dumps(document))

    return replace


@contextmanager
def meanwhile(work):
    """In a thread, which has ended afterwards."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize(
    "status", [{}, {"status": None}, {"status": {}}, {"status": {"conditions": None}}, {"status": {"conditions": []}}]
)
def test_an_object_without_conditions_is_waited_for(control_plane, namespace, put, status):
    """The API server writes `conditions: null` into a new definition, at which `kubectl wait` ends with an error."""
    put(**status)
    what = ("waits/x", "-n", namespace)
    with pytest.raises(WaitTimeoutError, match="Done of waits/x"):
        control_plane.wait_condition("Done", *what, budget_s=0)
    with meanwhile(lambda: put(status={"conditions": [DONE]})):
        control_plane.wait_condition("Done", *what)


def test_an_object_that_is_not_there_yet_is_waited_for(control_plane, namespace, put):
    with meanwhile(lambda: put(status={"conditions": [DONE]})):
        control_plane.wait_condition("Done", "waits/x", "-n", namespace)


def test_no_object_at_all_satisfies_nothing(control_plane, namespace, kind):
    with pytest.raises(WaitTimeoutError):
        control_plane.wait_condition("Done", "waits", "-n", namespace, budget_s=0)


def test_all_objects_have_to_be_there(control_plane, namespace, put):
    put(status={"conditions": [{**DONE, "status": "False"}]})
    with pytest.raises(WaitTimeoutError):
        control_plane.wait_condition("Done", "waits", "-n", namespace, budget_s=0)
    put(status={"conditions": [DONE]})
    control_plane.wait_condition("Done", "waits", "-n", namespace)


def test_nothing_in_the_harness_waits_by_kubectl():
    """But a test of what kubectl itself makes of our definition, and pages that are shown to people."""
    found = {path.name for folder in ("cluster", "e2e") for path in (TESTS / folder).rglob("*.py") if _waits(path)}
    assert found == OF_KUBECTL_ITSELF


def _waits(path):
    return re.search(r'kubectl\(\s*"wait"', path.read_text(encoding="utf-8"))
