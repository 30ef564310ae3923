"""One control plane a session, started when the first test asks for it; nodes and a namespace for each test.

Whatever uses it carries the mark `cluster`: `make test QUICK=1` leaves it out.
"""

import os
import secrets

import pytest
import pytest_asyncio
from kubernetes import client

from autoscaler.clusters.kubernetes.api.http_client import connect
from tests.cluster.accounts import open_client, write_account_kubeconfig
from tests.cluster.chart_control_plane import operate
from tests.cluster.control_plane import start_control_plane
from tests.cluster.kwok_nodes import create_nodes, delete_nodes
from tests.cluster.toolbox import find_tools
from tests.harness.waiting import wait_for


def pytest_collection_modifyitems(items):
    """Modules that share the session's control plane come last: it takes CPU time as long as it runs."""
    for item in items:
        if "cluster_tools" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
    sharing = {item.path for item in items if "control_plane" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path in sharing)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the end of the control plane's logs to a failed test's report."""
    report = yield
    plane = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and plane is not None:
        report.sections.append(("control plane", plane.log_tail()))
    return report


@pytest.fixture(scope="session")
def cluster_tools():
    """The programs.  Not built here: that takes longer than any test may; `make test` has built them before."""
    return find_tools(os.environ)


@pytest.fixture(scope="session")
def control_plane(cluster_tools, tmp_path_factory):
    with start_control_plane(tmp_path_factory.mktemp("control-plane"), cluster_tools) as running:
        yield running


@pytest.fixture
def api(control_plane):
    """The administrator's client."""
    with open_client(control_plane.kubeconfig) as opened:
        yield opened


@pytest.fixture
def core(api):
    return client.CoreV1Api(api)


@pytest.fixture
def namespace(core):
    """A fresh one, in which nothing more appears by itself.

    Its pods are gone afterwards; the rest of it follows in the background.
    """
    name = f"test-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}})
    wait_for("the namespace's ServiceAccount", lambda: core.list_namespaced_service_account(name).items)
    wait_for("the authority that every namespace is given", lambda: core.list_namespaced_config_map(name).items)
    yield name
    core.delete_namespace(name)
    core.delete_collection_namespaced_pod(name, grace_period_seconds=0)


@pytest.fixture
def nodes(api):
    """`nodes(NodeShape(gpus=8), NodeShape())` makes nodes that are Ready; their names.  Gone after the test."""
    made = []

    def make(*shapes):
        names = [f"node-{secrets.token_hex(4)}" for _ in shapes]
        made.extend(names)
        create_nodes(api, dict(zip(names, shapes, strict=True)))
        return names

    yield make
    delete_nodes(api, made)


@pytest.fixture
def account(control_plane, api, core, namespace, tmp_path):
    """`account("operator")` is a new ServiceAccount of the namespace; the kubeconfig with its token."""

    def make(name):
        core.create_namespaced_service_account(namespace, {"metadata": {"name": name}})
        return write_account_kubeconfig(
            tmp_path / f"{name}.kubeconfig", api, authority=control_plane.authority, namespace=namespace, account=name
        )

    return make


@pytest_asyncio.fixture
async def raw(control_plane):
    """The administrator's connection, as the product opens it."""
    opened = await connect(control_plane.kubeconfig)
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
def operator(plane, admin, tmp_path_factory):
    """One operator for all tests of a module, which each leaves well; it has logged no traceback."""
    with operate(tmp_path_factory.mktemp("operator"), plane, admin) as process:
        process.wait_leading()
        yield process
    assert "Traceback" not in process.log.read_text(encoding="utf-8")
