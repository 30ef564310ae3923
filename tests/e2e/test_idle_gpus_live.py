"""GPUs that nobody uses, from the kubelet's socket and the driver to somebody else's container (promise A12).

The chart's agents run in pods on both real nodes.  Only kubelet's devices and the driver's figures are made up.
"""

import contextlib

import pytest

from autoscaler.gpus.pods.pod_resources import PodResources
from tests.e2e import nvidia_runtime
from tests.e2e.conftest import NODES
from tests.e2e.device_plugin import RESOURCE, VISIBLE
from tests.e2e.gpu_node import BUSY_WATTS, IDLE_WATTS, gpus_on
from tests.e2e.gpu_scene import GpuScene, who_has
from tests.e2e.pods import make_pod
from tests.e2e.product import NAMESPACE
from tests.e2e.real_cluster import apply
from tests.harness import fake_nvml

pytestmark = pytest.mark.timeout(2700)
LEFT, RIGHT = NODES
SETTINGS = {
    "agent.enabled": "true",
    "agent.window": "10s",
    "agent.runtimeClassName": nvidia_runtime.NAME,
    "policy.idleWindowSeconds": "20",
    "policy.idleReclaim": "act",
    "policy.idleNoticeSeconds": "60",
}
BEFORE = {**SETTINGS, "agent.enabled": "false", "policy.idleWindowSeconds": "300", "policy.idleReclaim": "observe"}
SHOW_AND_WAIT = f"echo ${VISIBLE}; exec sleep 100000"
CONSENT = {"edl.dev/idle-reclaim": "1m"}


@pytest.fixture(scope="module")
def gpus(real_cluster, tmp_path_factory):
    """Three GPUs on the left node, two on the right one, and there a third one that two pods share."""
    apply(real_cluster.control_plane, [nvidia_runtime.RUNTIME_CLASS])
    library = fake_nvml.build(tmp_path_factory.mktemp("nvml"))
    with (
        gpus_on(real_cluster, LEFT, library, 3) as left,
        gpus_on(real_cluster, RIGHT, library, 2, replicas=2) as right,
    ):
        yield {LEFT: left, RIGHT: right}


@pytest.fixture
def told(gpus):
    """Who has which device of a node, as its kubelet tells."""
    with contextlib.ExitStack() as stack:
        readers = {
            node: stack.enter_context(contextlib.closing(PodResources(one.pod_resources))) for node, one in gpus.items()
        }
        yield lambda node: who_has(readers[node].list_allocations(), gpus[node])


@pytest.fixture(scope="module")
def agents(product, gpus):
    """The chart's agents on both nodes, with short windows."""
    product.upgrade(_settings(SETTINGS))
    product.cluster.control_plane.kubectl(
        "rollout", "status", "daemonset/edl-agent", "--namespace", NAMESPACE, "--timeout=300s", budget_s=400
    )
    yield
    product.upgrade(_settings(BEFORE))


def _settings(values):
    return ",".join(f"{name}={value}" for name, value in values.items())


@pytest.fixture
def scene(agents, real_cluster, api, namespace, checkpoints, edl):
    return GpuScene(real_cluster.control_plane, api, namespace, checkpoints, edl)


def with_gpu(name, *, node, annotations=None):
    """A pod of somebody else's, which shows its device."""
    pod = make_pod(
        name,
        "busybox",
        ["sh", "-c", SHOW_AND_WAIT],
        container={"resources": {"limits": {RESOURCE: "1"}}},
        nodeSelector={"kubernetes.io/hostname": node},
        terminationGracePeriodSeconds=0,
    )
    pod["metadata"]["annotations"] = annotations or {}
    return pod


def test_an_idle_trainer_and_an_unused_notebook_give_their_gpus_to_those_who_wait(scene, gpus, told, pods):
    """Nothing is taken while nobody waits; then what does nothing goes, what computes stays, and no record is lost."""
    left, right = gpus[LEFT], gpus[RIGHT]
    notebook, works = right.devices
    pods.run(with_gpu("notebook", node=RIGHT, annotations=CONSENT))
    pods.run(with_gpu("works", node=RIGHT, annotations=CONSENT))
    right.use(works)
    scene.start_job("first", most=2, node=LEFT)
    busy, idle = scene.wait_trainers("first", 2)
    scene.start_job("second", most=1, node=LEFT)
    (other,) = scene.wait_trainers("second", 1)
    devices = {pod: device for device, pod in told(LEFT).items()}
    assert set(devices) == {idle, busy, other}
    left.use(*devices.values())
    for gpu_node, device, pod in (*((left, devices[pod], pod) for pod in devices), (right, notebook, "notebook")):
        gpu_node.open_context(device, scene.container_of(pod))

    scene.hold_up(idle)
    left.leave(devices[idle])
    name = f"nvidia{left.devices.index(devices[idle])}"
    scene.wait_row(LEFT, name, verdict="held", pod=idle, job="first")
    scene.wait_row(LEFT, f"nvidia{left.devices.index(devices[busy])}", verdict="active", pod=busy, job="first")
    scene.wait_row(RIGHT, "nvidia0", verdict="held", pod="notebook")
    scene.wait_row(RIGHT, "nvidia1", verdict="active", pod="works")
    held = {"tj/first", "pod/notebook"}
    scene.wait(
        "edl top counts the same", lambda: {name for name, row in scene.top().items() if row["HELD"] != "0"} == held
    )
    check_counts(scene.top()["tj/first"])
    scene.wait("the job is told as idle", lambda: "TrainerIdle" in scene.events("first"))
    scene.wait("edl why tells it", lambda: f"Idle: {idle} has completed no batch since" in scene.why("first"))
    assert {idle, busy} == set(scene.trainers("first"))
    assert not scene.events("notebook").keys() & {"IdleGpus", "IdleGpusGivenBack"}

    scene.patch_job("second", maxReplicas=2)
    pods.create(with_gpu("waits", node=RIGHT))
    (heir,) = set(scene.wait_trainers("second", 2)) - {other}
    owners = {devices[busy]: busy, devices[other]: other, devices[idle]: heir}
    scene.wait("the kubelet tells who has it now", lambda: told(LEFT) == owners)
    left.use(devices[idle])
    scene.wait("somebody else has the notebook's GPU", lambda: pods.is_ready("waits"))
    assert pods.logs("waits").strip() == notebook
    scene.wait("the kubelet tells so", lambda: told(RIGHT) == {notebook: "waits", works: "works"})
    scene.wait("the notebook is gone", lambda: not pods.exists("notebook"))
    scene.wait("told why", lambda: {"IdleGpus", "IdleGpusGivenBack"} <= scene.events("notebook").keys())
    assert list(scene.trainers("first")) == [busy]

    scene.wait_row(LEFT, name, verdict="active", pod=heir, job="second")
    scene.wait_row(RIGHT, "nvidia0", pod="waits")
    scene.hurry()
    for job in ("first", "second"):
        scene.end(job)


def check_counts(row):
    """One of its two GPUs computes, and the watts are those of both."""
    assert (row["GPUS"], row["ACTIVE"], row["HELD"]) == ("2", "1", "1")
    assert IDLE_WATTS < float(row["WATTS"]) < 2 * BUSY_WATTS


def test_pods_that_share_a_gpu_are_told_apart_by_their_processes(scene, gpus, pods):
    """From the driver's number of a process to the pod, by the node's /proc and its folders of logs."""
    right = gpus[RIGHT]
    right.offer_shared()
    for name in ("alone", "alone-too", "computes", "waits"):  # the shared one is given away last
        pods.run(with_gpu(name, node=RIGHT))
    assert {pods.logs(name).partition("::")[0].strip() for name in ("computes", "waits")} == {right.shared}
    right.open_context(right.shared, scene.container_of("computes"), percent=60)
    right.open_context(right.shared, scene.container_of("waits"))
    right.use(right.shared)
    expected = {"computes": "active", "waits": "unknown"}
    scene.wait(f"told: {expected}", lambda: expected.items() <= scene.pod_verdicts(RIGHT).items())
    for name in expected:
        scene.wait_row(RIGHT, "nvidia2", verdict="active", pod=name)
