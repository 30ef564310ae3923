"""GPU numbers of virtual nodes and of pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.local.machine.gpus import choose, spread


@given(st.lists(st.integers(0, 64), unique=True), st.integers(1, 16))
def test_devices_are_spread_evenly_and_each_once(devices, nodes):
    """Over virtual nodes, in order."""
    shares = spread(devices, nodes)
    assert [device for share in shares for device in share] == devices
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_pod_gets_devices_that_nobody_has():
    """A trainer's GPUs are its alone; the accounting never lets it come to less."""
    assert choose((4, 5, 6), {5}, 2) == (4, 6)
    with pytest.raises(ValueError, match="3 GPUs wanted, 2 free"):
        choose((4, 5, 6), {5}, 3)
