"""What the pages point to is there: links, pictures, sections, and the files whose paths they name."""

import re

import pytest

from tests.documentation.shown import ROOT

PAGES = sorted(path for path in (*ROOT.glob("*.md"), *ROOT.glob("[!.]*/**/*.md")) if "build" not in path.parts)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FOLDERS = "autoscaler|bench|charts|docs|examples|experiments|images|master|requirements|tests|tools|trainer_sdk"
_NAMED = re.compile(rf"`((?:{_FOLDERS})/[\w./-]*\w/?)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page):
    """The anchors of the page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def is_there(path):
    """Whether a path is there, or a test of this name below a suite: `master/job/test_x` of `tests/unit/`."""
    return (ROOT / path).exists() or any(ROOT.glob(f"tests/*/{path.removesuffix('.py')}.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_points_to_what_is_there(page):
    """Every relative link leads to a file, its section to a heading, every path in backticks to a file or folder."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    if page.parent.name == "reports":
        text = ""  # what programs wrote names the files of its own commit
    wrong = []
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, section = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists() or (section and file.suffix == ".md" and section not in anchors(file)):
            wrong.append(target)
    wrong += [path for path in _NAMED.findall(text) if not is_there(path)]

    assert not wrong
