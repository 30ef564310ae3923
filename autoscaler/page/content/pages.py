"""The pages: what each reads, which view it shows, and the drawings that its template needs beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aiohttp import web

from autoscaler.clusters.kubernetes.api.kinds import PODS, TRAINING_JOBS
from autoscaler.errors import AutoscalerError
from autoscaler.page.content.job_answers import JobAnswers
from autoscaler.page.content.planner_questions import PlannerQuestions, PlanOutlook
from autoscaler.page.content.sample_history import SampleHistory
from autoscaler.page.drawings.cluster_drawing import draw_bars, draw_cluster
from autoscaler.page.drawings.curve_drawing import draw_curve
from autoscaler.page.drawings.time_drawing import draw_time
from autoscaler.page.page_source import PageSource
from autoscaler.views.cluster.cluster_picture import colours_of
from autoscaler.views.cluster.owner_shares import largest_holdings, shares_of
from autoscaler.views.cluster.pod_view import all_pods
from autoscaler.views.documents import ClusterDocuments, Rights
from autoscaler.views.history.journal import journal_of, search_journal
from autoscaler.views.history.samples import RINGS, ClusterSample, SampleRings, of_present_namespaces, standing_since
from autoscaler.views.history.time_view import time_view
from autoscaler.views.jobs.job_view import JobView, job_views, pods_of
from autoscaler.views.pages.job_page_view import JobPageView, WhyView
from autoscaler.views.pages.now_view import NowView, now_view
from autoscaler.views.pages.pod_page_view import pod_page_view
from autoscaler.views.pages.waiting_view import pods_without_node, states_of, waiting_view, wants_more
from autoscaler.views.planning.readable_why import readable_why
from autoscaler.views.planning.what_if_form import FORM_FIELDS, WhatIfView, read_form

LOG_LINES: Final = 20
_JOURNAL_LINES: Final = 15
MOST_HELPED: Final = 3  # waiting jobs for which the planner is asked what would help
MOST_OFFERED: Final = 2_000  # names in a list of the form
LEAST_SAMPLES: Final = 2  # of a plot
NEEDS_PLANNING: Final = (
    "a plan needs the capacity of the whole cluster, which you may not read, or this page does not plan; "
    "edl page and edl what-if ask with your own rights"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a page is made of: the place, its objects as far as they may be read, the arguments and the query.

    `answers`: None where the planner answers those who may ask it, and no page beside.
    """

    source: PageSource
    questions: PlannerQuestions
    answers: JobAnswers | None
    rings: SampleRings
    history: SampleHistory | None
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
class PageLink:
    """A page as the navigation names it."""

    name: str
    path: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """One page.  `path`: with arguments in braces; `title`: in the navigation, empty for a page that is not in it.

    `parameters`: names of all that may stand in the query of its address, each with its choices, none for any text; no
    other may.  `is_live`: it renews itself; an answer about one instant does not.  `is_of_objects`: where nobody plans
    it shows the objects alone, without journal, samples or logs.
    """

    name: str
    path: str
    template: str
    title: str
    show: Callable[[Reading], Awaitable[Shown]]
    parameters: Mapping[str, Collection[str]] = field(default_factory=dict)
    is_live: bool = True
    is_of_objects: bool = False


async def show_now(reading: Reading) -> Shown:
    """The cluster now."""
    view, drawings = await asyncio.to_thread(_now_drawn, reading)
    growing = [job for job in view.jobs if wants_more(job)]
    asked = {
        "outlook": (await outlook_of(reading)).jobs,
        "help": await reading.questions.help_for(growing) if reading.rights.can_plan else {},
    }
    return Shown(view=view, drawings={**drawings, **asked})


def _now_drawn(reading: Reading) -> tuple[NowView, Mapping[str, Any]]:
    """Return the view and its drawings, which of a large cluster take longer than the streams may wait."""
    documents, memo = reading.documents, reading.documents.memo
    view = now_view(documents, query=reading.query.get("q", ""))
    holdings = memo.once(largest_holdings, view.picture.holdings)
    drawings = {
        "cluster": memo.once(draw_cluster, view.picture, colours_of(documents)),
        "bars": memo.once(draw_bars, holdings, view.picture.capacity),
        "shares": memo.once(shares_of, holdings),
    }
    return view, drawings


async def outlook_of(reading: Reading) -> PlanOutlook:
    """What the next plan holds, for those who may ask the planner."""
    return await reading.questions.outlook() if reading.rights.can_plan else PlanOutlook()


async def why_shown(reading: Reading, job: JobView) -> WhyView | None:
    """Why the job has its size, and what would give it more, as far as the viewer may know; None: nobody is asked."""
    if reading.answers is not None:
        return readable_why(await reading.answers.why(job), reading.rights)
    return await reading.questions.why(job) if reading.rights.can_plan else None


async def show_job(reading: Reading) -> Shown:
    """One job.  Raises 404, 503 where the jobs cannot be listed."""
    key = f"{reading.arguments['namespace']}/{reading.arguments['name']}"
    job = next((one for one in job_views(reading.documents) if one.key == key), None)
    if job is None and TRAINING_JOBS.plural in reading.documents.unlisted:
        raise web.HTTPServiceUnavailable(text=f"Which jobs there are is not known: {reading.documents.problem}\n")
    if job is None:
        raise web.HTTPNotFound(text=f"There is no job {key}, or you may not see it.\n")
    pods = pods_of(all_pods(reading.documents), job)
    troubled = next((pod for pod in pods if not pod.is_ready and not pod.is_leaving), None)
    is_told = bool(job.problems) and bool(pods)
    log_pod = (troubled or pods[0]).name if is_told else ""
    view = JobPageView(
        job=job,
        pods=pods,
        why=None if job.ending else await why_shown(reading, job),
        lines=journal_of(reading.source.journal(), job.namespace, job.name, most=_JOURNAL_LINES),
        log_pod=log_pod,
        log=tuple(await reading.source.log_tail(job.namespace, log_pod, LOG_LINES)) if log_pod else (),
    )
    return Shown(view=view, drawings={"curve": None if job.throughput is None else draw_curve(job.throughput)})


async def show_pod(reading: Reading) -> Shown:
    """One pod.  Raises 404, 503 where the pods cannot be listed."""
    namespace, name = reading.arguments["namespace"], reading.arguments["name"]
    view = pod_page_view(reading.documents, tuple(reading.source.journal()), namespace, name)
    if view is None and PODS.plural in reading.documents.unlisted:
        raise web.HTTPServiceUnavailable(text=f"Which pods there are is not known: {reading.documents.problem}\n")
    if view is None:
        raise web.HTTPNotFound(text=f"There is no pod {namespace}/{name}, or you may not see it.\n")
    return Shown(view=view, drawings={})


async def show_waiting(reading: Reading) -> Shown:
    """Who waits, and what would help the first of them."""
    outlook = await outlook_of(reading)
    view = waiting_view(reading.documents, outlook.queue)
    without_node = pods_without_node(all_pods(reading.documents))
    first = [one.job for one in view.starting[:MOST_HELPED]] if reading.rights.can_plan else []
    drawings = {
        "outlook": outlook.jobs,
        "states": {key: states_of(pods, outlook.demands) for key, pods in without_node.items()},
        "help": {job.key: await reading.questions.why(job) for job in first},
    }
    return Shown(view=view, drawings=drawings)


async def show_time(reading: Reading) -> Shown:
    """Who had the cluster, over the last hour or day."""
    span = reading.query.get("span", next(iter(RINGS)))
    samples, origin, problem = await samples_of(reading, span)
    view = time_view(samples, reading.source.journal(), reading.rights, span=span, origin=origin, problem=problem)
    return Shown(view=view, drawings={"plot": draw_time(view, colours_of(reading.documents))})


async def samples_of(reading: Reading, span: str) -> tuple[Sequence[ClusterSample], str, str]:
    """Return the samples of a span, where they are from (empty: this process), and why not from where they should."""
    own = reading.rings.samples(span, now_s=reading.documents.now_s)
    if reading.history is None:
        return own, "", ""
    try:
        unit = own[-1].unit if own else None
        found = await reading.history.samples(span, unit, now_s=reading.documents.now_s)
    except AutoscalerError as error:
        return own, "", str(error)
    if len(found) < LEAST_SAMPLES:
        return own, "", f"{reading.history.name} has no samples of it"
    if reading.rights.namespaces is not None:  # of a namespace that has ended, whose name they have now, it knows too
        since_s = await asyncio.to_thread(standing_since, reading.documents)
        found = of_present_namespaces(found, since_s)
    return found, reading.history.name, ""


async def show_what_if(reading: Reading) -> Shown:
    """What a change would do.  Nothing is asked before a change is given."""
    if not reading.rights.can_plan:
        return Shown(view=WhatIfView(answer=None, problem=NEEDS_PLANNING), drawings={})
    try:
        inputs = await reading.questions.inputs()
    except AutoscalerError as error:
        return Shown(view=WhatIfView(answer=None, problem=str(error)), drawings={})
    changes, problems = read_form(reading.query, inputs)
    is_asked = not problems and not changes.is_empty
    found = await reading.questions.what_if(changes) if is_asked else WhatIfView(answer=None)
    view = replace(
        found,
        made_by=reading.questions.made_by,
        problems=problems,
        nodes=tuple(one.name for one in inputs.view.nodes[:MOST_OFFERED]),
        deployments=tuple(one.name for one in inputs.view.workloads[:MOST_OFFERED]),
    )
    return Shown(view=view, drawings={})


async def show_decisions(reading: Reading) -> Shown:
    """Decisions and events, searchable."""
    query = reading.query
    lines = reading.source.journal()
    view = search_journal(lines, reading.rights, query=query.get("q", ""), kind=query.get("kind", ""))
    return Shown(view=view, drawings={})


SEARCHED: Final[Mapping[str, Collection[str]]] = {"q": ()}

PAGES: Final = (
    PageSpec(
        name="now",
        path="/",
        template="now.html",
        title="Now",
        show=show_now,
        parameters=SEARCHED,
        is_of_objects=True,
    ),
    PageSpec(name="job", path="/jobs/{namespace}/{name}", template="job.html", title="", show=show_job),
    PageSpec(name="pod", path="/pods/{namespace}/{name}", template="pod.html", title="", show=show_pod),
    PageSpec(
        name="waiting", path="/waiting", template="waiting.html", title="Waiting", show=show_waiting, is_of_objects=True
    ),
    PageSpec(
        name="decisions",
        path="/decisions",
        template="decisions.html",
        title="Decisions",
        show=show_decisions,
        parameters={**SEARCHED, "kind": ()},  # kinds are those of the lines that are kept now
    ),
    PageSpec(
        name="time",
        path="/time",
        template="time.html",
        title="Time",
        show=show_time,
        parameters={"span": tuple(RINGS)},
    ),
    PageSpec(
        name="what-if",
        path="/what-if",
        template="what_if.html",
        title="What if",
        show=show_what_if,
        parameters=dict.fromkeys(FORM_FIELDS, ()),  # the form says what is wrong with them
        is_live=False,
    ),
)
