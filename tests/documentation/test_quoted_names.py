"""A name in backticks of a docstring or comment is the name of something that exists."""

import re
from collections.abc import Mapping
from typing import Final

import pytest

from tests.documentation.code_names import PRODUCT, CodeNames, quoted_in, read_modules
from tests.documentation.shown import ROOT

_FILE: Final = re.compile(r"\.(py|json|jsonl|yaml|diff|proto|io)$")
_FIELD: Final = re.compile(r"(spec|status|metadata|limits|checkpoint|trainer|policy)\.")

ELSEWHERE: Final[Mapping[str, str]] = {
    "edl.launch": "`edl` is the name under which scripts import trainer_sdk",
    "edl.open": "likewise",
    "nextnonce": "RFC 7616",
    "resource.Quantity": "Kubernetes, in Go",
    "restrict_oom_score_adj": "containerd's configuration",
    "rspauth": "RFC 7616",
    "tests.cluster.experiment": "the product names it as the other implementation of a port, and may not import it",
    "upWindowSeconds": "made from `up_window_s` by the function that names it",
    "w": "a weight in a formula",
}


def is_of_product(path):
    return path.partition(".")[0] in PRODUCT


@pytest.mark.parametrize("of_product", [True, False], ids=["product", "tests"])
def test_quoted_names_exist(of_product):
    """A search for the name finds the thing: both are renamed together.  The product does not name tests."""
    modules = {path: one for path, one in read_modules().items() if is_of_product(path) or not of_product}
    names = CodeNames(modules)
    stale = [
        f"{module.path}:{line}: {name}"
        for path, module in modules.items()
        if is_of_product(path) == of_product
        for line, name in module.quoted
        if not (name in ELSEWHERE or _FILE.search(name) or _FIELD.match(name) or names.has(name, quoted_in=path))
    ]
    assert not stale, "\n".join(stale)


def test_names_in_the_glossary_exist():
    """A definition that names a class or a module leads to it."""
    names, page = CodeNames(read_modules()), (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    quoted = [name for _, name in quoted_in(page, 1) if re.search("[A-Z_.]", name) and not _FIELD.match(name)]
    assert quoted
    assert [name for name in quoted if not names.has(name, quoted_in="autoscaler")] == []


def test_each_exception_is_needed():
    """A name of the list is quoted somewhere."""
    assert {name for module in read_modules().values() for _, name in module.quoted} >= ELSEWHERE.keys()
