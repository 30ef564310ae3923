"""GPU numbers of virtual nodes and of pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.local.machine.gpus import GpuLookupError, choose, gpus_named, spread


@given(st.lists(st.integers(0, 64), unique=True), st.integers(1, 16))
def test_devices_are_spread_evenly_and_each_once(devices, nodes):
    """Over virtual nodes, in order."""
    shares = spread(devices, nodes)
    assert [device for share in shares for device in share] == devices
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, {}),
        ("2,3", {0: "2", 1: "3"}),
        (" GPU-aa , MIG-bb,7", {0: "GPU-aa", 1: "MIG-bb"}),
    ],
)
def test_a_number_of_gpus_means_the_first_that_the_environment_shows(visible, found):
    """Those that it withholds are somebody else's; without it a number is a name."""
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus_named(2, environment) == found
    assert gpus_named(0, {"CUDA_VISIBLE_DEVICES": ""}) == {}


@pytest.mark.parametrize(("visible", "shown"), [("", 0), ("3", 1), ("3,-1,4", 1), ("3, 3", 1), ("none", 0)])
def test_more_gpus_than_the_environment_shows_are_refused(visible, shown):
    """As in CUDA nothing after an entry that names none is seen; a device that is named twice is one."""
    with pytest.raises(GpuLookupError, match=f"have 2 GPUs, and CUDA_VISIBLE_DEVICES='{visible}' shows {shown}"):
        gpus_named(2, {"CUDA_VISIBLE_DEVICES": visible})


def test_a_pod_gets_devices_that_nobody_has():
    """A trainer's GPUs are its alone; the accounting never lets it come to less."""
    assert choose((4, 5, 6), {5}, 2) == (4, 6)
    with pytest.raises(ValueError, match="3 GPUs wanted, 2 free"):
        choose((4, 5, 6), {5}, 3)
