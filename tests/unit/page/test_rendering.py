"""What a page writes: names of others are text and nothing else, wherever they stand."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from aiohttp import web

from autoscaler.page.answers.keeping import make_form
from autoscaler.page.content.pages import PAGES, Reading
from autoscaler.page.content.planner_questions import PlannerQuestions
from autoscaler.page.content.rendering import environment, render_live, render_notice, render_page
from autoscaler.page.drawings.words import format_placement
from autoscaler.page.live.live_stream import event_of
from autoscaler.views.documents import EVERYTHING, ClusterDocuments, Rights
from autoscaler.views.history.samples import SampleRings, sample_of
from autoscaler.views.jobs.growth_words import GROWS
from tests.harness.page_cluster import (
    NOW_S,
    FixedSource,
    condition,
    demo_documents,
    demo_lines,
    deployment,
    job,
    line,
    node,
    pod,
    progress,
    resize,
    snapshot_of_job,
)

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onfocus=alert(1) autofocus='",
    "\u202egnp.exe\u2066",
    "\x1b[2J\x1b]0;owned\x07",
    "{{ 7 * 7 }}{% raw %}",
    "n" * 300,
    "a/b?c=d#e&f%2e%00",
    "\u65e5\u672c\u200f\u05e2\u05d1",
)


DIGITS_A = {"namespace": "team", "name": "digits-a"}


class Elements(HTMLParser):
    """Every element and attribute of a page, as a browser's parser finds them."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.found = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def hostile_documents(name):
    return ClusterDocuments(
        now_s=NOW_S,
        nodes=(node(name), node("n2", labels={"edl.dev/drain": name})),
        pods=(
            pod(name, on=name, job=name, namespace=name),
            pod(f"{name}2", on=name, deployment=name, namespace=name),
            pod(f"{name}3", namespace=name, gpus=1, annotations={"edl.dev/keep-until": name}),
        ),
        jobs=(
            job(
                name,
                namespace=name,
                message=name,
                reason=name,
                conditions=[condition("Degraded", reason=name, message=name)],
                progress=progress(metrics={name: 1.0}),
                resizes=[resize(1, 2, cause=name, message=name)],
            ),
        ),
        deployments=(deployment(name, namespace=name, replicas=3),),
    )


async def shown(page, source, *, arguments=(), query=(), whole=True, rights=EVERYTHING):
    rings = SampleRings()
    sample = sample_of(source.documents())
    for age_s in (9.0, 4.0, 0.0) if sample else ():
        rings.add(replace(sample, at_s=NOW_S - age_s))
    reading = Reading(
        source=source,
        questions=PlannerQuestions(source),
        answers=None,
        rings=rings,
        history=None,
        documents=source.documents(),
        rights=rights,
        arguments=dict(arguments),
        query=dict(query),
    )
    found = await page.show(reading)
    values = {
        "page": page,
        "pages": [one for one in PAGES if one.title],
        "title": source.title,
        "version": "1",
        "rights": rights,
        "query": dict(query),
        "live": "/live/now",
        "now_s": NOW_S,
        "problem": source.documents().problem,
        "is_current": source.documents().is_current,
        "unlisted": source.documents().unlisted,
        "view": found.view,
        "keep": make_form(found.view, may_keep=True, now_s=NOW_S) if page.name == "pod" else None,
        **found.drawings,
    }
    return (render_page if whole else render_live)(page.template, values)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_names_of_others_are_text_alone(page, name):
    """No element, attribute or address of the page comes out of a name."""
    lines = [line(target, name, name, namespace=name, kind=name) for target in (f"tj/{name}", f"pod/{name}3")]
    source = FixedSource(hostile_documents(name), lines, log=[name])
    source.title = name
    arguments = {"namespace": name, "name": f"{name}3" if page.name == "pod" else name}
    html = await shown(page, source, arguments=arguments, query={"q": name[:40], "kind": name})
    found = Elements(html)
    allowed = {"/assets/page.js?v=1"}
    assert {attrs.get("src") for tag, attrs in found.found if tag == "script"} == allowed
    assert not [attrs for _, attrs in found.found if any(one.startswith("on") for one in attrs)]
    assert not [tag for tag, _ in found.found if tag in {"img", "iframe", "style", "base", "object", "embed"}]
    assert not [attrs for _, attrs in found.found if "style" in attrs]
    links = [attrs[at] for _, attrs in found.found for at in ("href", "action") if at in attrs]
    assert [one for one in links if not one.startswith("/") or one.startswith("//")] == ["#content"]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", html.replace("\n", ""))


async def test_what_has_just_happened_is_not_told_with_a_nought():
    """And what has no instant has no age, in place of a dash that is "ago"."""
    page = next(one for one in PAGES if one.name == "job")
    undated = {name: value for name, value in resize(1, 2, message="c").items() if name != "time"}
    resizes = [resize(2, 1, message="a", age_s=0), resize(1, 2, message="b", age_s=90), undated]
    documents = replace(demo_documents(), jobs=(job("digits-a", resizes=resizes),))
    html = await shown(page, FixedSource(documents), arguments=DIGITS_A)
    assert re.findall(r"<tr><td>(?:<time[^>]*>)?([^<]*)", html) == ["just now", "90s ago", "\N{EN DASH}"]


async def test_where_growth_stops_is_written_beside_its_line_and_not_into_the_axis():
    """Below the axis it stood over the largest size, where growth stops just before that."""
    page = next(one for one in PAGES if one.name == "job")
    html = await shown(page, FixedSource(demo_documents()), arguments=DIGITS_A)
    [(style, below)] = re.findall(r'<text class="([a-z ]+)" x="[0-9.]+" y="(\d+)">stops here', html)
    assert "end" in style.split()
    assert int(below) < 138, "the axis"


async def test_a_job_s_page_shows_what_its_script_reported():
    """Name and last value of each metric, and of which step; nothing where the script reports nothing."""
    page = next(one for one in PAGES if one.name == "job")
    html = await shown(page, FixedSource(demo_documents()), arguments=DIGITS_A)
    assert re.findall(r"<dt><bdi>(.*)</bdi></dt><dd>(.*)</dd>", html) == [("accuracy", "0.934"), ("loss", "0.217")]
    told = progress(step=1_234, steps=5_000, metrics={"<b>loss</b>": 12_300.0})
    documents = replace(demo_documents(), jobs=(job("digits-a", progress=told),))
    html = await shown(page, FixedSource(documents), arguments=DIGITS_A)
    assert "<dt><bdi>&lt;b&gt;loss&lt;/b&gt;</bdi></dt><dd>12300</dd>" in html
    assert "the mean over its trainers, by step 1,234." in html
    silent = replace(demo_documents(), jobs=(job("digits-a"),))
    assert "Metrics" not in await shown(page, FixedSource(silent), arguments=DIGITS_A)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_a_page_without_anything_says_so(page):
    """No job, node or line: a page, and no error."""
    if "{" in page.path:
        return
    html = await shown(page, FixedSource(ClusterDocuments(now_s=NOW_S)))
    assert "notice" in html


async def test_without_a_node_the_first_page_explains_no_picture():
    """Neither its colours nor how to point at a pod in it."""
    page = next(one for one in PAGES if one.name == "now")
    for nodes in ((), (node("n1"),)):
        html = await shown(page, FixedSource(ClusterDocuments(now_s=NOW_S, nodes=nodes)), whole=False)
        assert ('class="legend"' in html, "Point at a pod" in html) == (bool(nodes),) * 2
        assert ("There is no node." in html) is not bool(nodes)


async def test_numbers_have_thousands_apart_and_one_thing_is_no_plural():
    """13500 GPUs, and 1 cores."""
    page = next(one for one in PAGES if one.name == "now")
    large = tuple(node(f"n{number}", gpus=9) for number in range(1500))
    html = await shown(page, FixedSource(ClusterDocuments(now_s=NOW_S, nodes=large)), whole=False)
    assert "1,500 nodes, 2 to a cell" in html
    assert "13,500 GPUs</td>" in html
    small = ClusterDocuments(now_s=NOW_S, nodes=(node("n1", cpu="1"), node("n2", cpu="1500m")))
    html = await shown(page, FixedSource(small), whole=False)
    assert "0/1 core<" in html
    assert "0/1.5 cores<" in html
    assert "2.5 cores</td>" in html


async def test_a_job_that_is_nearly_done_still_tells_how_long_it_takes():
    """Its percentage reads 100.0 % from 99.95 % on."""
    page = next(one for one in PAGES if one.name == "now")
    for percent, told_s in (("99.9%", 50), ("100.0%", 40)):
        nearly = job("x", progress=progress(percent, secondsLeft=told_s))
        html = await shown(page, FixedSource(ClusterDocuments(now_s=NOW_S, jobs=(nearly,))), whole=False)
        assert f"about {told_s}s at the present pace" in html
    done = job("x", progress=progress("100.0%", secondsLeft=0))
    assert "left" not in await shown(page, FixedSource(ClusterDocuments(now_s=NOW_S, jobs=(done,))), whole=False)


async def test_a_single_web_pod_that_waits_is_told_in_the_singular():
    page = next(one for one in PAGES if one.name == "waiting")
    for count, told in ((1, "1 waits"), (2, "2 wait")):
        pods = tuple(pod(f"web-abc-{number}", deployment="web") for number in range(count))
        html = await shown(page, FixedSource(ClusterDocuments(now_s=NOW_S, pods=pods)), whole=False)
        assert re.findall(r'<td class="why">([^<]*)</td>', html) == [told]
    assert format_placement("NoCapacity", 1) == "1 finds no capacity that training could give"
    assert format_placement("CapacityFree", 1) == "1 fits now: the scheduler has only to place it"
    assert format_placement("CapacityFree", 1200) == "1,200 fit now: the scheduler has only to place them"


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_a_page_of_old_data_says_since_when_and_why(page, whole):
    """On each page, as it is opened and as its stream renews it."""
    old = replace(demo_documents(), is_current=False, problem="the VPN is <gone>")
    source = FixedSource(old, demo_lines(), snapshot=snapshot_of_job())
    name = "digits-b-trainer-0" if page.name == "pod" else "digits-b"
    html = await shown(page, source, arguments={"namespace": "team", "name": name}, whole=whole)
    assert re.search(r"Not current since <time [^>]*>\d\d:\d\d:\d\d UTC</time>: the VPN is &lt;gone&gt;", html)


@pytest.mark.parametrize("name", ["now", "waiting"])
async def test_what_could_not_be_listed_is_not_called_none(name):
    page = next(one for one in PAGES if one.name == name)
    documents = ClusterDocuments(now_s=NOW_S, unlisted=frozenset({"trainingjobs", "pods"}), problem="jobs: forbidden")
    html = await shown(page, FixedSource(documents))
    assert "Not all is known: jobs: forbidden" in html
    assert "There is no job" not in html
    assert "None" not in html
    assert "not known." in html.lower()


async def test_history_that_may_not_be_read_is_called_unknown_and_not_zero():
    page = next(one for one in PAGES if one.name == "time")
    rights = Rights(namespaces=frozenset({"team"}), can_read_nodes=False, can_plan=False)
    live = await shown(page, FixedSource(demo_documents()), rights=rights, whole=False)
    assert "None" not in live
    assert re.search(r"<bdi>web</bdi></th><td[^>]*>not known</td><td[^>]*>not known</td>", live)
    assert "Not known." in live
    assert "Dashed" not in live


@pytest.mark.parametrize("name", ["now", "job"])
async def test_a_small_job_says_whom_it_made_room_for(name):
    page = next(one for one in PAGES if one.name == name)
    source = FixedSource(demo_documents(), demo_lines())
    html = await shown(page, source, arguments={"namespace": "team", "name": "digits-b"}, whole=False)
    assert "It shrank from 2 to 1, <time" in html
    assert "ago</time>: for team/web-abc-9." in html


async def test_a_job_that_does_not_grow_now_says_when_it_will():
    """Asked of the planner; a job that the plan makes larger says that instead."""
    page = next(one for one in PAGES if one.name == "now")
    for target, is_said in ((6, False), (5, True), (0, False)):
        documents = replace(demo_documents(), jobs=(job("digits-b", low=0, target=target),))
        html = await shown(page, FixedSource(documents, snapshot=snapshot_of_job()), whole=False)
        assert any(words in html for words in GROWS.values()) is is_said, target


async def test_jobs_of_the_first_page_say_a_cause_once_and_how_gpus_are_counted():
    """A silent master is the cause of two conditions; a job without GPUs on nodes with GPUs is in no picture."""
    page = next(one for one in PAGES if one.name == "now")
    silent = [condition(kind, status="Unknown", message="no answer") for kind in ("Progressing", "CheckpointsCurrent")]
    for gpus in (0, 8):
        documents = ClusterDocuments(
            now_s=NOW_S, nodes=(node("n1", gpus=gpus),), jobs=(job("digits", conditions=silent),)
        )
        html = await shown(page, FixedSource(documents), whole=False)
        assert html.count("no answer") == 1
        assert ("Nodes with GPUs count by their GPUs" in html) is bool(gpus)


async def test_a_pod_of_an_unknown_list_is_not_called_absent():
    page = next(one for one in PAGES if one.name == "pod")
    documents = ClusterDocuments(now_s=NOW_S, unlisted=frozenset({"pods"}), problem="pods: forbidden")
    with pytest.raises(web.HTTPServiceUnavailable):
        await shown(page, FixedSource(documents), arguments={"namespace": "team", "name": "alice-0"})


async def test_a_job_of_an_unknown_list_is_not_called_absent():
    page = next(one for one in PAGES if one.name == "job")
    documents = ClusterDocuments(now_s=NOW_S, unlisted=frozenset({"trainingjobs"}), problem="jobs: forbidden")
    with pytest.raises(web.HTTPServiceUnavailable):
        await shown(page, FixedSource(documents), arguments={"namespace": "team", "name": "digits"})


async def test_the_live_part_is_the_part_of_the_page_that_changes():
    """What the stream sends stands in the page as it was opened."""
    page, source = PAGES[0], FixedSource(demo_documents(), demo_lines())
    whole = await shown(page, source)
    part = await shown(page, source, whole=False)
    assert part.strip() in whole
    assert "<nav" not in part


def test_an_event_has_every_line_of_its_part():
    """A line of a part that began with `event:` would be one of the stream's; each is data."""
    assert event_of(3, "a\nevent: x\n\nb") == b"id: 3\nevent: part\ndata: a\ndata: event: x\ndata: \ndata: b\n\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_knows_what_its_forms_send(page):
    """A field that the page does not name would be refused when the form is sent."""
    source, _, _ = environment().loader.get_source(environment(), page.template)
    source = re.sub(r'<form method="post".*?</form>', "", source, flags=re.DOTALL)  # sends a body
    sent = set(re.findall(r'<(?:input|select|textarea)\b[^>]*?\bname="([^"]+)"', source))
    assert sent <= page.parameters.keys()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_notice_is_one_element_of_text(name):
    (only,) = Elements(render_notice(f"There is no job {name}, or you may not see it.\n")).found
    assert only == ("p", {"class": "notice", "role": "status"})
