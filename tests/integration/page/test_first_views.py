"""The first seconds of a page of a large cluster: painted at once, without its content, which the stream brings."""

import asyncio
import threading
import time

import pytest

from autoscaler.page.content import sampler
from autoscaler.page.content.rendering import environment
from autoscaler.page.page_server import serve_locally
from autoscaler.views.history.samples import sample_of

DEADLINE_S = 60


@pytest.fixture
def slow_views(monkeypatch):
    """First views that take until `set`."""
    go = threading.Event()

    def slow(documents):
        assert go.wait(DEADLINE_S)
        return sample_of(documents)

    monkeypatch.setattr(sampler, "sample_of", slow)
    yield go
    go.set()


@pytest.fixture
async def early_client(slow_views, client):
    return client


async def test_a_page_is_painted_before_its_first_views_are_made(slow_views, address, early_client, base):
    """It says that nothing is known yet; the stream waits, and brings the page when it is there."""
    began_s = time.monotonic()
    async with early_client.get(base + "/") as answer:
        html = await answer.text()
    assert answer.status == 200
    assert "Nothing is known yet" in html
    assert time.monotonic() - began_s < DEADLINE_S / 2, "it waited for the views"
    async with early_client.get(base + "/live/now") as stream, asyncio.timeout(DEADLINE_S):
        await stream.content.readuntil(b"\n\n")
        slow_views.set()
        part = await stream.content.readuntil(b"\n\n")
    assert b"digits-b" in part
    async with early_client.get(base + "/") as answer:
        assert "digits-b" in await answer.text()


async def test_views_that_cannot_be_made_hold_up_nobody(monkeypatch, client, base, caplog):
    """The page is shown, or fails, by itself: without samples there is no past, and that is all."""

    def broken(_documents):
        raise RuntimeError("a bug in samples")

    monkeypatch.setattr(sampler, "sample_of", broken)
    async with client.get(base + "/live/now") as stream, asyncio.timeout(DEADLINE_S):
        await stream.content.readuntil(b"\n\n")
        assert b"digits-b" in await stream.content.readuntil(b"\n\n")
    caplog.clear()


async def test_templates_are_compiled_before_anybody_asks(source):
    """Else the first viewer waits for it, while first views are made beside."""
    environment.cache_clear()
    async with serve_locally(source), asyncio.timeout(DEADLINE_S):
        while len(environment().cache) < len(environment().list_templates()):  # noqa: ASYNC110 - a thread does it
            await asyncio.sleep(0.01)
