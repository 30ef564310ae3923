"""docs/invariants.md names test files that exist and that cite the promise they are named for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| ([AM]\d+) \|(.*)\|$", (ROOT / "docs/invariants.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("promise", "row"), ROWS, ids=[promise for promise, _ in ROWS])
def test_the_tests_of_a_promise_cite_it(promise, row):
    """A row without tests says that the promise comes later."""
    named = re.findall(r"`([a-z0-9_/]+/test_\w+)`", row)
    assert named or "later" in row
    for name in named:
        assert re.search(rf"\b{promise}\b", (ROOT / f"tests/{name}.py").read_text()), f"{name} does not cite {promise}"


def test_every_promise_has_a_row():
    """A1 to A12 and M1 to M11."""
    assert [promise for promise, _ in ROWS] == [f"A{n}" for n in range(1, 13)] + [f"M{n}" for n in range(1, 12)]
