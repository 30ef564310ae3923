"""The chart's rights about GPUs on a real API server: the agent's to its own node's object (ADR 0283), the operator's
to follow reports and consent, and to scale the owners of idle pods (ADR 0293).
"""

import asyncio
import json
import os
import subprocess
import time
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
from kubernetes import client

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, STATEFUL_SETS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.objects.labels import DELETION_COST, IDLE_RECLAIM
from autoscaler.clusters.kubernetes.parsing.object_trimming import TRIMMERS
from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.errors import TemporaryError
from autoscaler.fault_isolation import JobErrors
from autoscaler.gpus.agent.node_gpus_api import NodeGpusApi
from autoscaler.gpus.report_documents import make_object, make_status, parse_report, renewal_asked_at_s
from autoscaler.operator.idle.owner_scaling import Scaled
from autoscaler.operator.store.consent_objects import ConsentObjects
from autoscaler.operator.store.gpu_report_store import GpuReportStore
from tests.cluster.accounts import open_client
from tests.cluster.chart_control_plane import NAMESPACE, start_charted, write_operator_kubeconfig
from tests.cluster.idle_owners import pods_of, scaling_of, start, workload
from tests.cluster.kwok_nodes import NodeShape, create_nodes, make_pod
from tests.harness import fake_nvml
from tests.harness.edl_command import EDL, edl
from tests.harness.master_process import free_port
from tests.harness.waiting import wait_for, wait_for_async

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
        tmp_path_factory.mktemp("gpus"),
        cluster_tools,
        namespaces=["nb"],
        values=("agent.enabled=true", "policy.idleReclaim=act"),
    ) as running:
        running.wait_served("nodegpus.edl.dev")
        yield running


@pytest.fixture(scope="module")
def admin(plane):
    with open_client(plane.kubeconfig) as api:
        create_nodes(api, {name: NodeShape(cpu="4", memory="8Gi") for name in ("n0", "n1")})
        yield api


@pytest.fixture(scope="module")
def account(plane, admin, tmp_path_factory):
    """The agent's calls with a token as a kubelet mounts it: bound to a pod on node n0."""
    folder = tmp_path_factory.mktemp("account")
    core = client.CoreV1Api(admin)
    spec = {"nodeName": "n0", "serviceAccountName": ACCOUNT}
    body = {**make_pod("agent", **spec), "apiVersion": "v1", "kind": "Pod"}
    pod = core.create_namespaced_pod(NAMESPACE, body)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "agent", "uid": pod.metadata.uid}
    request = {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}}
    token = core.create_namespaced_service_account_token(ACCOUNT, NAMESPACE, request).status.token
    server = admin.configuration.host.removeprefix("https://")
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


@pytest_asyncio.fixture
async def operator(plane, admin, tmp_path):
    """The connection of the chart's operator, with its rights alone."""
    opened = await connect(write_operator_kubeconfig(tmp_path / "operator", plane, admin), trimmers=TRIMMERS)
    yield opened
    await opened.close()


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


async def test_the_idle_pod_of_a_deployment_leaves_by_its_cost(plane, admin, operator):
    """Its controllers are the real ones; the operator may write the pod's cost and nothing else of it."""
    owner, pods = await start(plane, operator, DEPLOYMENTS, "web", 3)
    for change in (
        {"annotations": {DELETION_COST: "5", "other": "1"}},
        {"labels": {"other": "1"}},
        {"finalizers": ["example.com/kept"]},
    ):
        with pytest.raises(ForbiddenError, match="only objects with EDL's labels"):
            await operator.patch(PODS, pods[1], {"metadata": change}, namespace="nb")
    try_scale = scaling_of(operator)

    async def is_done():
        done = await try_scale(pods[1], owner, DEPLOYMENTS, 2)
        assert done is not Scaled.REFUSED
        return done is Scaled.DONE

    await wait_for_async("the scale", is_done)
    left = {pods[0], pods[2]}
    await wait_for_async("that very pod leaves", lambda: _are(operator, "web", left))
    owner = await operator.get(DEPLOYMENTS, "web", namespace="nb")
    with pytest.raises(ValueError, match="2 keeps its Deployment"):
        await try_scale(pods[0], owner, DEPLOYMENTS, 2)
    assert await pods_of(operator, "web") == left


@pytest.mark.parametrize("kind", [DEPLOYMENTS, STATEFUL_SETS])
async def test_an_owner_is_scaled_by_one_less_and_by_nothing_else(plane, admin, operator, kind):
    """Whoever has the operator's token takes no service away at once; the last replica may leave, as consent allows."""
    await start(plane, operator, kind, f"by-one-{kind.plural}", 3)
    labels = {"labels": {"app.kubernetes.io/managed-by": "edl", "edl.dev/job": "x"}}

    async def scale(count, **metadata):
        name, change = f"by-one-{kind.plural}", {"metadata": metadata, "spec": {"replicas": count}}
        await operator.patch(kind, name, change, namespace="nb", subresource=Subresource.SCALE)

    for count, metadata in ((0, {}), (1, {}), (3, {}), (4, {}), (0, labels)):
        with pytest.raises(ForbiddenError, match="only by one replica less"):
            await scale(count, **metadata)
    for left in (2, 1, 0):

        async def is_done(left=left):
            try:
                await scale(left)
            except ForbiddenError:  # its controller has not counted the one before
                return False
            return True

        await wait_for_async(f"{left} replicas", is_done)


async def test_the_highest_pod_of_a_stateful_set_leaves_and_no_other(plane, admin, operator):
    """Asked for another one, nothing is written."""
    owner, pods = await start(plane, operator, STATEFUL_SETS, "book", 2)
    assert pods == ["book-0", "book-1"]
    try_scale = scaling_of(operator)
    assert await try_scale("book-0", owner, STATEFUL_SETS, 0) is Scaled.REFUSED
    assert await try_scale("book-1", owner, STATEFUL_SETS, 0) is Scaled.DONE
    await wait_for_async("the highest leaves", lambda: _are(operator, "book", {"book-0"}))


async def _are(operator, name, expected):
    return await pods_of(operator, name) == expected


@asynccontextmanager
async def running(what):
    task = asyncio.create_task(what.run())
    try:
        yield what
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_operator_follows_consent_and_reports(plane, admin, operator, door):
    """Its watches of Namespaces, StatefulSets and NodeGpus, by the rights that the chart gives it."""
    errors = JobErrors(time.monotonic)
    settings = {"clock": time.monotonic, "jitter": lambda: 0.0}
    store = ObjectCache(errors, {})
    async with (
        running(ConsentObjects(operator, store, errors, namespaces=(), **settings)) as consents,
        running(GpuReportStore(operator, errors, **settings)) as reports,
    ):
        await wait_for_async("both are listed", lambda: consents.is_synced and reports.is_synced)
        plane.kubectl("annotate", "namespace", "nb", f"{IDLE_RECLAIM}=2h")
        plane.kubectl("create", "-n", "nb", "-f", "-", stdin=json.dumps(workload(STATEFUL_SETS, "seen", 0)))
        await door.create(make_object(NodeName("n0"), ""))
        await door.write_status(NodeName("n0"), make_status(report("n0")))

        def is_seen():
            agreed = (consents.namespace("nb") or {}).get("metadata", {}).get("annotations") == {IDLE_RECLAIM: "2h"}
            owner = consents.workload(STATEFUL_SETS, "nb", "seen") or {}
            return agreed and owner.get("spec", {}).get("replicas") == 0 and "n0" in reports.reports().by_node

        await wait_for_async("what is new is seen", is_seen)
        await reports.ask_for_report(NodeName("n0"), NOW_S + 60)
        assert renewal_asked_at_s(await door.get(NodeName("n0"))) == NOW_S + 60
