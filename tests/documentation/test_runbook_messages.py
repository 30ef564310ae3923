"""The words of masters that the runbook explains are words that a master says."""

import re
from typing import Final

import pytest

from tests.documentation.shown import ROOT

SECTION: Final = (
    (ROOT / "docs" / "runbook.md").read_text().partition("\n## Messages of masters\n")[2].partition("\n## ")[0]
)
ROWS: Final = [row.split("|")[1] for row in SECTION.splitlines() if row.startswith("| ") and "`" in row.split("|")[1]]
PHRASES: Final = [
    part.strip(" :,.") for row in ROWS for span in re.findall(r"`([^`]+)`", row) for part in span.split("...")
]
CODE: Final = "".join(
    path.read_text(encoding="utf-8")
    for package in ("master", "trainer_sdk/pserver")
    for path in (ROOT / package).rglob("*.py")
)


@pytest.mark.parametrize("phrase", [one for one in PHRASES if len(one) > 3])
def test_words_of_the_table_are_said_by_a_master_or_a_server(phrase):
    """Else somebody on call looks for words that nobody says any more.  Numbers and names stand between the pieces."""
    pieces = re.split(r" \((?:failed)\)", phrase)
    assert all(piece.strip(" :") in CODE for piece in pieces), phrase


def test_every_problem_has_its_row():
    assert len(ROWS) > 8
