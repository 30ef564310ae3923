"""The page that people look reasons up in has each that a status can bear, and no other."""

import re
from typing import Final

from autoscaler.operator.status.conditions import ConditionType
from tests.documentation.reasons import REASONS
from tests.documentation.shown import ROOT

SECTION: Final = (ROOT / "docs" / "kubernetes.md").read_text().partition("## What a job's status says")[2]
TABLE: Final = SECTION.partition("\n| reason | of | means |")[2].partition("\n\n")[0]


def test_every_reason_of_a_condition_stands_in_the_table_once():
    told = [word for row in TABLE.splitlines() for word in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")]
    assert len(told) == len(set(told))
    assert set(told) == REASONS


def test_every_condition_stands_in_its_table():
    rows = re.findall(r"^\| (\w+) \|", SECTION.partition("| reason | of |")[0], re.MULTILINE)
    assert rows == ["condition", *(kind.value for kind in ConditionType)]
