"""The agent on a real API server, with the chart's role and policy: its own node's object alone (ADR 0283)."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from kubernetes import client

from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.errors import TemporaryError
from autoscaler.gpus.agent.node_gpus_api import NodeGpusApi
from autoscaler.gpus.report_documents import make_object, make_status, parse_report
from tests.cluster.accounts import open_client
from tests.cluster.chart_control_plane import NAMESPACE, start_charted
from tests.cluster.kwok_nodes import NodeShape, create_nodes, make_pod
from tests.harness import fake_nvml
from tests.harness.edl_command import EDL, edl
from tests.harness.master_process import free_port
from tests.harness.waiting import wait_for

ACCOUNT = "edl-agent"
NOW_S = 1_800_000_000.0


def report(node):
    gpu = GpuReport(
        uuid="GPU-0",
        model="NVIDIA H100",
        name="nvidia0",
        verdict=GpuVerdict.HELD,
        low_since_s=NOW_S - 600,
        pods=(PodName("ml/notebook"),),
        reason="nobody computed",
        busy_ratio=0.0,
        watts=84.0,
    )
    return NodeGpuReport(node=NodeName(node), gpus=(gpu,), reported_at_s=NOW_S)


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    with start_charted(
        tmp_path_factory.mktemp("gpus"), cluster_tools, namespaces=[], values=("agent.enabled=true",)
    ) as running:
        running.wait_served("nodegpus.edl.dev")
        yield running


@pytest.fixture(scope="module")
def account(plane, tmp_path_factory):
    """The agent's calls with a token as a kubelet mounts it: bound to a pod on node n0."""
    folder = tmp_path_factory.mktemp("account")
    with open_client(plane.kubeconfig) as api:
        create_nodes(api, {name: NodeShape(cpu="4", memory="8Gi") for name in ("n0", "n1")})
        core = client.CoreV1Api(api)
        spec = {"nodeName": "n0", "serviceAccountName": ACCOUNT}
        body = {**make_pod("agent", **spec), "apiVersion": "v1", "kind": "Pod"}
        pod = core.create_namespaced_pod(NAMESPACE, body)
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "agent", "uid": pod.metadata.uid}
        request = {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}}
        token = core.create_namespaced_service_account_token(ACCOUNT, NAMESPACE, request).status.token
        server = api.configuration.host.removeprefix("https://")
        uid = core.read_node("n0").metadata.uid
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(plane.authority.read_bytes())
    opened = NodeGpusApi(server, account=folder)
    assert opened.identity().node == "n0"
    assert opened.identity().uid == uid
    return SimpleNamespace(door=opened, server=server, account=folder)


@pytest.fixture
def door(account):
    return account.door


def refusal(call):
    try:
        asyncio.run(call)
    except TemporaryError as error:
        return str(error)
    return ""


def test_an_agent_writes_its_own_nodes_object(door, plane):
    """Made with its Node as owner, written and read by the product's own code."""
    identity = door.identity()
    assert not asyncio.run(door.write_status(identity.node, make_status(report("n0"))))
    asyncio.run(door.create(make_object(identity.node, identity.uid)))
    asyncio.run(door.create(make_object(identity.node, identity.uid)))  # it is there already
    assert asyncio.run(door.write_status(identity.node, make_status(report("n0"))))
    assert parse_report(asyncio.run(door.get(identity.node))) == report("n0")
    assert "held" in plane.kubectl("get", "gpus", "n0")


def test_an_agent_writes_no_other_nodes_object(door, plane):
    """Neither a new one nor one that stands; nor anything but its Node as owner."""
    plane.kubectl("create", "-f", "-", stdin=json.dumps(make_object(NodeName("n1"), "")))
    own = "only the NodeGpus of its own node"
    wait_for(
        "the policy is heeded",
        lambda: own in refusal(door.write_status(NodeName("n1"), make_status(report("n1")))),
    )
    assert own in refusal(door.create(make_object(NodeName("n2"), "")))
    for name, value in (("finalizers", ["example.com/kept"]), ("labels", {"a": "b"})):
        body = make_object(NodeName("n0"), "")
        body["metadata"][name] = value
        assert "nothing but their Node" in refusal(door.create(body)), name


@pytest.mark.parametrize("change", [{"verdict": "idle"}, {"watts": -1}, {"uuid": ""}, {"pods": ["a/a"] * 65}])
def test_nonsense_is_refused_by_the_definition(door, change):
    """The API server's bounds are the report's."""
    asyncio.run(door.create(make_object(NodeName("n0"), "")))
    status = make_status(report("n0"))
    status["gpus"][0].update(change)
    assert "422" in refusal(door.write_status(NodeName("n0"), status))


def test_the_agents_process_reports_what_the_driver_tells(account, plane, tmp_path):
    """From the fake driver to the table of `edl get gpus`, by the token alone; in less memory than a node may spare."""
    scenario = fake_nvml.Scenario(tmp_path / "scenario")
    scenario.devices = [fake_nvml.Device("GPU-9", name="Tesla_T4", watts=10, energy=-1, gpm=None)]
    scenario.write()
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(fake_nvml.build(tmp_path).parent),
        fake_nvml.VARIABLE: str(scenario.path),
    }
    options = ["--report", "--api-server", account.server, "--service-account", str(account.account), "--no-kubelet"]
    options += ["--window", "5s", "--listen", f"127.0.0.1:{free_port()}"]
    place = ("--kubeconfig", str(plane.kubeconfig), "--on", "kubernetes")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([EDL, "agent", *options], env=environment, stderr=log)
    try:
        wait_for("its verdict", lambda: "free" in edl("get", "gpus/n0", *place) and "GPU-9" in str(told(plane)))
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert int(status.split("VmRSS:")[1].split()[0]) < 64 << 10
        assert edl("top", "nodes", *place).splitlines()[1].split()[3:7] == ["1", "0", "0", "1"]
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0, (tmp_path / "log").read_text()


def told(plane):
    return json.loads(plane.kubectl("get", "gpus", "n0", "-o", "json"))["status"]
