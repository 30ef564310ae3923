"""The experiments' report as a page: in the navigation, with pictures of this address alone, or absent."""

import re
import socket

import aiohttp
import pytest

from autoscaler.page import page_app
from autoscaler.page.access.request_checks import LOOPBACK_HOSTS
from autoscaler.page.access.token_access import TokenAccess
from autoscaler.page.answers import experiments_report
from autoscaler.page.answers.experiments_report import CHECKOUT, INSTALLED, NAME, read_report
from autoscaler.page.page_app import PageApp, PageSettings
from autoscaler.page.page_server import serving
from tests.harness.page_client import fetch


async def test_the_report_is_a_page_whose_pictures_are_there(client, base):
    """With the page's policy: nothing of another address, no style, no script but the page's."""
    assert '<a href="/report">Report</a>' in await fetch(client, base + "/")
    async with client.get(base + "/report") as answer:
        html, headers = await answer.text(), answer.headers
    assert headers["Content-Security-Policy"].startswith("default-src 'self'")
    assert '<a href="/report" aria-current="page">Report</a>' in html
    assert html.count("<h1") == html.count("<main") == 1
    assert 'id="node-mixes"' in html
    assert " style=" not in html
    assert [one for one in re.findall(r'href="([^"]*)"', html) if not one.startswith(("/", "#"))] == []
    pictures = re.findall(r'<img [^>]*src="([^"]*)"', html)
    assert len(pictures) > 10
    for one in pictures:
        assert one.startswith("/report/")
        async with client.get(base + one) as answer:
            assert (answer.status, answer.content_type) == (200, "image/png")
            assert (await answer.read()).startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["nothing.png", "..%2Fexperiments.html", "%2e%2e%2fexperiments.md"])
async def test_other_files_are_not_served(client, base, name):
    async with client.get(f"{base}/report/{name}") as answer:
        assert answer.status == 404


async def test_who_has_no_token_gets_no_report(stranger, base):
    async with stranger.get(base + "/report") as answer:
        assert answer.status == 401


async def test_without_the_file_there_is_no_link(source, monkeypatch):
    monkeypatch.setattr(page_app, "find_report", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        page = PageApp(source, TokenAccess("secret", 1), PageSettings(hosts=LOOPBACK_HOSTS))
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with (
            serving(page, listening),
            aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as client,
        ):
            assert "/report" not in await fetch(client, base + "/")
            async with client.get(base + "/report") as answer:
                assert answer.status == 404


def test_an_installation_has_it_where_its_record_says(tmp_path, monkeypatch):
    """As pip lists it, below the prefix; the folder above the package is no checkout there."""
    file = tmp_path / INSTALLED
    file.parent.mkdir(parents=True)
    file.write_text((CHECKOUT / "docs" / "reports" / NAME).read_text())

    class Listed:
        def as_posix(self):
            return f"../../../{INSTALLED}"

        def locate(self):
            return file

    monkeypatch.setattr(experiments_report, "CHECKOUT", tmp_path)
    monkeypatch.setattr(experiments_report, "files", lambda _name: [Listed()])
    assert experiments_report._find_file() == file
    monkeypatch.setattr(experiments_report, "files", lambda _name: None)
    assert experiments_report._find_file() is None


def test_what_is_no_report_is_none(tmp_path):
    (tmp_path / NAME).write_text("<html></html>")
    assert read_report(tmp_path / NAME) is None
    assert read_report(tmp_path / "missing.html") is None
