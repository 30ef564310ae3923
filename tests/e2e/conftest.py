"""One cluster of two real nodes a session; a namespace for each test.

Whatever needs what only `make e2e` has carries the mark `e2e` and is left out elsewhere.
"""

import os
import secrets
import subprocess

import pytest
from kubernetes import client

from tests.cluster.accounts import open_client
from tests.cluster.families import FAMILIES, NODE_FAMILIES
from tests.cluster.toolbox import find_tools
from tests.e2e.pods import Pods, make_pod
from tests.e2e.product import make_product
from tests.e2e.real_cluster import apply, start_cluster
from tests.e2e.storage import make_volume
from tests.e2e.surroundings import try_find
from tests.harness.edl_command import EDL
from tests.harness.waiting import wait_for

NODES = ("left", "right")
COMMAND_BUDGET_S = 3000.0  # `edl wait` is one


def pytest_collection_modifyitems(config, items):
    """Marks what needs real nodes, and leaves it out where there can be none."""
    needing = [item for item in items if "surroundings" in getattr(item, "fixturenames", ())]
    for item in needing:
        item.add_marker(pytest.mark.e2e)
    if needing and try_find(os.environ) is None:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the end of the cluster's logs and the state of its pods to a failed test's report."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    for fixture, tell in (("real_cluster", "log_tail"), ("product", "account"), ("pods", "account")):
        if report.failed and fixture in arguments:
            report.sections.append((fixture, _told(getattr(arguments[fixture], tell))))
    return report


def _told(tell):
    try:
        return tell()
    except Exception as error:  # noqa: BLE001  a cluster that cannot tell must not hide what the test says
        return f"it does not tell: {error!r}"


@pytest.fixture(scope="session")
def surroundings():
    return try_find(os.environ)


@pytest.fixture(scope="session")
def real_cluster(surroundings, tmp_path_factory):
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


@pytest.fixture
def checkpoints(real_cluster, core, namespace):
    """A volume for the claim `checkpoints`, which pods on both nodes can mount at once; its folder on this machine."""
    volume = make_volume(real_cluster.shared, namespace, "checkpoints")
    apply(real_cluster.control_plane, [volume.manifest()])
    yield volume.folder
    core.delete_persistent_volume(volume.name)


@pytest.fixture
def etcd(pods, core, namespace):
    """An etcd server of one member, at etcd:2379."""
    labels, port = {"app": "etcd"}, 2379
    urls = [f"--listen-client-urls=http://0.0.0.0:{port}", f"--advertise-client-urls=http://etcd:{port}"]
    service = {"selector": labels, "ports": [{"port": port}]}
    core.create_namespaced_service(namespace, {"metadata": {"name": "etcd"}, "spec": service})
    ready = {"readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1}}
    return pods.run(make_pod("etcd", "etcd", ["etcd", "--data-dir=/tmp/data", *urls], labels=labels, container=ready))


@pytest.fixture(scope="session")
def product(real_cluster):
    """Installed once; its last words stand with every test that fails."""
    made = make_product(real_cluster)
    made.install()
    return made


@pytest.fixture
def edl(real_cluster, namespace, tmp_path):
    """`edl WORDS` in the test's namespace; what it says."""
    environment = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "EDL_RUN", "EDL_ON"}}

    def run(*words):
        where = ("--kubeconfig", str(real_cluster.control_plane.kubeconfig), "-n", namespace)
        done = subprocess.run(
            [EDL, *words, *where],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=COMMAND_BUDGET_S,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    return run
