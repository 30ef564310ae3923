"""The walks through the code name functions that are there."""

import ast
import re

import pytest

from tests.documentation.shown import ROOT

WALKS = (
    "life-of-a-job.md",
    "life-of-a-batch.md",
    "life-of-a-step.md",
    "life-of-a-bucket-move.md",
    "life-of-a-web-pod.md",
    "architecture.md",
)
_NAMED = re.compile(r"`((?:autoscaler|master|trainer_sdk)/[\w/]+\.py):(\w+)`")


@pytest.mark.parametrize("walk", WALKS)
def test_every_function_that_a_walk_names_is_defined_in_its_file(walk):
    """A reader who follows the page finds each step where it says."""
    named = _NAMED.findall((ROOT / "docs" / walk).read_text(encoding="utf-8"))
    missing = [f"{path}:{name}" for path, name in named if name not in defined_in(ROOT / path)]

    assert not missing
    assert named or walk == "architecture.md"


def defined_in(path):
    """The names of all functions, methods and classes of a file; none if there is no such file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else ()
    return {node.name for node in nodes if isinstance(node, kinds)}
