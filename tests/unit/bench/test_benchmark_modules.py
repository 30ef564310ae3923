"""Benchmarks are found in the folders of their subjects, and so are the programs that they start."""

import importlib
import json
from pathlib import Path

import pytest

from bench.__main__ import MODULES, RAW, ROOT


def test_every_section_that_is_kept_has_its_benchmark():
    """`python -m bench NAME` can measure again each section of docs/reports/benchmarks.json."""
    assert {row["bench"] for row in json.loads(RAW.read_text())} <= MODULES.keys()


@pytest.mark.parametrize("module", sorted(MODULES.values()))
def test_a_benchmark_names_paths_that_exist(module):
    """A file that moves without its benchmark would end the benchmark only after minutes."""
    values = vars(importlib.import_module(module)).items()
    named = [value for name, value in values if name.isupper() and isinstance(value, Path) and value.is_absolute()]
    inside = [path for path in named if path.is_relative_to(ROOT)]
    assert [path for path in inside if not path.exists()] == []
    assert [path for name, path in values if name == "ROOT" and isinstance(path, Path) and path != ROOT] == []
