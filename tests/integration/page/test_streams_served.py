"""The live streams over HTTP: what reaches an open page, how often, and how many may look."""

import asyncio
import re
import socket
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files

import aiohttp

from autoscaler.page.access.request_checks import LOOPBACK_HOSTS
from autoscaler.page.access.token_access import TokenAccess
from autoscaler.page.content import page_content
from autoscaler.page.live import live_answers, live_stream
from autoscaler.page.page_app import PageApp, PageSettings
from autoscaler.page.page_server import serve_locally, serving
from tests.harness.page_client import DEADLINE_S, next_part
from tests.harness.page_cluster import demo_documents, job


async def test_a_change_reaches_an_open_stream(client, base, source):
    async with client.get(base + "/live/now") as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["Cache-Control"] == "no-store"
        _, first = await next_part(answer)
        assert "digits-c" not in first
        documents = demo_documents()
        source.change(replace(documents, jobs=(*documents.jobs, job("digits-c"))))
        number, second = await next_part(answer)
        assert number == 2
        assert "digits-c" in second


async def test_a_page_whose_job_is_gone_says_so_and_goes_on(client, base, source, caplog):
    """It is no fault that anybody has to read of, and the job may come back."""
    async with client.get(base + "/live/job/jobs/team/digits-a") as answer:
        _, first = await next_part(answer)
        assert "62.0%" in first
        source.change(replace(demo_documents(), jobs=()))
        _, second = await next_part(answer)
        assert "There is no job team/digits-a" in second
        source.change(demo_documents())
        _, third = await next_part(answer)
        assert "62.0%" in third
    assert caplog.records == []


async def test_a_part_that_cannot_be_rendered_is_told_of_once(client, base, source, monkeypatch, caplog):
    """Not at each change, three times a second for days."""
    monkeypatch.setattr(live_stream, "LEAST_PAUSE_S", 0.001)
    tried = asyncio.Semaphore(0)

    def fail(*_given):
        loop.call_soon_threadsafe(tried.release)
        raise RuntimeError("no such drawing")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(page_content, "render_live", fail)
    async with client.get(base + "/live/now"), asyncio.timeout(DEADLINE_S):
        for number in range(5):
            await tried.acquire()
            source.change(replace(demo_documents(), jobs=(job(f"job-{number}"),)))
    assert [one.getMessage() for one in caplog.records] == ["page now cannot be rendered"]


async def test_viewers_of_one_page_share_its_rendering(client, base, source, monkeypatch):
    """A change is rendered once, however many look."""
    rendered = []
    render = page_content.render_live
    monkeypatch.setattr(page_content, "render_live", lambda *given: rendered.append(1) or render(*given))
    streams = [await client.get(base + "/live/now") for _ in range(10)]
    for one in streams:
        await next_part(one)
    before = len(rendered)
    source.change(replace(demo_documents(), jobs=()))
    parts = {await next_part(one) for one in streams}
    assert len(parts) == 1
    assert len(rendered) - before <= 2
    for one in streams:
        one.close()


async def test_a_burst_of_changes_is_few_parts_and_the_last_one_arrives(client, base, source, monkeypatch):
    """A slow reader gets the newest part; nothing queues up for it."""
    monkeypatch.setattr(live_stream, "LEAST_PAUSE_S", 0.05)
    async with client.get(base + "/live/now") as answer:
        await next_part(answer)
        for number in range(2_000):
            source.change(replace(demo_documents(), jobs=(job(f"job-{number}"),)))
        number, html = await next_part(answer)
        while "job-1999" not in html:
            number, html = await next_part(answer)
        assert number < 100


async def test_a_stream_is_for_those_who_read_it(client, base):
    """HEAD would hold a viewer's place and send nothing."""
    async with client.head(base + "/live/now") as answer:
        assert answer.status == 405


async def test_a_silent_stream_says_that_it_is_there(client, base, monkeypatch):
    """Proxies cut what is silent, and a script that hears nothing asks for the page anew."""
    monkeypatch.setattr(live_answers, "HEARTBEAT_S", 0.01)
    async with client.get(base + "/live/decisions/decisions") as answer, asyncio.timeout(DEADLINE_S):
        await answer.content.readuntil(b"\n: nothing new\nevent: alive\ndata: 1\n\n")


def test_the_script_waits_for_more_than_two_signs_of_life():
    script = (files("autoscaler.page") / "assets" / "page.js").read_text()
    (silent_ms,) = re.findall(r"SILENT_MS = (\d+);", script)
    assert int(silent_ms) == 2.5 * live_answers.HEARTBEAT_S * 1000


async def test_more_viewers_than_allowed_are_told_so(source):
    settings = PageSettings(hosts=LOOPBACK_HOSTS, most_viewers=1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        page = PageApp(source, TokenAccess("secret", 1), settings)
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with (
            serving(page, listening),
            aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as client,
        ):
            first = await client.get(base + "/live/now")
            await next_part(first)
            async with client.get(base + "/live/now") as second:
                assert second.status == 503
            first.close()


async def test_an_open_stream_does_not_hold_up_the_end(source):
    """A run that ends does not wait for those who look at it."""
    async with aiohttp.ClientSession() as client, asyncio.timeout(DEADLINE_S):
        async with serve_locally(source) as address:
            token = {"Authorization": f"Bearer {address.partition('=')[2]}"}
            answer = await client.get(address.partition("/?")[0] + "/live/now", headers=token)
            await next_part(answer)
        with suppress(aiohttp.ClientError):
            await answer.content.read()
        answer.close()
