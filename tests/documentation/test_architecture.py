"""The picture of the layers in docs/architecture.md is that of the imports."""

import re

import pytest

from tests.documentation.shown import ROOT
from tools.structure import read_imports

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURE = PAGE.partition("```mermaid\n")[2].partition("```")[0]
NODES = dict(re.findall(r"^\s*(\w+)\[\"?`?([\w.]+)", PICTURE, re.MULTILINE))
DRAWN = {(NODES[above], NODES[below]) for above, below in re.findall(r"^\s*(\w+) --> (\w+)$", PICTURE, re.MULTILINE)}


def package_of(module):
    """The innermost package of the picture that holds the module."""
    return max((p for p in NODES.values() if module == p or module.startswith(f"{p}.")), key=len, default=None)


@pytest.fixture(scope="module")
def imported():
    pairs = {(package_of(one), package_of(other)) for one, others in read_imports(ROOT).items() for other in others}
    return {(one, other) for one, other in pairs if None not in (one, other) and one != other}


def reached(package, arrows):
    """All that a package leads to along the arrows."""
    found, waiting = set(), [package]
    while waiting:
        here = waiting.pop()
        new = {below for above, below in arrows if above == here} - found
        found |= new
        waiting.extend(new)
    return found


def test_each_arrow_is_an_import(imported):
    """Nobody is drawn above what none of its modules imports."""
    assert not DRAWN - imported


def test_each_import_follows_the_arrows(imported):
    """What a package imports lies below it in the picture, so no import runs up or sideways."""
    assert {(one, other) for one, other in imported if other not in reached(one, DRAWN)} == set()


def test_no_arrow_follows_from_others(imported):
    """The picture is the smallest one: without an arrow some import would not follow."""
    assert {(a, b) for a, b in DRAWN if b in reached(a, DRAWN - {(a, b)})} == set()


def test_each_package_of_the_picture_is_there():
    """A package that was renamed is renamed here."""
    assert {name for name in NODES.values() if not (ROOT / name.replace(".", "/")).exists()} <= {
        name for name in NODES.values() if (ROOT / f"{name.replace('.', '/')}.py").exists()
    }
