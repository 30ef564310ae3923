"""The page as an aiohttp application: each page as HTML, as JSON below /api, and as a live stream below /live.

All of it is read; the one route that changes something is that of `keeping`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from aiohttp import web

from autoscaler.errors import ClusterError
from autoscaler.page.access import Access, Viewer
from autoscaler.page.answers import ViewerShares, ViewerTurns, send_whole, sending
from autoscaler.page.experiments_report import REPORT, ReportAnswers, find_report
from autoscaler.page.job_answers import JobAnswers
from autoscaler.page.json_answers import encode_view
from autoscaler.page.keeping import KEEP_PATH, Keeping, PodKeeper
from autoscaler.page.live_stream import MOST_VIEWERS, LiveHub, LivePart, Topic
from autoscaler.page.page_metrics import PageMetrics
from autoscaler.page.page_source import PageSource
from autoscaler.page.pages import PAGES, PageLink, PageSpec, Reading, Shown
from autoscaler.page.planner_questions import PlannerQuestions
from autoscaler.page.rendering import render_live, render_notice, render_page
from autoscaler.page.request_checks import FORM_HEADERS, add_headers, check_query, request_checks
from autoscaler.page.sample_history import SampleHistory
from autoscaler.page.sampler import Sampler
from autoscaler.page.shared_answers import SharedAnswers
from autoscaler.snapshots import format_document, to_document
from autoscaler.views.documents import Rights, told_problem
from autoscaler.views.view_memo import ViewMemo

HEARTBEAT_S: Final = 10.0
"""A stream that is silent for longer is cut by proxies."""

ALIVE: Final = b": nothing new\nevent: alive\ndata: 1\n\n"
"""A sign of life, which a browser's script hears too."""

RETRY_MS: Final = 1_000
RETRY_STEPS: Final = 20
"""A browser whose stream ended asks again after one to three seconds: not all at once, where a new leader begins."""

RIGHTS_KEPT_S: Final = 5.0
"""A stream asks again for its viewer's rights after this long."""

VIEWS_WAIT_S: Final = 0.2
"""A page waits so long for the first views of a large cluster; then it says that nothing is known yet, and the stream
brings it."""

KEPT_S: Final = 1.0
"""A page, or an answer to a script, is at most this much older than what it shows: ages and plans in it move on."""

MOST_MADE: Final = 64
"""Different answers of a kind that are made at a time, whoever asks; `answers.MOST_MADE_AT_ONCE` bounds one viewer."""

MOST_BODY_BYTES: Final = 1 << 10
ASSETS: Final = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
STREAM_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx hands each part on at once
}

Answer: TypeAlias = Callable[[web.Request, Viewer], Awaitable[web.Response]]
"""Makes the answer to a viewer's request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Settings of a page.  `hosts`: names, without port, under which it may be asked for; `most_viewers`: at a time.

    `plans_unasked` False: the planner is asked by who fills in its form, and by no page that is only looked at, except
    that with `explains_jobs` a job's page asks what would give it more, without waiting (`JobAnswers`).
    """

    hosts: frozenset[str]
    most_viewers: int = MOST_VIEWERS
    plans_unasked: bool = True
    explains_jobs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _MadePage:
    """A page as all who have equal rights see it: without what is one viewer's own."""

    values: Mapping[str, Any]
    text: str


class PageApp:
    """The application.  `app` is what a server serves.  `keeper` None: nothing can be changed."""

    def __init__(
        self,
        source: PageSource,
        access: Access,
        settings: PageSettings,
        *,
        keeper: PodKeeper | None = None,
        history: SampleHistory | None = None,
    ) -> None:
        self._source = source
        self._history = history
        self._access = access
        self._questions = PlannerQuestions(source, plans_unasked=settings.plans_unasked)
        self._answers = JobAnswers(self._questions) if settings.explains_jobs else None
        self._keeping = Keeping(source, access, keeper, now_s=time.time)
        self._memo = ViewMemo()
        self._sampler = Sampler(source, self._memo)
        self._pages = {page.name: page for page in PAGES}
        self._shares = ViewerShares()
        self._turns = ViewerTurns()
        self._html = SharedAnswers[_MadePage](kept_s=KEPT_S, most=MOST_MADE)
        self._json = SharedAnswers[bytes](kept_s=KEPT_S, most=MOST_MADE)
        self.metrics: Final = PageMetrics()
        self._hub = LiveHub(
            source,
            self._render_topic,
            self._read_from,
            most_viewers=settings.most_viewers,
            turns=self._turns,
            record=self.metrics.record_part,
        )
        self.metrics.watch(lambda: self._hub.viewers, lambda: self._hub.topics)
        self.app = web.Application(middlewares=[request_checks(settings.hosts)], client_max_size=MOST_BODY_BYTES)
        self.app.on_response_prepare.append(add_headers)
        self.app.on_response_prepare.append(self.metrics.count_answer)
        self.app.on_shutdown.append(self._shut_down)
        self.app.on_cleanup.append(self._close_questions)
        self.app.cleanup_ctx.append(self._sampler.running)
        for page in PAGES:
            self.app.router.add_get(page.path, self._plain(self._html_of(page)))
            self.app.router.add_get(f"/api/{page.name}{page.path.rstrip('/')}", self._plain(self._json_of(page)))
            if page.is_live:
                address = f"/live/{page.name}{page.path.rstrip('/')}"
                self.app.router.add_get(address, self._live_of(page), allow_head=False)
        self._report = find_report()
        if self._report is not None:
            answers = ReportAnswers(self._report, self._report_frame)
            self.app.router.add_get(REPORT.path, self._plain(answers.page))
            self.app.router.add_get(f"{REPORT.path}/{{name}}", self._plain(answers.picture))
        self.app.router.add_post(KEEP_PATH, self._plain(self._keeping.answer))
        self.app.router.add_get("/snapshot.json", self._plain(self._snapshot))
        self.app.router.add_get("/assets/{name}", self._asset)

    @property
    def is_warm(self) -> bool:
        """True once views of all objects have been made; before that a first paint may take seconds."""
        return self._sampler.has_looked

    @property
    def viewers(self) -> int:
        """Open streams."""
        return self._hub.viewers

    # ---- handlers ---------------------------------------------------------------------------------------------------

    def _plain(self, answer: Answer) -> Any:
        """Return a handler that sends this answer, as one of few that its viewer has under way."""

        async def handle(request: web.Request) -> web.Response:
            viewer = await self._access.identify(request)
            with self._shares.taking(viewer.name):
                return await send_whole(request, await answer(request, viewer))

        return handle

    def _html_of(self, page: PageSpec) -> Answer:
        async def answer(request: web.Request, viewer: Viewer) -> web.Response:
            topic = await self._topic_of(page, request, viewer)
            await self._sampler.wait_for_views(VIEWS_WAIT_S)
            version = 0 if self._source.documents() is None else await self._source.wait_for_change(0)

            async def make() -> _MadePage:
                values = {**await self._values(page, topic), "keep": None}
                return _MadePage(values=values, text=await asyncio.to_thread(render_page, page.template, values))

            async with self._turns.turn(viewer.name):
                made = await self._html.get((topic, self._sampler.is_looking), version, make)
                keep, text = await self._keeping.form_of(viewer, made.values["view"]), made.text
                if keep is not None:  # it is this viewer's
                    text = await asyncio.to_thread(render_page, page.template, {**made.values, "keep": keep})
            headers = FORM_HEADERS if keep is not None else None
            response = web.Response(text=text, content_type="text/html", headers=headers)
            response.enable_compression()
            return response

        return answer

    def _json_of(self, page: PageSpec) -> Answer:
        async def answer(request: web.Request, viewer: Viewer) -> web.Response:
            topic = await self._topic_of(page, request, viewer)
            reading = self._reading(topic)
            if reading is None:
                return web.Response(body=b"null", content_type="application/json")

            async def make() -> bytes:
                view = (await page.show(reading)).view
                return await asyncio.to_thread(encode_view, view, reading.documents)

            version = await self._source.wait_for_change(0)
            async with self._turns.turn(viewer.name):
                body = await self._json.get(topic, version, make)
            response = web.Response(body=body, content_type="application/json")
            response.enable_compression()
            return response

        return answer

    def _live_of(self, page: PageSpec) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            viewer = await self._access.identify(request)
            topic = await self._topic_of(page, request, viewer)
            with self._hub.follow(topic, viewer.name) as part:
                response = web.StreamResponse(headers=STREAM_HEADERS)
                await response.prepare(request)
                with suppress(ConnectionResetError):
                    await response.write(f"retry: {retry_ms(self._hub.viewers)}\n\n".encode())
                    await self._send_parts(request, response, topic, part)
                return response

        return handle

    async def _send_parts(
        self, request: web.Request, response: web.StreamResponse, topic: Topic, part: LivePart
    ) -> None:
        """Send each new part, and a sign of life where there is none, until the viewer leaves or has other rights."""
        loop, sent, checked_at_s = asyncio.get_running_loop(), 0, asyncio.get_running_loop().time()
        while True:
            number = await part.newer_than(sent, HEARTBEAT_S)
            if loop.time() - checked_at_s > RIGHTS_KEPT_S:
                if not await self._still_has(topic.rights, request):
                    return
                checked_at_s = loop.time()
            data = ALIVE if number is None else part.event
            sent = sent if number is None else number
            async with sending(request, len(data)):
                await response.write(data)

    async def _still_has(self, rights: Rights, request: web.Request) -> bool:
        """True if an open stream's viewer has these rights; not if that is not known now: the answer has begun."""
        try:
            return await self._rights_of(await self._access.identify(request)) == rights
        except web.HTTPException:
            return False

    async def _snapshot(self, _request: web.Request, viewer: Viewer) -> web.Response:
        """The snapshot as a file, as `edl snapshot save` writes it: the whole bug report about a decision."""
        if not (await self._rights_of(viewer)).can_plan:
            raise web.HTTPForbidden(text="A snapshot has the whole cluster, which you may not read.\n")

        async def make() -> bytes:
            snapshot = await self._source.snapshot()
            return await asyncio.to_thread(lambda: format_document(to_document(snapshot)).encode())

        try:
            body = await self._json.get("snapshot", 0, make)  # it lists the whole cluster
        except ClusterError as error:
            raise web.HTTPServiceUnavailable(text=f"The cluster cannot be read now: {error}\n") from error
        return web.Response(
            body=body,
            content_type="application/json",
            headers={"Content-Disposition": 'attachment; filename="edl.snapshot.json"'},
        )

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in ASSETS:
            raise web.HTTPNotFound(text="There is no such file.\n")
        body = (files("autoscaler.page") / "assets" / name).read_bytes()
        headers = {"Cache-Control": "max-age=3600" if "v" in request.query else "no-cache"}
        response = web.Response(body=body, content_type=ASSETS[name], charset="utf-8", headers=headers)
        response.enable_compression()
        return await send_whole(request, response)

    async def _shut_down(self, _app: web.Application) -> None:
        await self._hub.close()

    async def _close_questions(self, _app: web.Application) -> None:
        await self._html.close()
        await self._json.close()
        if self._answers is not None:
            await self._answers.close()
        await self._questions.close()

    # ---- what a request is for --------------------------------------------------------------------------------------

    async def _topic_of(self, page: PageSpec, request: web.Request, viewer: Viewer) -> Topic:
        check_query(request, page.parameters)
        rights = await self._rights_of(viewer)
        return Topic(
            page=page.name,
            arguments=tuple(sorted(request.match_info.items())),
            query=tuple(sorted(request.query.items())),
            rights=rights,
        )

    async def _rights_of(self, viewer: Viewer) -> Rights:
        documents = self._source.documents()
        return await self._access.rights_of(viewer, documents.namespaces() if documents is not None else ())

    def _reading(self, topic: Topic) -> Reading | None:
        """Return what the page is made of; None before anything is known."""
        documents = self._source.documents()
        if documents is None:
            return None
        return Reading(
            source=self._source,
            questions=self._questions,
            answers=self._answers,
            rings=self._sampler.rings,
            history=self._history,
            documents=replace(documents, memo=self._memo).readable(topic.rights),
            rights=topic.rights,
            arguments=dict(topic.arguments),
            query=dict(topic.query),
        )

    async def _values(self, page: PageSpec, topic: Topic) -> Mapping[str, Any]:
        reading = None if self._sampler.is_looking else self._reading(topic)
        shown = Shown(view=None, drawings={}) if reading is None else await page.show(reading)
        return {
            **self._frame(page, topic.rights),
            "query": dict(topic.query),
            "live": live_address(page, topic) if page.is_live else "",
            "now_s": None if reading is None else reading.documents.now_s,
            "problem": told_problem(self._source.problem, topic.rights)
            if reading is None
            else reading.documents.problem,
            "is_current": reading is None or reading.documents.is_current,
            "unlisted": frozenset() if reading is None else reading.documents.unlisted,
            "view": shown.view,
            **shown.drawings,
        }

    def _frame(self, page: PageSpec | PageLink, rights: Rights) -> Mapping[str, Any]:
        """Return what the layout shows around any page."""
        pages = [PageLink(name=one.name, path=one.path, title=one.title) for one in PAGES if one.title]
        return {
            "page": page,
            "pages": pages if self._report is None else [*pages, REPORT],
            "title": self._source.title,
            "version": version("edl"),
            "rights": rights,
        }

    async def _report_frame(self, viewer: Viewer) -> Mapping[str, Any]:
        return self._frame(REPORT, await self._rights_of(viewer))

    async def _render_topic(self, topic: Topic) -> str:
        page = self._pages[topic.page]
        await self._sampler.wait_for_views(None)
        try:
            values = await self._values(page, topic)
        except web.HTTPException as refusal:  # what it shows is gone, as a job that was deleted: the open page says so
            return render_notice(refusal.text or refusal.reason)
        return await asyncio.to_thread(render_live, page.template, values)

    def _read_from(self, topic: Topic) -> tuple[object, ...] | None:
        """Return the objects that the topic's page shows; None where it shows more than objects."""
        reading = self._reading(topic)
        is_planned = topic.rights.can_plan and self._questions.plans_unasked
        if reading is None or is_planned or not self._pages[topic.page].is_of_objects:
            return None
        documents = reading.documents
        told = documents.memo.same("told", (documents.problem, documents.is_current, documents.unlisted))
        return documents.nodes, documents.pods, documents.jobs, documents.deployments, documents.node_gpus, told


def retry_ms(viewers: int) -> int:
    """Return the pause before a browser asks again for its stream, another one for each of some viewers."""
    return RETRY_MS + 100 * (viewers % RETRY_STEPS)


def live_address(page: PageSpec, topic: Topic) -> str:
    """Return the address of the stream for what a page shows."""
    path = page.path.format_map({name: _quoted(value) for name, value in topic.arguments})
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in topic.query)
    return f"/live/{page.name}{path.rstrip('/')}" + (f"?{query}" if query else "")


def _quoted(text: str) -> str:
    return quote(text, safe="")
