"""Debian's chromium, one for the session, and pages of it that notice errors and requests to anybody else.

The browser belongs to a thread with an event loop of its own, because tests of the page's server have theirs.
"""

import asyncio
import shutil
import threading

import pytest

from autoscaler.page.page_server import serve_locally
from tests.harness.page_cluster import FixedSource, demo_documents, demo_lines, snapshot_of_job

PATIENCE_MS = 30_000


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - where the tests are not left out

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser):
    """Makes pages; at the end none has had an error or asked anybody but the page's own server."""
    contexts, problems = [], []

    def make(address, **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        own = address.partition("/?")[0]
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith(own) else problems.append(asked.url))
        page.goto(address)
        return page

    yield make
    for context in contexts:
        context.close()
    assert problems == []


class ServedPage:
    """A page over a source, served by a thread.  `change` puts other documents in place."""

    def __init__(self, source):
        self.source = source
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._end = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    @property
    def base(self):
        return self.address.partition("/?")[0]

    def change(self, documents, lines=None):
        self._loop.call_soon_threadsafe(self.source.change, documents, lines)

    async def _serve(self):
        self._end = asyncio.Event()
        async with serve_locally(self.source) as self.address:
            self._ready.set()
            await self._end.wait()


@pytest.fixture
def served():
    source = FixedSource(demo_documents(), demo_lines(), snapshot=snapshot_of_job())
    with ServedPage(source) as page:
        yield page
