"""The report on experiments as a page among the others: found where EDL is installed, or in its checkout.

It is written for a browser that opens it from a checkout (`experiments/reporting/html_report.py`).  Here its content
stands in the page's layout, with the page's headers, and its pictures have addresses of this page.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from markupsafe import Markup

from autoscaler.page.access.request_checks import check_query
from autoscaler.page.access.viewers import Viewer
from autoscaler.page.content.pages import PageLink
from autoscaler.page.content.rendering import render_page

REPORT: Final = PageLink(name="report", path="/report", title="Report")

NAME: Final = "experiments.html"
PICTURES: Final = "experiments"
"""The folder beside it."""

INSTALLED: Final = f"share/edl/report/{NAME}"
"""Below the prefix of the installation: `tool.setuptools.data-files`."""

CHECKOUT: Final = Path(__file__).resolve().parents[3]

_CONTENT: Final = re.compile(r"<main[^>]*>\s*<h1[^>]*>(?P<title>.*?)</h1>(?P<body>.*)</main>", re.DOTALL)
_PICTURE: Final = re.compile(rf'src="{PICTURES}/([A-Za-z0-9._-]+)"')
_LINK_OUT: Final = re.compile(r'<a href="(?!#)[^"]*">(.*?)</a>', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentsReport:
    """The report.  `body`: markup below its title; `pictures`: PNG files by name."""

    title: Markup
    body: Markup
    pictures: dict[str, Path]


@cache
def find_report() -> ExperimentsReport | None:
    """Return the report; None where it is not installed, as in an image that was built without it."""
    file = _find_file()
    return None if file is None else read_report(file)


def read_report(file: Path) -> ExperimentsReport | None:
    """Return the report of this file; None if it is none.

    Links out of it, to files of the checkout, become text: the page has no other files, and asks nobody else.
    """
    try:
        found = _CONTENT.search(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    if found is None:
        return None
    body = _LINK_OUT.sub(r"\1", _PICTURE.sub(r'src="/report/\1"', found["body"]))
    pictures = {one.name: one for one in (file.parent / PICTURES).glob("*.png")}
    title = Markup(found["title"])  # noqa: S704 - a file of our own, written from Markdown without HTML
    return ExperimentsReport(title=title, body=Markup(body), pictures=pictures)  # noqa: S704 - as its title


class ReportAnswers:
    """Answers to requests for the report.  `frame`: what the layout shows to a viewer around any page."""

    def __init__(self, report: ExperimentsReport, frame: Callable[[Viewer], Awaitable[Mapping[str, Any]]]) -> None:
        self._report = report
        self._frame = frame

    async def page(self, request: web.Request, viewer: Viewer) -> web.Response:
        """The report itself.  It is of no cluster, so that nothing in it is current or not."""
        check_query(request, {})
        shown = {"report": self._report, "live": "", "now_s": None, "problem": "", "is_current": True}
        text = await asyncio.to_thread(render_page, "report.html", {**await self._frame(viewer), **shown})
        response = web.Response(text=text, content_type="text/html")
        response.enable_compression()
        return response

    async def picture(self, request: web.Request, _viewer: Viewer) -> web.Response:
        """A picture of it.  Raises 404."""
        file = self._report.pictures.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound(text="There is no such picture.\n")
        body = await asyncio.to_thread(file.read_bytes)
        return web.Response(body=body, content_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


def _find_file() -> Path | None:
    checkout = CHECKOUT / "docs" / "reports" / NAME
    if (CHECKOUT / "pyproject.toml").is_file() and checkout.is_file():
        return checkout
    try:
        installed = files("edl") or ()
    except PackageNotFoundError:
        return None
    return next((Path(str(one.locate())) for one in installed if one.as_posix().endswith(INSTALLED)), None)
