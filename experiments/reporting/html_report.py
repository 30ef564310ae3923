"""The reports on experiments as one HTML page with the look of EDL's page, for people who do not read Markdown.

Its stylesheet is the page's own and its pictures are the reports', named by relative addresses: it opens from a
checkout without a server, has no script, and asks nobody else for anything.  Raw HTML in the reports stays text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from experiments.running.code_version import ROOT

DOCS: Final = ROOT / "docs" / "reports"
SOURCES: Final = ("experiments.md", "sizes.md")
PAGE: Final = DOCS / "experiments.html"
STYLE: Final = "../../autoscaler/page/assets/page.css"
POLICY: Final = "default-src 'none'; style-src 'self' file:; img-src 'self' file:; base-uri 'none'; form-action 'none'"
"""`file:` beside `'self'`: of a page that is opened from a checkout browsers take the latter for nobody."""

_HEAD: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Experiments · EDL</title>
<link rel="stylesheet" href="{style}">
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<p class="place"><b>EDL</b> experiments of 2017 and newer ones</p>
</header>
<main id="content" class="report" tabindex="-1">
"""
_CONTENTS: Final = """<nav aria-label="Contents"><ul>
{contents}
</ul></nav>
"""
_FOOT: Final = """</main>
<footer><p>Written by <code>python -m experiments page</code> out of {sources}.</p></footer>
</body>
</html>
"""


def write_html() -> Path:
    """Write the page out of the reports that are there; return its path."""
    texts = [(DOCS / name).read_text(encoding="utf-8") for name in SOURCES]
    PAGE.write_text(make_html(texts), encoding="utf-8")
    return PAGE


def make_html(texts: Sequence[str]) -> str:
    """Return the page of these Markdown texts: the first title is the page's, and the others stand below it."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = [token for text in texts for token in parser.parse(text)]
    headings = _name_headings(tokens)
    _name_cells(tokens)
    body: str = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", '<div class="figures" role="region" aria-label="Figures" tabindex="0"><table>')
    body = body.replace("</table>", "</table></div>").replace("<img ", '<img loading="lazy" ')
    contents = "\n".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in headings)
    sources = ", ".join(f"docs/reports/{name}" for name in SOURCES)
    body = body.replace("</h1>\n", "</h1>\n" + _CONTENTS.format(contents=contents), 1)
    return _HEAD.format(policy=POLICY, style=STYLE) + body + _FOOT.format(sources=sources)


def _name_headings(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    """Give each heading an id; return those of the contents, with their titles."""
    found: list[tuple[str, str]] = []
    taken: set[str] = set()
    titles = 0
    for opening, inline in pairwise(tokens):
        if opening.type != "heading_open":
            continue
        name = base = re.sub(r"[^a-z0-9]+", "-", inline.content.lower()).strip("-") or "part"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        opening.attrSet("id", name)
        titles += opening.tag == "h1"
        if opening.tag == "h1" and titles > 1:
            opening.tag = _closing(tokens, opening).tag = "h2"
        if opening.tag == "h2":
            found.append((name, inline.content))
    return found


def _closing(tokens: Sequence[Token], opening: Token) -> Token:
    at = next(at for at, token in enumerate(tokens) if token is opening)
    return next(token for token in tokens[at:] if token.type == "heading_close")


def _name_cells(tokens: Sequence[Token]) -> None:
    """Say of each head cell which way it heads, and make the first cell of each row one."""
    is_first = False
    for token in tokens:
        match token.type:
            case "th_open":
                token.attrSet("scope", "col")
            case "tr_open":
                is_first = True
            case "td_open" if is_first:
                token.tag = "th"
                token.attrSet("scope", "row")
            case "td_close" if is_first:
                token.tag, is_first = "th", False
