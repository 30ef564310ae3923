"""The door to NVML, through the real pynvml and a library that answers as each kind of GPU does."""

import os
import subprocess
import sys
from ctypes.util import find_library

import pynvml
import pytest

from autoscaler.clusters.local.machine.gpus import GpuLookupError, GpuOrderError, MachineGpu, find_gpus
from autoscaler.gpus.driver.nvml_calls import ask
from autoscaler.gpus.driver.nvml_door import NvmlDoor
from autoscaler.gpus.readings import Absence, DeviceProcess, DriverFailure, FailureKind, NodeReading, ProcessWork
from tests.harness import fake_nvml
from tests.harness.fake_nvml import Device
from tests.harness.gpu_kinds import KINDS
from tests.harness.waiting import wait_for

GPU = "GPU-11111111-2222-3333-4444-555555555555"
OTHER = "GPU-66666666-2222-3333-4444-555555555555"
MIG = "MIG-11111111-2222-3333-4444-555555555555"


def read(door) -> NodeReading:
    reading = door.read()
    assert isinstance(reading, NodeReading), reading
    return reading


def failure(door) -> DriverFailure:
    reading = door.read()
    assert isinstance(reading, DriverFailure), reading
    return reading


def test_a_working_gpu_is_read_whole(scenario):
    """Every figure of the driver arrives, and GPM with the second reading."""
    scenario.devices = [Device(GPU, util=37, energy=5_000, mem=1 << 30, gpm=41.5, minor=3)]
    scenario.processes = [(GPU, 4711, 35), (GPU, 4712, -1)]
    scenario.write()
    door = NvmlDoor()
    assert read(door).devices[0].gpm_percent is Absence.NOT_YET
    (device,) = read(door).devices
    assert (device.uuid, device.model, device.minor) == (GPU, "NVIDIA H100 80GB HBM3", 3)
    assert (device.utilisation_percent, device.energy_mj, device.memory_used_bytes) == (37, 5_000, 1 << 30)
    assert device.work == (ProcessWork(pid=4711, percent=35),)
    assert device.processes == (DeviceProcess(pid=4711), DeviceProcess(pid=4712))
    assert device.gpm_percent == 41.5


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_each_kind_answers_by_the_table(scenario, kind):
    """What a kind does not support is told as that and as nothing else, in every reading."""
    scenario.devices = [Device(GPU, name=kind.name, mig=int(kind.is_mig))]
    if kind.is_mig:
        scenario.devices.append(Device(MIG, parent=GPU, gi=3))
    asked = MIG if kind.is_mig else GPU
    for call, code in kind.refused.items():
        scenario.failures[call, asked if "Gpm" not in call and "Mig" not in call else GPU] = code
    scenario.write()
    door = NvmlDoor()
    read(door)
    (device,) = read(door).devices
    told = {
        "nvmlDeviceGetUtilizationRates": device.utilisation_percent,
        "nvmlDeviceGetProcessUtilization": device.work,
        "nvmlGpmQueryDeviceSupport": device.gpm_percent,
        "nvmlDeviceGetComputeRunningProcesses_v3": device.processes,
        "nvmlDeviceGetTotalEnergyConsumption": device.energy_mj,
        "nvmlDeviceGetMemoryInfo_v2": device.memory_used_bytes,
    }
    assert {call for call, value in told.items() if value is Absence.NOT_SUPPORTED} == kind.refused.keys() - {
        "nvmlDeviceGetMigMode"
    }
    assert {value for value in told.values() if isinstance(value, Absence)} <= {Absence.NOT_SUPPORTED}
    assert device.uuid == asked


@pytest.mark.parametrize("code", [0, 6], ids=["success without samples", "not found"])
def test_nobody_worked_is_an_answer(scenario, code):
    """pynvml raises for both, and both mean that no process has computed."""
    scenario.devices = [Device(GPU)]
    scenario.driver = {"nobody": code}
    scenario.write()
    assert read(NvmlDoor()).devices[0].work == ()


@pytest.mark.parametrize(("code", "absence"), [(4, Absence.NO_PERMISSION), (999, Absence.FAILED), (10, Absence.FAILED)])
def test_a_failed_call_is_told_as_missing(scenario, code, absence):
    """And the other figures of the device are read."""
    scenario.devices = [Device(GPU, util=5)]
    scenario.failures["nvmlDeviceGetTotalEnergyConsumption", GPU] = code
    scenario.write()
    (device,) = read(NvmlDoor()).devices
    assert (device.energy_mj, device.utilisation_percent) == (absence, 5)


@pytest.mark.parametrize("gpm", [float("nan"), -3.0, 1e9])
def test_impossible_figures_are_absurd(scenario, gpm):
    """NaN, negative and huge figures are no figures."""
    scenario.devices = [Device(GPU, util=-1, mem=1 << 60, gpm=gpm)]
    scenario.processes = [(GPU, 12, 4000)]
    scenario.write()
    door = NvmlDoor()
    read(door)
    (device,) = read(door).devices
    assert {device.utilisation_percent, device.memory_used_bytes, device.gpm_percent, device.work} == {Absence.ABSURD}


def test_a_lost_gpu_is_told_as_lost_until_it_answers(scenario):
    """Device lost (15) in mid-run: the others are read, it keeps its place, and it comes back after a reset."""
    scenario.devices = [Device(GPU, util=1), Device(OTHER, util=2, minor=1)]
    scenario.write()
    door = NvmlDoor()
    read(door)
    scenario.failures["handle", GPU] = 15
    scenario.write()
    lost, other = read(door).devices
    assert (lost.uuid, lost.utilisation_percent, other.utilisation_percent) == (GPU, Absence.LOST, 2)
    scenario.failures = {("nvmlDeviceGetTotalEnergyConsumption", GPU): 16}
    scenario.write()
    assert read(door).devices[0].energy_mj is Absence.LOST
    scenario.failures = {}
    scenario.write()
    assert [one.utilisation_percent for one in read(door).devices] == [1, 2]


def test_devices_keep_their_names_when_the_list_shifts(scenario):
    """The driver's list gets shorter: a device is known by UUID, never by its place."""
    scenario.devices = [Device(GPU, util=1), Device(OTHER, util=2)]
    scenario.write()
    door = NvmlDoor()
    read(door)
    del scenario.devices[0]
    scenario.write()
    assert {one.uuid: one.utilisation_percent for one in read(door).devices} == {GPU: Absence.LOST, OTHER: 2}


def test_a_divided_gpu_is_its_instances(scenario):
    """Switching MIG on and destroying an instance leaves no ghost behind."""
    scenario.devices = [Device(GPU)]
    scenario.write()
    door = NvmlDoor()
    read(door)
    scenario.devices = [Device(GPU, mig=1), Device(MIG, parent=GPU, gi=7, gpm=55.0), Device("MIG-2", parent=GPU, gi=8)]
    scenario.write()
    read(door)
    first, second = read(door).devices
    assert (first.uuid, first.parent_uuid, first.gpu_instance, first.gpm_percent) == (MIG, GPU, 7, 55.0)
    del scenario.devices[2]
    scenario.write()
    assert [one.uuid for one in read(door).devices] == [MIG]
    scenario.devices = [Device(GPU)]
    scenario.write()
    assert [one.uuid for one in read(door).devices] == [GPU]
    assert second.uuid == "MIG-2"


def test_instances_that_come_and_go_leave_nothing_behind(scenario):
    """A GPU that is divided anew a hundred times is remembered as it is now."""
    door = NvmlDoor()
    for number in range(100):
        scenario.devices = [Device(GPU, mig=1), Device(f"MIG-{number}", parent=GPU, gi=1)]
        scenario.write()
        assert [one.uuid for one in read(door).devices] == [f"MIG-{number}"]
    assert [len(kept) for kept in (door._known, door._asked_until_us, door._gpm)] == [1, 1, 1]


def test_a_silent_driver_is_given_up_and_read_later(scenario):
    """The reading ends at its deadline; when the driver answers again, so does the door."""
    scenario.devices = [Device(GPU)]
    scenario.driver = {"delay_ms": 2000}  # each call: the reading would take half a minute
    scenario.write()
    door = NvmlDoor(deadline_s=0.01)
    assert {failure(door).kind, failure(door).kind} == {FailureKind.SILENT}
    scenario.driver = {}
    scenario.write()
    door._deadline_s = 60.0
    assert wait_for("a driver that answers again", lambda: isinstance(door.read(), NodeReading))


def test_a_driver_that_vanishes_is_initialised_again(scenario):
    """Unloaded and loaded: a failure in between, and readings after it."""
    scenario.devices = [Device(GPU)]
    scenario.write()
    door = NvmlDoor()
    read(door)
    for code in (9, 1):
        scenario.driver = {"all": code}
        scenario.write()
        assert failure(door).kind is FailureKind.NOT_INSTALLED
        scenario.driver = {}
        scenario.write()
        assert read(door).devices[0].gpm_percent is Absence.NOT_YET


def test_an_upgraded_driver_says_that_a_new_process_is_needed(scenario):
    """The old library cannot be replaced in this process."""
    scenario.devices = [Device(GPU)]
    scenario.write()
    door = NvmlDoor()
    read(door)
    scenario.driver = {"all": 18}
    scenario.write()
    told = failure(door)
    assert told.kind is FailureKind.UPGRADED
    assert "new one" in told.message


SCRIPT = """
from autoscaler.gpus.driver.nvml_door import NvmlDoor
print(NvmlDoor().read())
"""


def run_script(environment):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this machine has the NVIDIA driver")
def test_a_machine_without_a_driver_says_what_is_missing():
    """The library is not there: a failure with its name, and no exception."""
    told = run_script({})
    assert "NOT_INSTALLED" in told
    assert "libnvidia-ml.so.1 is missing" in told


def test_a_driver_without_todays_symbols_lacks_signals(tmp_path):
    """A driver of 2021: what it cannot tell is not supported, and the rest is read."""
    library = fake_nvml.build(tmp_path, "-DOLD_DRIVER")
    scenario = fake_nvml.Scenario(tmp_path / "scenario", [Device(GPU, util=7)])
    scenario.write()
    told = run_script({"LD_LIBRARY_PATH": str(library.parent), fake_nvml.VARIABLE: str(scenario.path)})
    assert "utilisation_percent=7" in told
    assert "processes=<Absence.NOT_SUPPORTED" in told
    assert "gpm_percent=<Absence.NOT_SUPPORTED" in told


def test_an_unversioned_call_of_a_missing_symbol_is_not_supported():
    """The error that nvidia-ml-py raises for it is no NVMLError."""

    def unversioned():
        raise pynvml.NVMLLibraryMismatchError

    assert ask(unversioned) is Absence.NOT_SUPPORTED


@pytest.mark.parametrize("devices", [0, 1, 3])
def test_gpus_of_this_machine_are_found(scenario, devices):
    """`--gpu auto` asks through the same door; they are named by their UUIDs."""
    scenario.devices = [Device(f"GPU-{number}", minor=number) for number in range(devices)]
    scenario.write()
    assert find_gpus({}) == tuple(MachineGpu(number=number, cuda_id=f"GPU-{number}") for number in range(devices))


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("2,3", {2: "GPU-c2", 3: "GPU-d3"}),
        ("3, 0", {3: "GPU-d3", 0: "GPU-a0"}),
        ("GPU-c2,GPU-a", {2: "GPU-c2", 0: "GPU-a0"}),
        ("", {}),
        ("-1", {}),
        ("1,-1,2", {1: "GPU-b1"}),
        ("0,9,1", {0: "GPU-a0"}),
        ("1,1", {1: "GPU-b1"}),
        ("GPU-x", {}),
        ("GPU-", {}),
        ("NoDevFiles", {}),
    ],
)
def test_gpus_that_the_environment_withholds_are_nobodys(scenario, visible, found):
    """As CUDA reads the list: what stands behind an entry that names none is not seen."""
    scenario.devices = [Device(f"GPU-{letter}{number}", minor=number) for number, letter in enumerate("abcd")]
    scenario.write()
    gpus = find_gpus({"CUDA_VISIBLE_DEVICES": visible})
    assert {gpu.number: gpu.cuda_id for gpu in gpus} == found
    assert list(found) == [gpu.number for gpu in gpus]


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, {0: MIG, 1: OTHER}),
        ({"CUDA_VISIBLE_DEVICES": f"{MIG[:-1]}6"}, {0: f"{MIG[:-1]}6"}),
        ({"CUDA_VISIBLE_DEVICES": f"MIG-{GPU}/4/0"}, {0: f"{MIG[:-1]}6"}),
        ({"CUDA_VISIBLE_DEVICES": GPU}, {0: MIG}),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {1: OTHER}),
    ],
)
def test_a_divided_gpu_is_one_by_an_instance(scenario, environment, found):
    """A process of CUDA uses one instance, the one that is named or the first."""
    scenario.devices = [
        Device(GPU, mig=1),
        Device(MIG, parent=GPU, gi=3),
        Device(f"{MIG[:-1]}6", parent=GPU, gi=4),
        Device(OTHER, minor=1),
    ]
    scenario.write()
    assert {gpu.number: gpu.cuda_id for gpu in find_gpus(environment)} == found


def test_numbers_of_cudas_order_are_refused_where_it_may_differ(scenario):
    """The fastest GPU is CUDA's first, and the driver counts by the bus: EDL would hand out another's."""
    scenario.devices = [Device(GPU, name="Tesla_T4"), Device(OTHER, minor=1)]
    scenario.write()
    with pytest.raises(GpuOrderError, match=r"CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        find_gpus({"CUDA_VISIBLE_DEVICES": "0"})
    (by_bus,) = find_gpus({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    (by_uuid,) = find_gpus({"CUDA_VISIBLE_DEVICES": GPU})
    assert by_bus == by_uuid == MachineGpu(number=0, cuda_id=GPU)
    assert len(find_gpus({})) == 2


def test_gpus_that_cannot_be_counted_say_why(scenario):
    """A driver that was upgraded or is not loaded."""
    scenario.driver = {"init": 9}
    scenario.write()
    with pytest.raises(GpuLookupError, match=r"--gpu auto asks the NVIDIA driver.*--gpu 0"):
        find_gpus({})
