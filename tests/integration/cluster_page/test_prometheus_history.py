"""The past out of Prometheus: what is asked of it, how often, and what is shown where it does not answer.

`tests/chart/test_dashboards_scraped.py` asks a real one.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from autoscaler.cluster_page import prometheus_history
from autoscaler.cluster_page.prometheus_history import POINTS, PrometheusHistory, labels_of
from autoscaler.errors import InvalidSpecError, TemporaryError
from autoscaler.page.content.pages import PAGES, Reading, samples_of
from autoscaler.page.content.planner_questions import PlannerQuestions
from autoscaler.page.content.rendering import render_live
from autoscaler.views.cluster.pod_view import NodeUnit
from autoscaler.views.documents import EVERYTHING, Rights
from autoscaler.views.history.samples import REST, RINGS, SampleRings, readable_sample
from tests.harness.page_cluster import NOW_S, FixedSource, demo_documents, pod

INSTANTS = (NOW_S - 24, NOW_S - 12, NOW_S)


def matrix(*series):
    """An answer of Prometheus: each series its labels and a value, which it has at every instant."""
    result = [{"metric": metric, "values": [[at_s, str(value)] for at_s in INSTANTS]} for metric, value in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def of_cluster(name, value, **labels):
    return {"__name__": f"edl_cluster_{name}", **labels}, value


TOTALS = matrix(
    *(of_cluster("gpus", value, use=use) for use, value in (("others", 2), ("core", 3), ("surplus", 1), ("free", 2))),
    *(of_cluster("cpu_cores", value, use=use) for use, value in (("others", 5), ("free", 3))),
    of_cluster("wanted_gpus", 7),
    of_cluster("pods", 4),
    of_cluster("ready_pods", 3),
)
JOBS = matrix(({"namespace": "red", "job": "digits"}, 2), ({"namespace": "blue", "job": "faces"}, 1))


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


class Server:
    """Answers queries like Prometheus; `answer` may be replaced, and `asked` has the forms of all that came."""

    def __init__(self):
        self.asked, self.answer, self.url = [], self.usual, ""

    async def usual(self, form):
        return web.json_response(JOBS if "edl_job_held_" in form["query"] else TOTALS)

    async def handle(self, request):
        self.asked.append(dict(await request.post()))
        return await self.answer(self.asked[-1])

    @asynccontextmanager
    async def running(self):
        app = web.Application()
        app.router.add_post("/prefix/api/v1/query_range", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/prefix/"
            yield self
        finally:
            await runner.cleanup()


@pytest.fixture
async def server():
    async with Server().running() as running:
        yield running


@pytest.fixture
async def history(server):
    made = PrometheusHistory(server.url, {"cluster": 'a"b'}, clock=Clock())
    yield made
    await made.close()


async def test_samples_are_what_the_operator_told(history, server):
    """Amounts by use and by job in the unit of the cluster, what is wanted, web pods; the rest of the jobs together."""
    found = await history.samples("hour", None, now_s=NOW_S)
    assert [one.at_s for one in found] == list(INSTANTS)
    last = found[-1]
    assert (last.unit, last.capacity, last.used, last.wanted, last.web) == (NodeUnit.GPUS, 8_000, 6_000, 7_000, 2_000)
    assert last.jobs == (("blue/faces", 1_000), ("red/digits", 2_000), (REST, 1_000))
    assert (last.web_wanted, last.web_running) == (4, 3)
    totals, jobs = server.asked
    assert float(totals["end"]) - float(totals["start"]) == RINGS["hour"][0]
    assert float(totals["step"]) == RINGS["hour"][0] / POINTS
    assert all('cluster="a\\"b"' in one["query"] for one in (totals, jobs))
    assert 'topk(64, max by (namespace, job) ({__name__="edl_job_held_gpus"' in jobs["query"]
    seen = readable_sample(last, Rights(namespaces=frozenset({"red"}), can_read_nodes=True, can_plan=False))
    assert seen.jobs == (("red/digits", 2_000),)


async def test_in_cores_where_the_page_counts_in_cores(history, server):
    (*_, last) = await history.samples("hour", NodeUnit.CORES, now_s=NOW_S)
    assert (last.unit, last.capacity, last.web) == (NodeUnit.CORES, 8_000, 5_000)
    assert "edl_job_held_cpu_cores" in server.asked[1]["query"]


async def test_many_viewers_ask_once_and_again_when_a_point_has_passed(history, server):
    found = await asyncio.gather(*(history.samples("hour", None, now_s=NOW_S) for _ in range(50)))
    assert all(one is found[0] for one in found)
    assert len(server.asked) == 2
    history._clock.now_s += RINGS["hour"][0] / POINTS
    await history.samples("hour", None, now_s=NOW_S)
    assert len(server.asked) == 4


async def slowly(_form):
    await asyncio.sleep(60)


async def badly(_form):
    return web.Response(status=500, text="secret of another tenant")


async def elsewhere(_form):
    raise web.HTTPFound("http://169.254.169.254/")


async def wrongly(_form):
    return web.json_response({"data": {"result": [{"values": 3}]}})


async def hugely(_form):
    return web.Response(body=b"[" + b" " * prometheus_history.MOST_BYTES + b"]")


async def inconsistently(_form):
    return web.Response(text=json.dumps({"data": None}))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (slowly, "did not answer within"),
        (badly, "refuses the query (HTTP 500)"),
        (elsewhere, "refuses the query (HTTP 302)"),
        (wrongly, "something else than samples"),
        (inconsistently, "something else than samples"),
        (hugely, "more than 8 MiB"),
    ],
)
async def test_what_it_does_not_tell_is_an_error_that_quotes_nothing(history, server, monkeypatch, answer, told):
    """And is not asked for again for a moment, however many look."""
    monkeypatch.setattr(prometheus_history, "DEADLINE_S", 0.2 if answer is slowly else 20.0)
    server.answer = answer
    for _ in range(3):
        with pytest.raises(TemporaryError) as raised:
            await history.samples("day", None, now_s=NOW_S)
        assert told in str(raised.value)
        assert "secret" not in str(raised.value)
    assert len(server.asked) == 1
    server.answer = server.usual
    history._clock.now_s += prometheus_history.PAUSE_AFTER_FAILURE_S
    assert len(await history.samples("day", None, now_s=NOW_S)) == 3


async def test_one_that_is_not_there_is_told(history):
    away = PrometheusHistory("http://127.0.0.1:1", {}, clock=Clock())
    with pytest.raises(TemporaryError, match="cannot be asked"):
        await away.samples("hour", None, now_s=NOW_S)
    await away.close()


async def test_the_past_of_a_namespace_is_not_its_name_s_next_owner_s(history):
    """Who reads a namespace sees what is younger than its oldest object; who reads everything sees everything."""
    stands = replace(demo_documents(), jobs=(), deployments=(), pods=(pod("a", namespace="red", age_s=12),))
    own = Rights(namespaces=frozenset({"red", "blue"}), can_read_nodes=True, can_plan=False)
    found, _, _ = await samples_of(reading_of(history, stands, own), "hour")
    assert [dict(one.jobs).get("red/digits") for one in found] == [None, 2_000, 2_000]
    assert all("blue/faces" not in dict(one.jobs) for one in found)  # nothing stands there
    assert [sum(amount for _, amount in one.jobs) for one in found] == [4_000] * 3
    whole, _, _ = await samples_of(reading_of(history, stands, EVERYTHING), "hour")
    assert all(dict(one.jobs)["blue/faces"] == 1_000 for one in whole)


def reading_of(history, documents, rights):
    source = FixedSource(documents)
    return Reading(
        source=source,
        questions=PlannerQuestions(source),
        answers=None,
        rings=SampleRings(),
        history=history,
        documents=documents,
        rights=rights,
        arguments={},
        query={},
    )


async def page_of(history):
    time_page = next(one for one in PAGES if one.name == "time")
    shown = await time_page.show(reading_of(history, demo_documents(), EVERYTHING))
    words = {"problem": "", "is_current": True, "unlisted": frozenset(), "query": {}, "rights": EVERYTHING}
    return render_live("time.html", {"view": shown.view, "now_s": NOW_S, **words, **shown.drawings})


async def test_the_page_says_whose_samples_it_draws(history, server):
    """Prometheus' where it answers; its own, with the reason, where it does not or knows nothing."""
    assert "3 samples of Prometheus" in await page_of(history)
    history._clock.now_s += 100
    server.answer = badly
    html = await page_of(history)
    assert "Prometheus refuses the query (HTTP 500): these are this page" in html
    assert "of Prometheus," not in html
    history._clock.now_s += 100

    async def nothing(_form):
        return web.json_response(matrix())

    server.answer = nothing
    assert "Prometheus has no samples of it" in await page_of(history)


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://x", "http://", "http://u:p@x", "http://x?a=1", "http://x:y"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InvalidSpecError, match="--prometheus"):
        PrometheusHistory(url, {}, clock=Clock())


def test_labels_are_names_and_values():
    assert labels_of(["cluster=prod", "zone=a=b"]) == {"cluster": "prod", "zone": "a=b"}
    for wrong in ("cluster", "=x", "1a=x", 'a"}=x'):
        with pytest.raises(InvalidSpecError, match="--prometheus-labels"):
            labels_of([wrong])
