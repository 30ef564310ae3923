"""The page as an aiohttp application: each page as HTML, as JSON below /api, and as a live stream below /live.

All of it is read; the one route that changes something is that of `keeping`.  `page_answers` and `live_answers` make
the answers out of `page_content`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from aiohttp import web

from autoscaler.page.access.answer_limits import ViewerShares, ViewerTurns, send_whole
from autoscaler.page.access.request_checks import add_headers, request_checks
from autoscaler.page.access.viewers import Access, Viewer
from autoscaler.page.answers.experiments_report import REPORT, ReportAnswers, find_report
from autoscaler.page.answers.file_answers import FileAnswers
from autoscaler.page.answers.keeping import KEEP_PATH, Keeping, PodKeeper
from autoscaler.page.answers.page_answers import PageAnswers
from autoscaler.page.content.job_answers import JobAnswers
from autoscaler.page.content.page_content import PageContent
from autoscaler.page.content.page_topics import PageTopics
from autoscaler.page.content.pages import PAGES
from autoscaler.page.content.planner_questions import PlannerQuestions
from autoscaler.page.content.sample_history import SampleHistory
from autoscaler.page.content.sampler import Sampler
from autoscaler.page.live.live_answers import LiveAnswers
from autoscaler.page.live.live_stream import MOST_VIEWERS, LiveHub
from autoscaler.page.page_metrics import PageMetrics
from autoscaler.page.page_source import PageSource
from autoscaler.views.view_memo import ViewMemo

MOST_BODY_BYTES: Final = 1 << 10

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
        self._access = access
        self._questions = PlannerQuestions(source, plans_unasked=settings.plans_unasked)
        self._explained = JobAnswers(self._questions) if settings.explains_jobs else None
        self._shares = ViewerShares()
        memo, turns = ViewMemo(), ViewerTurns()
        self._sampler = Sampler(source, memo)
        self._report = find_report()
        self._topics = PageTopics(source, access)
        self._content = PageContent(
            source=source,
            questions=self._questions,
            answers=self._explained,
            sampler=self._sampler,
            memo=memo,
            history=history,
            report=None if self._report is None else REPORT,
        )
        self.metrics: Final = PageMetrics()
        self._hub = LiveHub(
            source,
            self._content.render_topic,
            self._content.read_from,
            most_viewers=settings.most_viewers,
            turns=turns,
            record=self.metrics.record_part,
        )
        self.metrics.watch(lambda: self._hub.viewers, lambda: self._hub.topics)
        self._keeping = Keeping(source, access, keeper, now_s=time.time)
        self._pages = PageAnswers(self._content, self._topics, self._keeping, turns)
        self._files = FileAnswers(source, self._topics)
        self.app = web.Application(middlewares=[request_checks(settings.hosts)], client_max_size=MOST_BODY_BYTES)
        self.app.on_response_prepare.append(add_headers)
        self.app.on_response_prepare.append(self.metrics.count_answer)
        self.app.on_shutdown.append(self._shut_down)
        self.app.on_cleanup.append(self._close)
        self.app.cleanup_ctx.append(self._sampler.running)
        self._add_routes()

    @property
    def is_warm(self) -> bool:
        """True once views of all objects have been made; before that a first paint may take seconds."""
        return self._sampler.has_looked

    @property
    def viewers(self) -> int:
        """Open streams."""
        return self._hub.viewers

    def _add_routes(self) -> None:
        router, live = self.app.router, LiveAnswers(self._hub, self._topics)
        for page in PAGES:
            below = f"{page.name}{page.path.rstrip('/')}"
            router.add_get(page.path, self._plain(partial(self._pages.html, page)))
            router.add_get(f"/api/{below}", self._plain(partial(self._pages.json, page)))
            if page.is_live:
                router.add_get(f"/live/{below}", self._long(partial(live.stream, page)), allow_head=False)
        if self._report is not None:
            report = ReportAnswers(self._report, self._report_frame)
            router.add_get(REPORT.path, self._plain(report.page))
            router.add_get(f"{REPORT.path}/{{name}}", self._plain(report.picture))
        router.add_post(KEEP_PATH, self._plain(self._keeping.answer))
        router.add_get("/snapshot.json", self._plain(self._files.snapshot))
        router.add_get("/assets/{name}", self._files.asset)

    def _plain(self, answer: Answer) -> Any:
        """Return a handler that sends this answer, as one of few that its viewer has under way."""

        async def handle(request: web.Request) -> web.Response:
            viewer = await self._access.identify(request)
            with self._shares.taking(viewer.name):
                return await send_whole(request, await answer(request, viewer))

        return handle

    def _long(self, answer: Callable[[web.Request, Viewer], Awaitable[web.StreamResponse]]) -> Any:
        """Return a handler of an answer that sends itself."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await answer(request, await self._access.identify(request))

        return handle

    async def _report_frame(self, viewer: Viewer) -> Mapping[str, Any]:
        return self._content.frame(REPORT, await self._topics.rights_of(viewer))

    async def _shut_down(self, _app: web.Application) -> None:
        await self._hub.close()

    async def _close(self, _app: web.Application) -> None:
        await self._pages.close()
        await self._files.close()
        if self._explained is not None:
            await self._explained.close()
        await self._questions.close()
