"""One cluster of two real nodes a session; a namespace for each test.  Only inside `make e2e`: elsewhere left out.

Whatever uses it carries the mark `e2e`.
"""

import os
import secrets

import pytest
from kubernetes import client

from tests.cluster.accounts import open_client
from tests.cluster.families import FAMILIES, NODE_FAMILIES
from tests.cluster.toolbox import find_tools
from tests.cluster.waiting import wait_for
from tests.e2e.pods import Pods
from tests.e2e.real_cluster import start_cluster
from tests.e2e.surroundings import try_find

NODES = ("left", "right")


def pytest_collection_modifyitems(config, items):
    """Marks what needs real nodes, and leaves it out where there can be none."""
    needing = [item for item in items if "real_cluster" in getattr(item, "fixturenames", ())]
    for item in needing:
        item.add_marker(pytest.mark.e2e)
    if needing and try_find(os.environ) is None:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that fails shows what the cluster said last, and how its pods stand."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    if report.failed and "real_cluster" in arguments:
        report.sections.append(("real cluster", arguments["real_cluster"].last_words()))
    if report.failed and "pods" in arguments:
        report.sections.append(("pods", arguments["pods"].account()))
    return report


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory):
    surroundings = try_find(os.environ)
    tools = find_tools(os.environ, (*FAMILIES, *NODE_FAMILIES))
    with start_cluster(tmp_path_factory.mktemp("real"), tools, surroundings, nodes=NODES) as running:
        yield running


@pytest.fixture
def api(real_cluster):
    """The administrator's client."""
    with open_client(real_cluster.control_plane.kubeconfig) as opened:
        yield opened


@pytest.fixture
def core(api):
    return client.CoreV1Api(api)


@pytest.fixture
def namespace(core):
    """A fresh one; its pods are gone afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}})
    wait_for("the namespace's ServiceAccount", lambda: core.list_namespaced_service_account(name).items)
    yield name
    core.delete_namespace(name)
    core.delete_collection_namespaced_pod(name, grace_period_seconds=0)


@pytest.fixture
def pods(real_cluster, core, namespace):
    """Makes pods in the test's namespace, waits for them, looks into them."""
    return Pods(real_cluster.control_plane, core, namespace)
