"""Files that pages refer to: style, script and icon, and the snapshot for a bug report."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Final

from aiohttp import web

from autoscaler.errors import ClusterError
from autoscaler.page.access.answer_limits import send_whole
from autoscaler.page.access.viewers import Viewer
from autoscaler.page.answers.shared_answers import SharedAnswers
from autoscaler.page.content.page_topics import PageTopics
from autoscaler.page.page_source import PageSource
from autoscaler.snapshots import format_document, to_document

ASSETS: Final = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}

SNAPSHOT_KEPT_S: Final = 1.0


class FileAnswers:
    """Answers to requests for files."""

    def __init__(self, source: PageSource, topics: PageTopics) -> None:
        self._source = source
        self._topics = topics
        self._snapshots = SharedAnswers[bytes](kept_s=SNAPSHOT_KEPT_S, most=1)

    async def snapshot(self, _request: web.Request, viewer: Viewer) -> web.Response:
        """The snapshot as a file, as `edl snapshot save` writes it: the whole bug report about a decision."""
        if not (await self._topics.rights_of(viewer)).can_plan:
            raise web.HTTPForbidden(text="A snapshot has the whole cluster, which you may not read.\n")

        async def make() -> bytes:
            snapshot = await self._source.snapshot()
            return await asyncio.to_thread(lambda: format_document(to_document(snapshot)).encode())

        try:
            body = await self._snapshots.get("snapshot", 0, make)  # it lists the whole cluster
        except ClusterError as error:
            raise web.HTTPServiceUnavailable(text=f"The cluster cannot be read now: {error}\n") from error
        return web.Response(
            body=body,
            content_type="application/json",
            headers={"Content-Disposition": 'attachment; filename="edl.snapshot.json"'},
        )

    async def asset(self, request: web.Request) -> web.Response:
        """Style, script or icon, for whoever asks.  Raises 404."""
        name = request.match_info["name"]
        if name not in ASSETS:
            raise web.HTTPNotFound(text="There is no such file.\n")
        body = (files("autoscaler.page") / "assets" / name).read_bytes()
        headers = {"Cache-Control": "max-age=3600" if "v" in request.query else "no-cache"}
        response = web.Response(body=body, content_type=ASSETS[name], charset="utf-8", headers=headers)
        response.enable_compression()
        return await send_whole(request, response)

    async def close(self) -> None:
        """Cancel what is being made."""
        await self._snapshots.close()
