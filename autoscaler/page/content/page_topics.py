"""What a request is for: its page, with arguments, query, and the rights of who asks."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import web

from autoscaler.page.access.request_checks import check_query
from autoscaler.page.access.viewers import Access, Viewer
from autoscaler.page.content.pages import PageSpec
from autoscaler.page.page_source import PageSource
from autoscaler.views.documents import Rights


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A page, its arguments and its query, for viewers with these rights."""

    page: str
    arguments: tuple[tuple[str, str], ...]
    query: tuple[tuple[str, str], ...]
    rights: Rights


class PageTopics:
    """Topics of requests about one place."""

    def __init__(self, source: PageSource, access: Access) -> None:
        self._source = source
        self._access = access

    async def topic_of(self, page: PageSpec, request: web.Request, viewer: Viewer) -> Topic:
        """Return what the viewer asks for.  Raises web.HTTPException for a parameter that the page does not have."""
        check_query(request, page.parameters)
        return Topic(
            page=page.name,
            arguments=tuple(sorted(request.match_info.items())),
            query=tuple(sorted(request.query.items())),
            rights=await self.rights_of(viewer),
        )

    async def rights_of(self, viewer: Viewer) -> Rights:
        """Return what the viewer may read now.  Raises web.HTTPException (`Access`)."""
        documents = self._source.documents()
        return await self._access.rights_of(viewer, documents.namespaces() if documents is not None else ())

    async def still_has(self, rights: Rights, request: web.Request) -> bool:
        """True if an open stream's viewer has these rights; not if that is not known now: the answer has begun."""
        try:
            return await self.rights_of(await self._access.identify(request)) == rights
        except web.HTTPException:
            return False


def live_address(page: PageSpec, topic: Topic) -> str:
    """Return the address of the stream for what a page shows."""
    path = page.path.format_map({name: _quoted(value) for name, value in topic.arguments})
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in topic.query)
    return f"/live/{page.name}{path.rstrip('/')}" + (f"?{query}" if query else "")


def _quoted(text: str) -> str:
    return quote(text, safe="")
