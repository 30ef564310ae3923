"""The reference pages are what docstrings and the definition of TrainingJob say now."""

import pytest

from tests.documentation.shown import ROOT
from tools.reference import make_pages


@pytest.mark.parametrize(("path", "page"), make_pages().items(), ids=lambda value: getattr(value, "name", ""))
def test_a_page_of_the_reference_is_fresh(path, page):
    """`make reference` would change nothing; every public name and every field has a description."""
    assert path.read_text(encoding="utf-8") == page, f"{path.relative_to(ROOT)}: run `make reference`"
