"""The checks of `make lint` that are our own find what they are for."""

import pytest

from tools import check_commits, check_names


@pytest.mark.parametrize(
    ("message", "problems"),
    [
        ("planner: reserve capacity for gangs whole\n\nA gang that starts in halves holds room for nothing.", []),
        ("operator, cli: name the leader\n\nBoth show it.", []),
        ("reserve capacity\n\nWhy.", ["no area before the colon"]),
        ("planner: reserve capacity", ["no body that says why"]),
        ("planner: " + "x" * 64 + "\n\nWhy.", ["73 characters, 72 are allowed"]),
    ],
)
def test_a_commit_says_where_and_why(message, problems):
    assert list(check_commits.find_problems(message)) == problems


def test_a_class_name_with_two_owners_needs_a_reason(tmp_path):
    shared = next(iter(check_names.SHARED))
    for package in check_names.PRODUCT:
        (tmp_path / package).mkdir()
    (tmp_path / "master" / "one.py").write_text(f"class Twice: ...\nclass {shared}: ...\n", encoding="utf-8")
    (tmp_path / "autoscaler" / "two.py").write_text("Twice = int | str\nLIMIT = 3\n", encoding="utf-8")
    found = list(check_names.find_problems(check_names.class_owners(tmp_path)))
    assert "class Twice is defined 2 times (autoscaler/two.py, master/one.py): give each its own name" in found
    assert f"class {shared} is defined once: take it from the list in tools/check_names.py" in found
    assert not any("LIMIT" in problem for problem in found)
