"""The records of decisions: each has a number of its own, and stands in their index once."""

import re
from collections import Counter
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "adr"
RECORDS = sorted(file.name for file in DECISIONS.glob("[0-9]*.md"))


def test_no_two_records_have_one_number():
    """`ADR 0261` in a docstring has to lead to one of them."""
    assert [number for number, times in Counter(name[:4] for name in RECORDS).items() if times > 1] == []


def test_index_has_each_record_once():
    """By its number and file."""
    listed = re.findall(r"^\| \[(\d{4})\]\((\S+\.md)\) \|", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert sorted(file for _, file in listed) == RECORDS
    assert [(number, file) for number, file in listed if not file.startswith(f"{number}-")] == []


def test_title_of_a_record_has_its_number():
    """A record that was renumbered by its file's name alone would be quoted by the old number."""
    titles = {name: (DECISIONS / name).read_text().splitlines()[0] for name in RECORDS}
    assert [name for name, title in titles.items() if not title.startswith(f"# {name[:4]} ")] == []
