"""The pages over HTTP: HTML, JSON, the snapshot, and the live stream."""

import asyncio
import re
import socket
import ssl
import sys
import threading
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.resources import files

import aiohttp
import pytest

from autoscaler.clusters.kubernetes.api.errors import UnavailableError
from autoscaler.page import page_server
from autoscaler.page.access import answer_limits
from autoscaler.page.access.connections import ConnectionBounds
from autoscaler.page.access.request_checks import LOOPBACK_HOSTS
from autoscaler.page.access.token_access import TokenAccess
from autoscaler.page.answers import page_answers
from autoscaler.page.content import page_content, pages
from autoscaler.page.content.pages import PAGES
from autoscaler.page.live import live_answers, live_stream
from autoscaler.page.page_app import PageApp, PageSettings
from autoscaler.page.page_server import serve_locally, serving
from autoscaler.snapshots import parse_document
from autoscaler.views.documents import ClusterDocuments
from tests.harness.attacker import needs_root
from tests.harness.certificates import ClusterAuthority
from tests.harness.page_cluster import NOW_S, FixedSource, demo_documents, demo_lines, job, node, pod, snapshot_of_job

DEADLINE_S = 30


async def next_part(answer):
    """The next event of a stream: its number and its HTML."""
    number, lines = 0, []
    async with asyncio.timeout(DEADLINE_S):
        async for raw in answer.content:
            text = raw.decode().rstrip("\n")
            if text.startswith("id: "):
                number = int(text[4:])
            elif text.startswith("data: "):
                lines.append(text[6:])
            elif not text and number:
                return number, "\n".join(lines)
            elif not text:
                lines = []  # a sign of life
    raise AssertionError("the stream ended")


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


async def fetch(client, address):
    async with client.get(address) as answer:
        assert answer.status == 200
        return await answer.text()


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


async def test_a_viewer_that_does_not_read_is_cut(source, monkeypatch):
    """Its connection is gone with what was to be sent, and its place is free."""
    monkeypatch.setattr(answer_limits, "WRITE_LIMIT_S", 0.1)
    monkeypatch.setattr(answer_limits, "LEAST_BYTES_PER_S", 1e9)
    async with idle_viewer(source, "/live/now") as (viewer, page), asyncio.timeout(DEADLINE_S):
        for wanted in (1, 0):
            while page.viewers != wanted:  # noqa: ASYNC110 - it tells of no change
                await asyncio.sleep(0.005)
        assert await received(viewer) < 300_000, "the rest was kept for it"


@asynccontextmanager
async def idle_viewer(source, path):
    """A viewer who has asked for half a megabyte and reads nothing, and the page."""
    source.change(replace(demo_documents(), jobs=tuple(job(f"j{n}", message="x" * 5_000) for n in range(100))))
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as viewer:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        page = PageApp(source, TokenAccess("secret", 1), PageSettings(hosts=LOOPBACK_HOSTS))
        async with serving(page, listening):
            viewer.connect(listening.getsockname())
            viewer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n".encode())
            viewer.setblocking(False)
            yield viewer, page


async def received(viewer):
    """Bytes until the end of the connection."""
    got = 0
    with suppress(ConnectionResetError):
        while data := await asyncio.get_running_loop().sock_recv(viewer, 65_536):
            got += len(data)
    return got


async def test_an_answer_that_is_not_read_is_cut(source, monkeypatch):
    """Not kept for as long as its client likes."""
    monkeypatch.setattr(answer_limits, "WRITE_LIMIT_S", 0.1)
    monkeypatch.setattr(answer_limits, "LEAST_BYTES_PER_S", 1e9)
    cut = asyncio.Event()
    aborted = answer_limits.cut

    def noticed(request):
        aborted(request)
        cut.set()

    monkeypatch.setattr(answer_limits, "cut", noticed)
    async with idle_viewer(source, "/api/now") as (viewer, _), asyncio.timeout(DEADLINE_S):
        await cut.wait()
        assert await received(viewer) < 300_000, "the rest was kept for it"


async def test_one_viewer_has_a_bounded_number_of_answers_under_way(source, monkeypatch):
    """Of pages, and of streams."""
    monkeypatch.setattr(answer_limits, "MOST_AT_ONCE", 1)
    async with (
        idle_viewer(source, "/api/now") as (viewer, _),
        aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as client,
        asyncio.timeout(DEADLINE_S),
    ):
        base = "http://{}:{}".format(*viewer.getpeername())
        while (await status_of(client, base + "/")) != 429:  # noqa: ASYNC110 - it tells of no change
            await asyncio.sleep(0.005)
        async with client.get(base + "/live/now") as stream:
            await next_part(stream)
            assert await status_of(client, base + "/live/waiting/waiting") == 429
        viewer.close()
        while (await status_of(client, base + "/")) != 200:  # noqa: ASYNC110 - it tells of no change
            await asyncio.sleep(0.005)


async def status_of(client, address, **headers):
    async with client.get(address, headers=headers) as answer:
        return answer.status


async def test_connections_are_bounded(source, monkeypatch):
    """One more than allowed ends at once, before anything is read of it, and there is room again for one that ends."""
    monkeypatch.setattr(page_server, "MOST_LOCAL_CONNECTIONS", 2)
    async with serve_locally(source) as address, asyncio.timeout(DEADLINE_S):
        where = ("127.0.0.1", int(address.partition("/?")[0].rpartition(":")[2]))
        with ExitStack() as stack:
            opened = [stack.enter_context(socket.create_connection(where)) for _ in range(3)]
            for one in opened:
                one.setblocking(False)
            assert await received(opened[2]) == 0
        while not await is_let_in(address):  # noqa: ASYNC110 - it tells of no change
            await asyncio.sleep(0.005)


HOLDER = """
import os, socket, sys
where, count = ("127.0.0.1", int(sys.argv[1])), int(sys.argv[2])
socket.create_connection(where).close()  # imports what this user may not read
os.setuid(65534)
held = [socket.create_connection(where) for _ in range(count)]
print("held", flush=True)
sys.stdin.read()
"""


@needs_root
async def test_connections_of_another_user_shut_nobody_out(source, monkeypatch):
    """It may hold as many as it likes without a request; the run's own user gets one all the same."""
    monkeypatch.setattr(page_server, "MOST_LOCAL_CONNECTIONS", 6)
    monkeypatch.setattr(page_server, "MOST_LOCAL_WITH_OTHERS", 3)
    async with serve_locally(source) as address, asyncio.timeout(DEADLINE_S):
        port = address.partition("/?")[0].rpartition(":")[2]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", HOLDER, port, "12"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert await process.stdout.readline() == b"held\n"
            assert await is_let_in(address)
        finally:
            process.kill()
            await process.wait()


async def is_let_in(address):
    base, _, token = address.partition("/?token=")
    try:
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as client:
            return await status_of(client, base + "/") == 200
    except aiohttp.ClientError:
        return False


@asynccontextmanager
async def encrypted_page(source, tmp_path):
    """A page that ends TLS itself, for this machine and as edl.example: its address, and a client that trusts it."""
    pair = ClusterAuthority(tmp_path).issue("page", "page", addresses=["127.0.0.1"])
    encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    encryption.load_cert_chain(pair.certificate, pair.key)
    trusted = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        page = PageApp(source, TokenAccess("secret", 1), PageSettings(hosts=LOOPBACK_HOSTS | {"edl.example"}))
        async with (
            serving(page, listening, encryption=encryption),
            aiohttp.ClientSession(
                headers={"Authorization": "Bearer secret"}, connector=aiohttp.TCPConnector(ssl=trusted)
            ) as client,
        ):
            yield f"https://127.0.0.1:{listening.getsockname()[1]}", client


async def test_over_https_pages_and_streams_go_on(source, tmp_path, monkeypatch):
    """Many answers on one connection and many signs of life on another, none of which waits for a client that reads."""
    monkeypatch.setattr(live_answers, "HEARTBEAT_S", 0.01)
    async with encrypted_page(source, tmp_path) as (base, client), asyncio.timeout(answer_limits.WRITE_LIMIT_S / 2):
        for _ in range(5):
            await fetch(client, base + "/")
        async with client.get(base + "/live/now") as stream:
            for _ in range(10):
                await stream.content.readuntil(b"event: alive\ndata: 1\n\n")


async def test_a_page_that_ends_tls_is_not_asked_over_http(source, tmp_path):
    """Browsers are told so for its name, and not for a loopback one; no request of its HTTP twin is taken."""
    async with encrypted_page(source, tmp_path) as (base, client):
        for host, told in (("edl.example", "max-age=2592000"), ("localhost", None), ("127.0.0.1", None)):
            async with client.get(f"{base}/", headers={"Host": host}) as answer:
                assert (answer.status, answer.headers.get("Strict-Transport-Security")) == (200, told)
            for scheme, status in (("https", 200), ("http", 403)):
                assert await status_of(client, f"{base}/", Host=host, Origin=f"{scheme}://{host}") == status


async def test_who_speaks_no_tls_is_cut(source, tmp_path):
    """A connection that does not begin leaves its place, and the others go on."""
    pair = ClusterAuthority(tmp_path).issue("page", "page", addresses=["127.0.0.1"])
    encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    encryption.load_cert_chain(pair.certificate, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        page = PageApp(source, TokenAccess("secret", 1), PageSettings(hosts=LOOPBACK_HOSTS))
        bounds = ConnectionBounds(1, 1)
        async with serving(page, listening, encryption=encryption, bounds=bounds), asyncio.timeout(DEADLINE_S):
            for _ in range(3):
                with socket.create_connection(listening.getsockname()) as plain:
                    plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    plain.setblocking(False)
                    assert await received(plain) < 100


async def test_a_request_whose_head_does_not_end_is_cut(source, monkeypatch):
    monkeypatch.setattr(page_server, "KEEP_ALIVE_S", 0.1)
    async with serve_locally(source) as address, asyncio.timeout(DEADLINE_S):
        port = int(address.partition("/?")[0].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost:")
        assert await reader.read() == b""
        writer.close()


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
