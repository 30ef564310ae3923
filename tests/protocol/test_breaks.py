"""The checker can fail: rules left out of the real cores are found (docs/protocol.md, "Traces worth knowing")."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocol.breaks import BREAKS, OF_MOVES, WITHOUT_MOVES, listed
from tests.protocol.breaks.left_out import is_found
from tests.protocol.group.breaks import BREAKS as GROUP_BREAKS

AT_LEAST = 30
# Rules 33 to 35 are those of groups now (ADR 0241): the same holes, with the breaks that plant them there.
OF_OWN_MODELS = {
    "data-from-acks": "position-from-books",
    "join-without-marks": "skip-from-books",
    "head-not-considered": "head-no-candidate",
    "head-back": "commit-any-step",
}
SHORT = [one for one in BREAKS if not one.is_long]
PAGE = Path(__file__).parents[2] / "docs/protocol-moves.md"


@pytest.mark.timeout(2400)  # a minute for the longest on a machine that is idle
@pytest.mark.parametrize("left_out", SHORT, ids=lambda one: one.name)
def test_a_rule_that_is_left_out_is_found(left_out):
    """By I1 to I9, or because END is out of reach; never by the cores' own checks, which are off."""
    report = left_out.explore()
    assert is_found(report), f"{left_out.name} ({left_out.rule}): {report}"


def test_enough_rules_are_left_out():
    """Each under a name of its own."""
    of_groups = {one.name for one in GROUP_BREAKS}
    assert of_groups.issuperset(OF_OWN_MODELS.values())
    assert len({*OF_OWN_MODELS, *(one.name for one in WITHOUT_MOVES)}) >= AT_LEAST
    assert len({one.name for one in OF_MOVES}) >= AT_LEAST
    assert len({one.name for one in BREAKS}) == len(BREAKS)


def test_of_the_holes_of_the_reference_models_enough_are_found():
    """25 of moves and 16 of cuts beside moves; for each of the others it is said why not."""
    holes = (*listed.OF_MOVES, *listed.OF_CUTS)
    assert (len(listed.OF_MOVES), len(listed.OF_CUTS), len({hole.name for hole in holes})) == (25, 16, 41)
    assert all(bool(hole.found_as) != bool(hole.why_not) for hole in holes)
    assert {hole.found_as for hole in holes} - {""} <= {one.name for one in BREAKS}
    assert sum(bool(hole.found_as) for hole in holes) >= AT_LEAST


def test_the_page_has_the_table_of_those_holes():
    """`python -m tests.protocol --listed` prints it."""
    page = PAGE.read_text()
    table = [line for line in page.splitlines() if line.startswith("| `") and "| model_" in line]
    assert table == list(listed.rows(BREAKS))
    assert f"plant {len(table)} such holes; {sum('*not found*' not in line for line in table)} of them" in page
