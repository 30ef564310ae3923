"""Each page as HTML and as JSON, made once for all viewers with equal rights who ask within a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from autoscaler.page.access.answer_limits import ViewerTurns
from autoscaler.page.access.request_checks import FORM_HEADERS
from autoscaler.page.access.viewers import Viewer
from autoscaler.page.answers.json_answers import encode_view
from autoscaler.page.answers.keeping import Keeping
from autoscaler.page.answers.shared_answers import SharedAnswers
from autoscaler.page.content.page_content import PageContent
from autoscaler.page.content.page_topics import PageTopics
from autoscaler.page.content.pages import PageSpec
from autoscaler.page.content.rendering import render_page

VIEWS_WAIT_S: Final = 0.2
"""A page waits so long for the first views of a large cluster; then it says that nothing is known yet, and the stream
brings it."""

KEPT_S: Final = 1.0
"""A page, or an answer to a script, is at most this much older than what it shows: ages and plans in it move on."""

MOST_MADE: Final = 64
"""Different answers of a kind that are made at a time, whoever asks; `MOST_MADE_AT_ONCE` bounds one viewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MadePage:
    """A page as all who have equal rights see it: without what is one viewer's own."""

    values: Mapping[str, Any]
    text: str


class PageAnswers:
    """Answers to requests for pages, each made in a turn of its viewer."""

    def __init__(self, content: PageContent, topics: PageTopics, keeping: Keeping, turns: ViewerTurns) -> None:
        self._content = content
        self._topics = topics
        self._keeping = keeping
        self._turns = turns
        self._html = SharedAnswers[_MadePage](kept_s=KEPT_S, most=MOST_MADE)
        self._json = SharedAnswers[bytes](kept_s=KEPT_S, most=MOST_MADE)

    async def html(self, page: PageSpec, request: web.Request, viewer: Viewer) -> web.Response:
        """Return the page, with the viewer's own form where it has one."""
        topic, sampler = await self._topics.topic_of(page, request, viewer), self._content.sampler
        await sampler.wait_for_views(VIEWS_WAIT_S)

        async def make() -> _MadePage:
            values = {**await self._content.values(page, topic), "keep": None}
            return _MadePage(values=values, text=await asyncio.to_thread(render_page, page.template, values))

        version = await self._version()
        async with self._turns.turn(viewer.name):
            made = await self._html.get((topic, sampler.is_looking), version, make)
            keep, text = await self._keeping.form_of(viewer, made.values["view"]), made.text
            if keep is not None:  # it is this viewer's
                text = await asyncio.to_thread(render_page, page.template, {**made.values, "keep": keep})
        response = web.Response(text=text, content_type="text/html", headers=FORM_HEADERS if keep is not None else None)
        response.enable_compression()
        return response

    async def json(self, page: PageSpec, request: web.Request, viewer: Viewer) -> web.Response:
        """Return the page's view, and null before anything is known."""
        topic = await self._topics.topic_of(page, request, viewer)
        reading = self._content.reading(topic)
        if reading is None:
            return web.Response(body=b"null", content_type="application/json")

        async def make() -> bytes:
            view = (await page.show(reading)).view
            return await asyncio.to_thread(encode_view, view, reading.documents)

        version = await self._version()
        async with self._turns.turn(viewer.name):
            body = await self._json.get(topic, version, make)
        response = web.Response(body=body, content_type="application/json")
        response.enable_compression()
        return response

    async def close(self) -> None:
        """Cancel what is being made."""
        await self._html.close()
        await self._json.close()

    async def _version(self) -> int:
        """Version of what is there; 0 before anything is."""
        source = self._content.source
        return 0 if source.documents() is None else await source.wait_for_change(0)
