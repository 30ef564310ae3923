"""GPU numbers of virtual nodes and of pods, and the pauses between restarts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.local.machine.gpus import choose, spread
from autoscaler.jobs.restart_policy import LONGEST_PAUSE_S, pause_s


@given(st.integers(0, 64), st.integers(1, 16))
def test_devices_are_spread_evenly_and_each_once(devices, nodes):
    """Over virtual nodes, in order."""
    shares = spread(devices, nodes)
    assert [device for share in shares for device in share] == list(range(devices))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_pod_gets_devices_that_nobody_has():
    """A trainer's GPUs are its alone; the accounting never lets it come to less."""
    assert choose((4, 5, 6), {5}, 2) == (4, 6)
    with pytest.raises(ValueError, match="3 GPUs wanted, 2 free"):
        choose((4, 5, 6), {5}, 3)


def test_pauses_begin_at_once_and_end_at_half_a_minute():
    """0, 1, 2, 4, ... 30 s."""
    assert [pause_s(n) for n in range(9)] == [0, 0, 1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert pause_s(10_000) == LONGEST_PAUSE_S
