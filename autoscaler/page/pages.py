"""The pages: what each reads, which view it shows, and the drawings that its template needs beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from autoscaler.page.drawings.cluster_drawing import draw_bar, draw_cluster
from autoscaler.page.drawings.curve_drawing import draw_curve
from autoscaler.page.page_source import PageSource
from autoscaler.page.planner_questions import PlannerQuestions
from autoscaler.views.cluster_picture import all_pods, job_colours
from autoscaler.views.documents import ClusterDocuments, Rights
from autoscaler.views.job_page_view import JobPageView
from autoscaler.views.job_view import job_views, pods_of
from autoscaler.views.journal import journal_of, search_journal
from autoscaler.views.now_view import now_view

LOG_LINES: Final = 20
_JOURNAL_LINES: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a page is made of: the place, its objects as far as they may be read, the arguments and the query."""

    source: PageSource
    questions: PlannerQuestions
    documents: ClusterDocuments
    rights: Rights
    arguments: Mapping[str, str]
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A view, which is what scripts get, and drawings of it for the template alone."""

    view: Any
    drawings: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page.  `path`: with arguments in braces; `title`: in the navigation, empty for a page that is not in it."""

    name: str
    path: str
    template: str
    title: str
    show: Callable[[Reading], Awaitable[Shown]]


async def show_now(reading: Reading) -> Shown:
    """The cluster now."""
    view = now_view(reading.documents, query=reading.query.get("q", ""))
    colours = job_colours(reading.documents.jobs)
    drawings = {
        "cluster": draw_cluster(view.picture, colours),
        "bars": [(unit, amount, draw_bar(view.picture.holdings, unit)) for unit, amount in view.picture.capacity],
        "outlook": await reading.questions.outlook(),
    }
    return Shown(view=view, drawings=drawings if reading.rights.can_plan else {**drawings, "outlook": {}})


async def show_job(reading: Reading) -> Shown:
    """One job.  Raises 404."""
    key = f"{reading.arguments['namespace']}/{reading.arguments['name']}"
    job = next((one for one in job_views(reading.documents) if one.key == key), None)
    if job is None:
        raise web.HTTPNotFound(text=f"There is no job {key}, or you may not see it.\n")
    pods = pods_of(all_pods(reading.documents), job)
    troubled = next((pod for pod in pods if not pod.is_ready and not pod.is_leaving), None)
    is_told = bool(job.problems) and bool(pods)
    log_pod = (troubled or pods[0]).name if is_told else ""
    view = JobPageView(
        job=job,
        pods=pods,
        why=await reading.questions.why(job) if reading.rights.can_plan and not job.ending else None,
        lines=journal_of(reading.source.journal(), job.namespace, job.name, most=_JOURNAL_LINES),
        log_pod=log_pod,
        log=tuple(await reading.source.log_tail(job.namespace, log_pod, LOG_LINES)) if log_pod else (),
    )
    return Shown(view=view, drawings={"curve": None if job.throughput is None else draw_curve(job.throughput)})


async def show_decisions(reading: Reading) -> Shown:
    """Decisions and events, searchable."""
    query = reading.query
    lines = reading.source.journal()
    view = search_journal(lines, reading.rights, query=query.get("q", ""), kind=query.get("kind", ""))
    return Shown(view=view, drawings={})


PAGES: Final = (
    Page(name="now", path="/", template="now.html", title="Now", show=show_now),
    Page(name="job", path="/jobs/{namespace}/{name}", template="job.html", title="", show=show_job),
    Page(name="decisions", path="/decisions", template="decisions.html", title="Decisions", show=show_decisions),
)
