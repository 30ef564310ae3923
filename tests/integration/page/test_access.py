"""Who gets in: the one who has the token, under the page's own name, and no other site in their name."""

import asyncio
import os
import sys
from http.cookies import SimpleCookie

import aiohttp
import pytest

from autoscaler.page.access import token_access
from autoscaler.page.access.peer_user import find_peer_uid
from autoscaler.page.content.pages import PAGES
from autoscaler.page.page_server import serve_locally

PATHS = ("/", "/api/now", "/live/now", "/jobs/team/digits-b", "/decisions", "/snapshot.json")


@pytest.mark.parametrize("path", PATHS)
async def test_without_the_token_nothing_is_read(stranger, base, path):
    async with stranger.get(base + path) as answer:
        assert answer.status == 401
        assert "digits" not in await answer.text()


@pytest.mark.parametrize("given", ["", "x", "x" * 5_000, "%00", "\u00e9"])
async def test_a_wrong_token_is_refused(stranger, base, given):
    async with stranger.get(base + "/", params={"token": given}) as answer:
        assert answer.status == 401
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_a_script_sends_the_token_as_a_bearer(stranger, base, token, scheme):
    async with stranger.get(base + "/api/now", headers={"Authorization": f"{scheme} {token}"}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    "said",
    [
        b"GET /" + 9_000 * b"a" + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=["long", "no address", "no host", "negative"],
)
async def test_what_is_no_request_leaves_nothing_in_the_log(base, caplog, said):
    """Whoever reaches the port can send it, and a traceback for each would fill the terminal of a run."""
    host, port = base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    assert (await reader.readline()).split()[1] == b"400"
    writer.close()
    await writer.wait_closed()
    assert caplog.records == []


async def test_the_token_becomes_a_cookie_and_leaves_the_address(address, base):
    """No other site's request carries the cookie, no script reads it, and the token is in no address afterwards."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(address + "&q=digits", allow_redirects=False) as answer:
            assert answer.status == 303
            assert answer.headers["Location"] == "/?q=digits"
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
        async with browser.get(base + "/") as answer:
            assert answer.status == 200
            assert "digits-b" in await answer.text()


async def session_cookie(stranger, address):
    """Name and value of the cookie that a browser gets for the address."""
    async with stranger.get(address, allow_redirects=False) as answer:
        (found,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    return found.key, found.value


async def status_with(stranger, base, name, value):
    async with stranger.get(base + "/", headers={"Cookie": f"{name}={value}"}) as answer:
        return answer.status


async def test_the_cookie_is_neither_the_token_nor_a_bearer(stranger, address, base, token):
    """Whoever gets the cookie cannot open the page elsewhere with it, and two browsers have two."""
    name, value = await session_cookie(stranger, address)
    assert token not in value
    assert value != (await session_cookie(stranger, address))[1]
    assert await status_with(stranger, base, name, value) == 200
    async with stranger.get(base + "/", headers={"Authorization": f"Bearer {value}"}) as answer:
        assert answer.status == 401
    for wrong in (token, value[:-1] + ("0" if value[-1] != "0" else "1"), "x" + value, value.partition(".")[0], "."):
        assert await status_with(stranger, base, name, wrong) == 401


async def test_a_session_is_of_no_use_at_another_port(stranger, address, source, token):
    """Also where both pages have one token: servers of one host get each other's cookies."""
    name, value = await session_cookie(stranger, address)
    async with serve_locally(source, token=token) as other:
        base = other.partition("/?")[0]
        assert await status_with(stranger, base, name, value) == 401
        assert await status_with(stranger, base, f"edl-page-{base.rpartition(':')[2]}", value) == 401


async def test_a_session_ends_with_the_token_of_its_run(stranger, source):
    async with serve_locally(source) as first:
        port = int(first.partition("/?")[0].rpartition(":")[2])
        name, value = await session_cookie(stranger, first)
    async with serve_locally(source, port=port) as second:
        assert await status_with(stranger, second.partition("/?")[0], name, value) == 401


async def test_another_user_of_the_machine_gets_nothing_with_a_session(stranger, address, base, monkeypatch):
    """A server of another user on this machine is sent the cookie, and asks with it."""
    name, value = await session_cookie(stranger, address)
    monkeypatch.setattr(token_access, "find_peer_uid", lambda transport: 4_000_000)
    async with aiohttp.ClientSession() as other:
        assert await status_with(other, base, name, value) == 401


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the owner of a socket")
async def test_the_user_at_the_other_end_is_known():
    """The owner of a real connection's other end is the user of this process."""
    found = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        found.set_result(find_peer_uid(writer.transport))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await asyncio.wait_for(found, 10) == os.getuid()
        writer.close()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "localhost@evil"]
)
async def test_another_host_name_is_refused(client, base, host):
    """A site that points its own name at this machine (DNS rebinding) gets nothing."""
    async with client.get(base + "/", headers={"Host": host}) as answer:
        assert answer.status in {400, 421}
        assert "digits" not in await answer.text()


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "LOCALHOST:{}", "[::1]:{}"])
async def test_names_of_this_machine_are_taken(client, base, host):
    async with client.get(base + "/", headers={"Host": host.format(base.rpartition(":")[2])}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/now", "/live/now"])
async def test_requests_that_other_sites_cause_are_refused(client, base, headers, path):
    """Also with the right cookie or token, and also for the stream."""
    async with client.get(base + path, headers=headers) as answer:
        assert answer.status == 403
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_followed_link_and_the_page_s_own_requests_are_taken(client, base):
    for headers in (
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Origin": base},
    ):
        async with client.get(base + "/", headers=headers) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/now", "/snapshot.json"])
async def test_nothing_can_be_changed(client, base, method, path):
    """Reading is all there is, and no site gets leave to ask (CORS)."""
    async with client.request(method, base + path, data=b"x") as answer:
        assert answer.status == 405
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    "path", ["/", "/api/now", "/assets/page.js", "/nowhere", "/jobs/team/nobody", "/assets/../page_app.py"]
)
async def test_every_answer_has_the_headers_that_keep_a_browser_in(client, base, path):
    async with client.get(base + path) as answer:
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.status in {200, 404}


async def test_what_is_too_large_is_refused(client, base):
    """Header lines, addresses and bodies have bounds."""
    async with client.get(base + "/", headers={"X-Long": "x" * 20_000}) as answer:
        assert answer.status == 400
    async with client.get(base + "/", params={"q": "x" * 1_000}) as answer:
        assert answer.status == 400
    async with client.get(base + "/", params={f"q{n}": "x" for n in range(30)}) as answer:
        assert answer.status == 400


@pytest.mark.parametrize("path", ["/", "/waiting", "/live/now", "/api/now", "/jobs/team/digits-b", "/time"])
async def test_parameters_that_a_page_does_not_know_are_refused(client, base, path):
    """Each would be a page of its own to render and to keep; the answer names it."""
    async with client.get(base + path, params={"nonce": "1"}) as answer:
        assert answer.status == 400
        assert "'nonce'" in await answer.text()


async def test_a_parameter_counts_once(client, base):
    async with client.get(base + "/decisions?q=a&q=b") as answer:
        assert answer.status == 400
        assert "q: is given more than once" in await answer.text()


TAKEN = sorted(
    f"{page.path}?{name}={value}"
    for page in PAGES
    for name, choices in page.parameters.items()
    for value in choices or "1"
)


@pytest.mark.parametrize("path", TAKEN)
async def test_every_parameter_of_a_page_is_taken(client, base, path):
    async with client.get(base + path) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("path", ["/time", "/api/time/time", "/live/time/time"])
@pytest.mark.parametrize("span", ["week", "Hour", ""])
async def test_a_value_that_is_no_choice_is_refused_with_the_choices(client, base, path, span):
    """What was shown in its place was the last hour, as if that had been asked for."""
    async with client.get(base + path, params={"span": span}) as answer:
        assert answer.status == 400
        assert await answer.text() == "span: is none of hour, day.\n"


async def test_a_kind_that_no_line_has_is_named(client, base):
    """The page said that all kinds were shown."""
    async with client.get(base + "/decisions?kind=Moved") as answer:
        html = await answer.text()
    assert "No line of the kind Moved has all of these words. There are Decided, Resized." in html
    assert "<option selected>Moved</option>" in html
