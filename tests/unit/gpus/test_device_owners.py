"""Identifiers of devices, paths of control groups, and who has which device."""

import pytest

from autoscaler.gpus.owners import DeviceClaim, HoldingPod
from autoscaler.gpus.pods.cgroup_paths import find_pod_uid
from autoscaler.gpus.pods.device_ids import ResolvedDevice, resolve_claimed, resolve_device
from autoscaler.gpus.pods.node_owners import make_owners
from autoscaler.gpus.pods.pod_resources import Allocation
from autoscaler.gpus.pods.process_pods import ProcessPods
from autoscaler.gpus.readings import DeviceReading

GPU, DIVIDED = "GPU-3a1b", "GPU-77aa"
DEVICES = (
    DeviceReading(uuid=GPU, model="", minor=0),
    DeviceReading(uuid="MIG-1", model="", minor=1, parent_uuid=DIVIDED, gpu_instance=1),
    DeviceReading(uuid="MIG-GPU-77aa/2/0", model="", minor=1, parent_uuid=DIVIDED, gpu_instance=2),
    DeviceReading(uuid="MIG-3", model="", minor=2, parent_uuid="GPU-88", gpu_instance=1),
)
ONE, TWO = (HoldingPod(namespace="ns", name=name) for name in ("one", "two"))
UID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
UNDERSCORED = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("identifier", "device"),
    [
        (GPU, (GPU, False)),
        (f"{GPU}::3", (GPU, True)),
        ("MIG-1", ("MIG-1", False)),
        ("MIG-1::7", ("MIG-1", True)),
        ("MIG-GPU-77aa/2/0", ("MIG-GPU-77aa/2/0", False)),
        ("nvidia0", (GPU, False)),
        ("nvidia0/vgpu2", (GPU, True)),
        ("nvidia1/gi2", ("MIG-GPU-77aa/2/0", False)),
        ("nvidia1/gi1/vgpu0", ("MIG-1", True)),
        ("nvidia1", None),
        ("nvidia0/gi1", None),
        ("nvidia9", None),
        (DIVIDED, None),
        ("GPU-unknown", None),
        (f"{GPU}::x", None),
        ("nvidia99999999999999999999", None),
        ("", None),
        ("0", None),
    ],
)
def test_identifiers_in_the_wild(identifier, device):
    """Each form means its device, and what means none is unresolved."""
    found = resolve_device(identifier, DEVICES)
    assert found == (device and ResolvedDevice(uuid=device[0], is_share=device[1]))


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        ("gpu-0", GPU),
        ("gpu-2-mig-9-0-1", "MIG-3"),
        ("gpu-1-mig-9-0-1", None),
        ("gpu-1", None),
        ("gpu-7", None),
        ("imex-1", None),
        (GPU, None),
    ],
)
def test_names_of_claimed_devices(name, uuid):
    """An instance whose GPU has others is not known by its claim."""
    assert resolve_claimed(name, DEVICES) == (uuid and ResolvedDevice(uuid=uuid, is_share=False))


SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-9f.scope"


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        (f"0::{SYSTEMD}\n", UID),
        (f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-9f.scope\n", UID),
        (f"12:memory:/kubepods/burstable/pod{UID}/9f\n3:cpu,cpuacct:/kubepods/burstable/pod{UID}/9f\n0::/\n", UID),
        (f"5:devices:/kubepods/pod{UID}/9f\n", UID),
        (f"1:name=systemd:{SYSTEMD}\n", UID),
        (f"0::/../../pod{UID}/9f\n", UID),
        (f"0::/../../kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-9f.scope\n", UID),
        (f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/x\n", UID),
        (f"0::/kubepods/burstable/pod{STATIC}/9f\n", STATIC),
        (f"0::{SYSTEMD}/user/pod{'f' * 8}-0000-0000-0000-{'0' * 12}/own\n", UID),
        (f"5:devices:/kubepods/pod{UID}/9f\n4:cpu:/kubepods/pod{UID[:-1]}0/9f\n", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/\n", None),
        ("", None),
        ("garbage pod\x00\n::::\n", None),
        (f"0::/kubepods/tripod{UID}/9f\n", None),
    ],
)
def test_uids_of_pods_in_control_groups(text, uid):
    """Both versions and both drivers; a group that a container made itself names no other pod."""
    assert find_pod_uid(text) == uid


@pytest.fixture
def node(tmp_path):
    """A /proc and the kubelet's log folders."""
    for pid, path in {7: SYSTEMD, 8: "/init.scope", 9: f"/kubepods/pod{STATIC}/9f"}.items():
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "cgroup").write_text(f"0::{path}\n")
    (tmp_path / "pods" / f"ns_one_{UID}").mkdir(parents=True)
    (tmp_path / "pods" / "not-a-pod").mkdir()
    return tmp_path


def test_pods_of_processes(node):
    """By UID and the kubelet's folder; a process that has ended, or whose pod has no folder, is left out."""
    pods = ProcessPods(node / "proc", node / "pods")
    assert pods.find([7, 8, 9, 4711]) == {7: ONE}
    (node / "pods" / f"ns_two_{STATIC}").mkdir()
    assert pods.find([7, 9]) == {7: ONE, 9: TWO}


def test_processes_without_folders_have_no_pods(tmp_path):
    """Neither /proc nor log folders: nothing is found, and nothing raised."""
    assert ProcessPods(tmp_path / "proc", tmp_path / "pods").find([1, 2]) == {}


def test_owners_are_claims_by_device():
    """A pod counts once; two that share a device are both there; what is not resolved is told."""
    allocations = [
        Allocation(pod=ONE, identifier=GPU),
        Allocation(pod=ONE, identifier=f"{GPU}::1"),
        Allocation(pod=ONE, identifier="MIG-1::0"),
        Allocation(pod=TWO, identifier="MIG-1::1"),
        Allocation(pod=TWO, identifier="gpu-0", is_claim=True),
        Allocation(pod=TWO, identifier="gpu-1-mig-9-0-1", is_claim=True),
        Allocation(pod=TWO, identifier="nvidia9"),
    ]
    owners = make_owners(allocations, DEVICES, {})
    assert owners.claims == {
        GPU: (DeviceClaim(pod=ONE), DeviceClaim(pod=TWO)),
        "MIG-1": (DeviceClaim(pod=ONE, is_share=True), DeviceClaim(pod=TWO, is_share=True)),
    }
    assert owners.unresolved == ("gpu-1-mig-9-0-1", "nvidia9")
