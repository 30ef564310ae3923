"""The checker of groups can fail: rules left out of the real cores are found (docs/protocol-groups.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocol.explore import Limits, Verdict, explore
from tests.protocol.group.breaks import BREAKS, NOT_FOUND, OF_THE_MODEL
from tests.protocol.group.breaks.left_out import Found, forget
from tests.protocol.group.model import GroupModel

IN_THE_MODEL = 41
PAGE = Path(__file__).parents[3] / "docs/protocol-groups.md"
AT_LEAST = 30
SHORT = [one for one in BREAKS if not one.is_long]
SETTINGS = {one.setting: one.name for one in reversed(SHORT)}


@pytest.mark.timeout(1200)  # a few seconds on a machine that is idle
@pytest.mark.parametrize("left_out", SHORT, ids=lambda one: one.name)
def test_a_rule_of_groups_that_is_left_out_is_found(left_out):
    """By the invariant that it breaks, or because END is out of reach; never by the cores' own checks."""
    report = left_out.explore()
    assert Found.of(report) is left_out.found, f"{left_out.name} ({left_out.rule}): {report}"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("setting", SETTINGS, ids=SETTINGS.get)
def test_with_all_rules_nothing_is_found_in_the_same_groups(setting):
    """What finds a break is the break."""
    forget()
    report = explore(GroupModel(setting), Limits(states=1_000, seconds=900))
    forget()
    assert report.verdict in (Verdict.OK, Verdict.CUT_OFF), str(report)


def test_of_the_breaks_of_the_reference_model_enough_are_found():
    """For each of the others it is said why there is no place for it."""
    names = {one.name for one in OF_THE_MODEL}
    assert len(names) == len(OF_THE_MODEL) >= AT_LEAST
    assert not names & set(NOT_FOUND)
    assert len(names | set(NOT_FOUND)) == IN_THE_MODEL


def test_the_page_says_how_many_are_found():
    """Found in all, and those that every test run leaves out."""
    page = " ".join(PAGE.read_text().split())
    in_test = sum(not one.is_long for one in OF_THE_MODEL)
    assert f"has {IN_THE_MODEL} such breaks; {len(OF_THE_MODEL)} of them are found" in page
    assert f"{in_test} in `make test`" in page
    assert f"{len(OF_THE_MODEL) - in_test} that take longer" in page
