"""The pages over HTTP: HTML, JSON and the snapshot."""

import asyncio
import threading
from dataclasses import replace
from functools import partial

import aiohttp
import pytest

from autoscaler.clusters.kubernetes.api.errors import UnavailableError
from autoscaler.page.answers import page_answers
from autoscaler.page.content import pages
from autoscaler.page.content.pages import PAGES
from autoscaler.page.page_server import serve_locally
from autoscaler.snapshots import parse_document
from autoscaler.views.documents import ClusterDocuments
from tests.harness.page_client import fetch, status_of
from tests.harness.page_cluster import NOW_S, FixedSource, demo_documents, demo_lines, job, node, pod, snapshot_of_job


async def test_a_page_is_html_and_its_json_is_the_same_view(client, base):
    async with client.get(base + "/") as answer:
        html = await answer.text()
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    async with client.get(base + "/api/now") as answer:
        view = await answer.json()
    assert [one["name"] for one in view["jobs"]] == ["digits-a", "digits-b"]
    for one in view["jobs"]:
        assert one["message"] in html or one["name"] == "digits-b"  # the planner's own answer stands in its place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_json_says_as_of_when_it_is_and_whether_that_is_now(client, base, source, page):
    """What the page shows above its numbers: a script must not take the last that was known for the present."""
    name = "digits-a-trainer-0" if page.name == "pod" else "digits-a"
    path = page.path.format(namespace="team", name=name).rstrip("/")
    for is_current, problem, unlisted in ((True, "", []), (False, "no route to host", ["nodes"])):
        documents = demo_documents()
        source.change(replace(documents, is_current=is_current, problem=problem, unlisted=frozenset(unlisted)))
        async with client.get(f"{base}/api/{page.name}{path}") as answer:
            found = (await answer.json())["as_of"]
        assert found == {"at_s": NOW_S, "is_current": is_current, "problem": problem, "unlisted": unlisted}


async def test_json_is_encoded_once_for_all_who_ask_at_once(client, base, source, monkeypatch):
    """On a thread, so that the streams go on; a change is an answer of its own."""
    threads = []
    encode = page_answers.encode_view
    monkeypatch.setattr(
        page_answers, "encode_view", lambda *given: threads.append(threading.current_thread()) or encode(*given)
    )
    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(fetch(client, base + "/api/now"))
    assert len(threads) == 1
    source.change(replace(demo_documents(), jobs=()))
    assert '"jobs": []' in await fetch(client, base + "/api/now")
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_a_page_is_made_once_for_all_who_ask_at_once(client, base, source, monkeypatch):
    """Its views too, away from the streams: whoever asks for it in a loop costs others no more than one."""
    threads = []
    view, render = pages.now_view, page_answers.render_page

    def note(made, *given, **named):
        threads.append(threading.current_thread())
        return made(*given, **named)

    await fetch(client, base + "/waiting")  # what it waits for at first is over
    monkeypatch.setattr(pages, "now_view", partial(note, view))
    monkeypatch.setattr(page_answers, "render_page", partial(note, render))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(fetch(client, base + "/"))
    assert len(threads) == 2
    source.change(replace(demo_documents(), jobs=()))
    assert "There is no job" in await fetch(client, base + "/")
    assert len(threads) == 4
    assert threading.main_thread() not in threads


async def test_the_planner_is_asked_once_for_many_viewers(client, base, source):
    """A hundred reloads at once are one question."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(fetch(client, base + "/jobs/team/digits-b"))
    assert source.snapshots == 1


async def test_a_job_s_page_has_the_answer_of_why(client, base):
    html = await fetch(client, base + "/jobs/team/digits-b")
    assert "Why this size" in html
    async with client.get(base + "/api/job/jobs/team/digits-b") as answer:
        view = await answer.json()
    assert view["why"]["answer"]["decision"]["job"] == "team/digits-b"
    assert [one["size_after"] for one in view["job"]["resizes"]] == [1, 2]


async def test_a_job_that_is_not_there_is_404(client, base):
    async with client.get(base + "/jobs/team/nobody") as answer:
        assert answer.status == 404


@pytest.mark.parametrize("path", ["/jobs/team/nobody", "/api/job/jobs/team/nobody"])
async def test_all_who_ask_at_once_for_what_is_not_there_are_told_so(client, base, path):
    found = await asyncio.gather(*(status_of(client, base + path) for _ in range(5)))
    assert found == [404] * 5


async def test_the_snapshot_is_the_file_of_the_command(client, base, source):
    async with client.get(base + "/snapshot.json") as answer:
        assert answer.headers["Content-Disposition"] == 'attachment; filename="edl.snapshot.json"'
        assert parse_document(await answer.text()) == await source.snapshot()


async def test_a_snapshot_is_taken_once_for_all_who_ask_at_once(client, base, source):
    """It lists the whole cluster."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(fetch(client, base + "/snapshot.json"))
    assert source.snapshots == 1


async def test_a_cluster_that_cannot_be_read_gives_no_snapshot_and_says_why(client, base, source, monkeypatch, caplog):
    async def fail():
        raise UnavailableError("list pods: no route to host", may_have_happened=False)

    monkeypatch.setattr(source, "snapshot", fail)
    async with client.get(base + "/snapshot.json") as answer:
        assert answer.status == 503
        assert "no route to host" in await answer.text()
    assert caplog.records == []


async def test_before_anything_is_known_no_number_is_told():
    """Zero is never shown for what is not yet known."""
    async with serve_locally(FixedSource(None)) as address, aiohttp.ClientSession() as client:
        token = {"Authorization": f"Bearer {address.partition('=')[2]}"}
        base = address.partition("/?")[0]
        async with client.get(base + "/", headers=token) as answer:
            html = await answer.text()
        assert "Nothing is known yet" in html
        assert "0" not in html.partition('id="live"')[2].partition("</main>")[0].partition(">")[2]
        async with client.get(base + "/api/now", headers=token) as answer:
            assert await answer.json() is None


async def test_a_large_cluster_s_page_is_small():
    """1,000 jobs x 20,000 pods on 10,000 nodes: at most 200 kB on the wire."""
    nodes = tuple(node(f"node-{n:05}", gpus=8) for n in range(10_000))
    jobs = tuple(job(f"job-{n:04}", message="no node has room") for n in range(1_000))
    pods = tuple(
        pod(f"job-{n % 1000:04}-trainer-{n // 1000}", on=f"node-{n // 2:05}", job=f"job-{n % 1000:04}", gpus=4)
        for n in range(20_000)
    )
    source = FixedSource(
        ClusterDocuments(now_s=NOW_S, nodes=nodes, pods=pods, jobs=jobs), demo_lines(), snapshot=snapshot_of_job()
    )
    async with serve_locally(source) as address, aiohttp.ClientSession(auto_decompress=False) as client:
        headers = {"Authorization": f"Bearer {address.partition('=')[2]}", "Accept-Encoding": "gzip"}
        async with client.get(address.partition("/?")[0] + "/", headers=headers) as answer:
            body = await answer.read()
            assert answer.headers["Content-Encoding"] == "gzip"
    assert len(body) < 200_000
