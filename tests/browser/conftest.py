"""Debian's chromium, one for the session, and pages of it that notice errors and requests to anybody else."""

import shutil
from urllib.parse import urlsplit

import pytest

from tests.harness.page_cluster import FixedSource, demo_documents, demo_lines, snapshot_of_job
from tests.harness.served_page import ServedPage
from tests.harness.stream_proxy import StreamProxy

PATIENCE_MS = 30_000


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import expect, sync_playwright  # noqa: PLC0415 - where the tests are not left out

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser, serve, put_between):
    """Makes pages; at the end none has had an error or asked anybody but the page's own server."""
    contexts, problems = [], []

    def make(address, *, is_cut=False, has_clock=False, **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        if has_clock:  # which a test sets forward
            page.clock.install()
        own = "{0.scheme}://{0.netloc}/".format(urlsplit(address))
        page.on("pageerror", lambda error: problems.append(str(error)))
        if not is_cut:  # a lost connection is an error that the browser tells
            page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith(own) else problems.append(asked.url))
        page.goto(address)
        return page

    yield make
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def serve():
    """Serves sources, each on a page of its own, until the browser has left them (`open_page`)."""
    begun = []

    def start(source, **place):
        begun.append(ServedPage(source, **place))
        begun[-1].begin()
        return begun[-1]

    yield start
    for one in begun:
        one.end()


@pytest.fixture
def put_between(serve):
    """Puts proxies between the browser and a page; each gives the page's address through it."""
    begun = []

    def start(served, **what):
        begun.append(StreamProxy(served.base, **what))
        begun[-1].begin()
        return begun[-1].base + served.address.removeprefix(served.base)

    yield start
    for one in begun:
        one.end()


@pytest.fixture
def served(serve):
    return serve(FixedSource(demo_documents(), demo_lines(), snapshot=snapshot_of_job()))
