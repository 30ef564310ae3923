"""How often a member that does not stay up is started again."""

import pytest

from master.etcd_server.serve import restart_pause_s


@pytest.mark.parametrize(("quick_ends", "pause_s"), [(0, 0), (2, 0), (3, 1), (4, 2), (7, 16), (8, 30), (10_000, 30)])
def test_pauses_grow_to_a_bound(quick_ends, pause_s):
    """A kill is followed at once; a full disk is not hammered five times a second."""
    assert restart_pause_s(quick_ends) == pause_s
