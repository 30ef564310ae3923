"""The checker can fail: rules left out of the real cores are found (docs/protocol.md, "Traces worth knowing")."""

from __future__ import annotations

import pytest

from tests.protocol.breaks import BREAKS, OF_MOVES, WITHOUT_MOVES
from tests.protocol.breaks.left_out import is_found

AT_LEAST = 30
SHORT = [one for one in BREAKS if not one.is_long]


@pytest.mark.timeout(900)  # a minute for the longest on a machine that is idle
@pytest.mark.parametrize("left_out", SHORT, ids=lambda one: one.name)
def test_a_rule_that_is_left_out_is_found(left_out):
    """By I1 to I9, or because END is out of reach; never by the cores' own checks, which are off."""
    report = left_out.explore()
    assert is_found(report), f"{left_out.name} ({left_out.rule}): {report}"


def test_enough_rules_are_left_out():
    """Each under a name of its own."""
    for some in (WITHOUT_MOVES, OF_MOVES):
        assert len({one.name for one in some}) >= AT_LEAST
    assert len({one.name for one in SHORT}) == len(SHORT)
