"""The page on a port of this machine, and a client that knows its token."""

import aiohttp
import pytest

from autoscaler.page.page_server import serve_locally
from tests.harness.page_cluster import FixedSource, demo_documents, demo_lines, snapshot_of_job


@pytest.fixture
def source():
    return FixedSource(demo_documents(), demo_lines(), snapshot=snapshot_of_job())


@pytest.fixture
async def address(source):
    """With the token."""
    async with serve_locally(source) as found:
        yield found


@pytest.fixture
def base(address):
    return address.partition("/?")[0]


@pytest.fixture
def token(address):
    return address.partition("=")[2]


@pytest.fixture
async def stranger():
    """A client without a token, which keeps no cookies."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
        yield client


@pytest.fixture
async def client(token):
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as client:
        yield client
