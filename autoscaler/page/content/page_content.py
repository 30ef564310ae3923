"""What stands on each page: the values that its template gets, and its live part, for viewers with equal rights."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Final

from aiohttp import web

from autoscaler.page.content.job_answers import JobAnswers
from autoscaler.page.content.page_topics import Topic, live_address
from autoscaler.page.content.pages import PAGES, PageLink, PageSpec, Reading, Shown
from autoscaler.page.content.planner_questions import PlannerQuestions
from autoscaler.page.content.rendering import render_live, render_notice
from autoscaler.page.content.sample_history import SampleHistory
from autoscaler.page.content.sampler import Sampler
from autoscaler.page.page_source import PageSource
from autoscaler.views.documents import Rights, told_problem
from autoscaler.views.view_memo import ViewMemo

_PAGES: Final = {page.name: page for page in PAGES}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """Content of all pages of one place.  `answers`, `history`: see `Reading`; `report`: None where there is none."""

    source: PageSource
    questions: PlannerQuestions
    answers: JobAnswers | None
    sampler: Sampler
    memo: ViewMemo
    history: SampleHistory | None
    report: PageLink | None

    def reading(self, topic: Topic) -> Reading | None:
        """Return what the page is made of; None before anything is known."""
        documents = self.source.documents()
        if documents is None:
            return None
        return Reading(
            source=self.source,
            questions=self.questions,
            answers=self.answers,
            rings=self.sampler.rings,
            history=self.history,
            documents=replace(documents, memo=self.memo).readable(topic.rights),
            rights=topic.rights,
            arguments=dict(topic.arguments),
            query=dict(topic.query),
        )

    async def values(self, page: PageSpec, topic: Topic) -> Mapping[str, Any]:
        """Return what the page's template needs.  Raises web.HTTPException where what it shows is not there."""
        reading = None if self.sampler.is_looking else self.reading(topic)
        shown = Shown(view=None, drawings={}) if reading is None else await page.show(reading)
        return {
            **self.frame(page, topic.rights),
            "query": dict(topic.query),
            "live": live_address(page, topic) if page.is_live else "",
            "now_s": None if reading is None else reading.documents.now_s,
            "problem": told_problem(self.source.problem, topic.rights)
            if reading is None
            else reading.documents.problem,
            "is_current": reading is None or reading.documents.is_current,
            "unlisted": frozenset() if reading is None else reading.documents.unlisted,
            "view": shown.view,
            **shown.drawings,
        }

    def frame(self, page: PageSpec | PageLink, rights: Rights) -> Mapping[str, Any]:
        """Return what the layout shows around any page."""
        pages = [PageLink(name=one.name, path=one.path, title=one.title) for one in PAGES if one.title]
        return {
            "page": page,
            "pages": pages if self.report is None else [*pages, self.report],
            "title": self.source.title,
            "version": version("edl"),
            "rights": rights,
        }

    async def render_topic(self, topic: Topic) -> str:
        """Return the live part, once the first views are made."""
        page = _PAGES[topic.page]
        await self.sampler.wait_for_views(None)
        try:
            values = await self.values(page, topic)
        except web.HTTPException as refusal:  # what it shows is gone, as a job that was deleted: the open page says so
            return render_notice(refusal.text or refusal.reason)
        return await asyncio.to_thread(render_live, page.template, values)

    def read_from(self, topic: Topic) -> tuple[object, ...] | None:
        """Return the objects that the topic's page shows; None where it shows more than objects."""
        reading = self.reading(topic)
        is_planned = topic.rights.can_plan and self.questions.plans_unasked
        if reading is None or is_planned or not _PAGES[topic.page].is_of_objects:
            return None
        documents = reading.documents
        told = documents.memo.same("told", (documents.problem, documents.is_current, documents.unlisted))
        return documents.nodes, documents.pods, documents.jobs, documents.deployments, documents.node_gpus, told
