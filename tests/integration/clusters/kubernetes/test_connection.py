"""The client's way to a server that misbehaves: deadlines, further attempts, credentials, streams that fall silent.

The server here is a real HTTP server that answers as told; what a real API server answers is held by
`tests/cluster/test_kube_api_real.py`.
"""

import asyncio
import json
import socket
import ssl
import time
from contextlib import aclosing
from dataclasses import replace
from email.utils import formatdate
from types import SimpleNamespace

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from aiohttp.connector import NEEDS_CLEANUP_CLOSED

from autoscaler.clusters.kubernetes.api import connection
from autoscaler.clusters.kubernetes.api.api_port import EventType
from autoscaler.clusters.kubernetes.api.connection import ConnectionPolicy
from autoscaler.clusters.kubernetes.api.errors import (
    ExpiredError,
    ThrottledError,
    UnauthorizedError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.http_client import connect, join_lines
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS
from autoscaler.errors import PermanentError
from tests.harness.certificates import JobAuthority

POLICY = ConnectionPolicy(request_timeout_s=60.0, page_timeout_s=60.0, longest_wait_s=0.05, budget_s=60.0)
HASTY = replace(POLICY, request_timeout_s=3.0)  # where a deadline is to pass
OBJECT = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "one", "namespace": "n"}}


def refusal(code, **fields):
    return {"kind": "Status", "code": code, **fields}


class Server:
    """Answers by `script`, a list of answers: the last one for ever."""

    def __init__(self):
        self.script = [OBJECT]
        self.requests = []
        self.bodies = []

    async def handle(self, request):
        self.requests.append(request)
        self.bodies.append(await request.read())
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if callable(answer):
            return await answer(request)
        return web.json_response(answer, status=answer.get("code", 200))


async def hang(request):
    await asyncio.sleep(1000)


async def cut(request):
    request.transport.abort()
    return web.Response()


def streaming(*lines, then_hangs=False, then_cuts=False):
    async def stream(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        if then_hangs:
            await asyncio.sleep(1000)
        if then_cuts:
            request.transport.abort()
        return response

    return stream


def line(type_, version):
    event = {"type": type_, "object": {"metadata": {"name": "one", "resourceVersion": str(version)}}}
    return json.dumps(event).encode() + b"\n"


@pytest_asyncio.fixture
async def server():
    serving = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serving.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    serving.url = "http://{}:{}".format(*runner.addresses[0])
    serving.stop = runner.cleanup
    yield serving
    await runner.cleanup()


@pytest.fixture
def kubeconfig(tmp_path, server):
    (tmp_path / "token").write_text("first")
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": server.url}}],
                "users": [{"name": "x", "user": {"tokenFile": str(tmp_path / "token")}}],
            }
        )
    )
    return path


@pytest_asyncio.fixture
async def api(kubeconfig):
    opened = await connect(kubeconfig, policy=POLICY)
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def hasty(kubeconfig):
    opened = await connect(kubeconfig, policy=HASTY)
    yield opened
    await opened.close()


def get(api):
    return api.get(CONFIG_MAPS, "one", namespace="n")


def told_s(request):
    """How long the server was told to try."""
    return float(request.query["timeout"].removesuffix("s"))


def create(api):
    return api.create(CONFIG_MAPS, {"metadata": {"name": "one", "namespace": "n"}})


class DeafServer:
    """One connection over TLS, from which no more is read once something came: as of a server that stands still."""

    def __init__(self, folder):
        JobAuthority("authority").issue(folder)
        self.authority = folder / "ca.crt"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listening.getsockname()[1]}"

    def hear(self):
        """The connection, once a question has come; still open."""
        with self._listening:
            accepted, _ = self._listening.accept()
        heard = self._context.wrap_socket(accepted, server_side=True)
        heard.recv(1)
        return heard


@pytest.mark.skipif(not NEEDS_CLEANUP_CLOSED, reason="aiohttp cuts such connections on some versions of Python alone")
async def test_nothing_is_left_open_of_a_question_that_was_given_up(tmp_path, kubeconfig, monkeypatch):
    """TLS says farewell and waits for the other side's: an operator that ended left such a connection behind."""
    made, make = [], connection._Pool._socket

    def note(pool, address):
        made.append(make(pool, address))
        return made[-1]

    monkeypatch.setattr(connection._Pool, "_socket", note)
    deaf = DeafServer(tmp_path / "deaf")
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": deaf.url, "certificate-authority": str(deaf.authority)}
    kubeconfig.write_text(yaml.safe_dump(config))
    api = await connect(kubeconfig, policy=POLICY)
    hearing = asyncio.create_task(asyncio.to_thread(deaf.hear))
    asking = asyncio.create_task(get(api))
    with await hearing:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await api.close()
        for _ in range(3):  # turns of the loop, in which a transport that was cut lets its socket go
            await asyncio.sleep(0)
        assert [one.fileno() for one in made] == [-1]


async def test_request_says_who_asks_and_until_when(api, server):
    """The server gives up when we do, so that a write does not land after its deadline."""
    await create(api)
    asked = server.requests[0]
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/n/configmaps")
    assert asked.query.keys() == {"fieldManager", "timeout"}
    assert asked.query["fieldManager"] == "edl"
    assert 0 < told_s(asked) <= POLICY.request_timeout_s
    assert asked.headers["Authorization"] == "Bearer first"
    assert json.loads(server.bodies[0])["kind"] == "ConfigMap"


async def test_clock_of_the_server_is_heard_with_each_new_date(kubeconfig, server):
    def at(date):
        async def answer(_request):
            return web.json_response(OBJECT, headers={"Date": date or formatdate(time.time(), usegmt=True)})

        return answer

    heard = []
    api = await connect(kubeconfig, policy=POLICY, report_skew=heard.append)
    hour_ago = formatdate(time.time() - 3600, usegmt=True)
    server.script = [at(hour_ago), at(hour_ago), at("no date"), at("")]
    for _ in range(4):
        await get(api)
    await api.close()
    assert heard == [pytest.approx(-3600.0, abs=60.0), 0.0]


async def test_token_is_read_again_when_it_has_run_out(api, server, tmp_path):
    """Also for a write: an unknown caller has done nothing."""
    server.script = [refusal(401), OBJECT]
    (tmp_path / "token").write_text("second")
    await create(api)
    assert [one.headers["Authorization"] for one in server.requests] == ["Bearer first", "Bearer second"]


async def test_token_that_stays_unknown_is_an_error_at_once(api, server):
    server.script = [refusal(401)]
    with pytest.raises(UnauthorizedError):
        await get(api)
    assert len(server.requests) == 2


@pytest.mark.parametrize("fault", [refusal(500), refusal(503), cut, hang], ids=["500", "503", "cut", "hang"])
async def test_read_is_asked_again(hasty, server, fault):
    server.script = [fault, fault, OBJECT]
    assert (await get(hasty))["metadata"]["name"] == "one"
    assert len(server.requests) >= 3


@pytest.mark.parametrize("fault", [refusal(500), refusal(503), cut, hang], ids=["500", "503", "cut", "hang"])
async def test_write_without_an_answer_is_not_repeated(hasty, server, fault):
    server.script = [fault, OBJECT]
    with pytest.raises(UnavailableError) as lost:
        await create(hasty)
    assert lost.value.may_have_happened
    assert len(server.requests) == 1


async def test_attempts_are_bounded(api, server):
    server.script = [refusal(500)]
    with pytest.raises(UnavailableError):
        await get(api)
    assert len(server.requests) == POLICY.attempts


async def test_throttled_write_is_sent_again_after_what_the_server_asks_for(api, server):
    server.script = [refusal(429, details={"retryAfterSeconds": 0.01}), OBJECT]
    await create(api)
    assert len(server.requests) == 2


async def test_a_write_answered_401_goes_out_again_within_its_first_deadline(api, server, monkeypatch):
    """The fence lets go of the Lease one deadline after a write has begun: nothing may stand later than that (A9)."""
    passed_s, left_s = 0.0, 5.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s, time=time.time)
    monkeypatch.setattr(connection, "time", clock)

    async def refuse_late(_request):
        nonlocal passed_s
        passed_s = POLICY.request_timeout_s - left_s
        return web.json_response(refusal(401), status=401)

    server.script = [refuse_late, hang]
    with pytest.raises(UnavailableError):
        async with asyncio.timeout(POLICY.request_timeout_s / 2):  # with a deadline of its own, it would go on
            await create(api)
    first, again = map(told_s, server.requests)
    assert again <= left_s < first


async def test_a_write_answered_401_at_its_deadline_is_not_sent_again(hasty, server, monkeypatch):
    """Credentials that take long to be read again leave no time for another attempt."""

    async def read_slowly(_configuration):
        await asyncio.sleep(1.5 * HASTY.request_timeout_s)

    monkeypatch.setattr(hasty._connection, "_load", read_slowly)
    server.script = [refusal(401), OBJECT]
    with pytest.raises(UnavailableError):
        await create(hasty)
    assert len(server.requests) == 1


async def test_all_attempts_of_a_write_end_with_one_deadline(api, server):
    """A leader lets go of its right that long before another may have it: no attempt is sent or lands after that."""
    server.script = [refusal(429, details={"retryAfterSeconds": 0.04})]
    with pytest.raises(ThrottledError):
        await create(api)
    told = list(map(told_s, server.requests))
    assert told == sorted(told, reverse=True)
    assert told[-1] <= POLICY.request_timeout_s - 0.04 * (len(told) - 1) + 0.01


async def test_process_that_was_stopped_between_two_attempts_sends_no_more(hasty, server, monkeypatch):
    """What SIGCONT wakes after the deadline is a write whose right is gone."""
    choose_pause_s = connection._RetryWait.__call__

    def stop(patience, state):
        time.sleep(HASTY.request_timeout_s)  # as under SIGSTOP
        return choose_pause_s(patience, state)

    monkeypatch.setattr(connection._RetryWait, "__call__", stop)
    server.script = [refusal(429, details={"retryAfterSeconds": 0.05}), OBJECT]
    with pytest.raises(UnavailableError) as given_up:
        await create(hasty)
    assert not given_up.value.may_have_happened
    assert len(server.requests) == 1


async def test_long_wait_is_the_callers(api, server):
    server.script = [refusal(429, details={"retryAfterSeconds": 30})]
    with pytest.raises(ThrottledError) as throttled:
        await create(api)
    assert throttled.value.retry_after_s == 30.0
    assert len(server.requests) == 1


async def test_write_to_a_server_that_is_gone_has_not_happened(api, server):
    await server.stop()
    with pytest.raises(UnavailableError) as refused:
        await create(api)
    assert not refused.value.may_have_happened


async def test_answer_that_is_no_json_is_no_answer(api, server):
    async def page(request):
        return web.Response(text="<html>", content_type="text/html")

    server.script = [page]
    with pytest.raises(UnavailableError):
        await get(api)


async def test_listing_is_asked_for_in_pages_and_forgotten_between_two(api, server):
    def page(name, rest):
        items = [{"metadata": {"name": name, "resourceVersion": "5"}}]
        return {"items": items, "metadata": {"resourceVersion": "7", "continue": rest}}

    server.script = [page("one", "more"), page("two", "")]
    listing = await api.list(CONFIG_MAPS)
    assert [item["metadata"]["name"] for item in listing.items] == ["one", "two"]
    assert listing.items[0]["kind"] == "ConfigMap"
    assert [one.query.get("continue") for one in server.requests] == [None, "more"]
    server.script = [page("one", "more"), refusal(410)]
    with pytest.raises(ExpiredError):
        await api.list(CONFIG_MAPS)


async def test_page_that_is_too_long_is_asked_for_again_in_smaller_ones(api, server):
    """A page of 500 objects of a megabyte each is none that anybody can hold (A11)."""

    async def page(request):
        size, first = int(request.query["limit"]), int(request.query.get("continue", "0"))
        last = min(first + size, 40)
        note = {"annotations": {"note": "x" * 300_000}}
        items = [{"metadata": {"name": f"n{at}", "resourceVersion": "5", **note}} for at in range(first, last)]
        rest = {} if last == 40 else {"continue": str(last)}
        return web.json_response({"items": items, "metadata": {"resourceVersion": "7", **rest}})

    server.script = [page] * 60
    listing = await api.list(CONFIG_MAPS)
    assert [item["metadata"]["name"] for item in listing.items] == [f"n{at}" for at in range(40)]
    assert len(server.requests) < 30


async def test_one_object_that_is_longer_than_a_page_is_read(api, server):
    """1.5 MB of `<` in a pod's arguments is 9 MB on the wire: no pod at all could be listed any more (A11)."""

    async def page(request):
        note = {"annotations": {"note": "<" * 1_500_000}}
        items = [{"metadata": {"name": "one", "resourceVersion": "5", **note}}]
        said = json.dumps({"items": items, "metadata": {"resourceVersion": "7"}}).replace("<", "\\u003c")
        return web.Response(text=said, content_type="application/json")

    server.script = [page] * 10
    assert [item["metadata"]["name"] for item in (await api.list(CONFIG_MAPS)).items] == ["one"]


async def test_object_of_any_depth_is_listed(api, server):
    """Its author may write 10,000 levels into its managed fields: nobody else's object was seen any more (A11)."""

    async def page(request):
        fields = '{"f:a":' * 9_000 + "1" + "}" * 9_000
        names = [
            f'{{"metadata": {{"name": "{name}", "resourceVersion": "5", "managedFields": [{fields}]}}}}'
            for name in "ab"
        ]
        said = f'{{"items": [{", ".join(names)}], "metadata": {{"resourceVersion": "7"}}}}'
        return web.Response(text=said, content_type="application/json")

    server.script = [page]
    assert [item["metadata"]["name"] for item in (await api.list(CONFIG_MAPS)).items] == ["a", "b"]


def watch(api, *, silence_s=60.0):
    return aclosing(api.watch(CONFIG_MAPS, since="1", timeout_s=60.0, silence_s=silence_s))


async def test_events_cut_anywhere_are_put_together(api, server):
    told = line("ADDED", 2) + line("BOOKMARK", 3)
    server.script = [streaming(told[:7], told[7:90], told[90:])]
    async with watch(api) as events:
        found = [event async for event in events]
    assert [(event.type, event.resource_version) for event in found] == [
        (EventType.ADDED, "2"),
        (EventType.BOOKMARK, "3"),
    ]


async def test_long_line_is_put_together_once():
    """A pod of 9 MB that is edited all the time: copied once for each chunk it took the loop from everybody (A11)."""

    class Chunk(bytes):
        copied = 0

        def __radd__(self, other):
            Chunk.copied += len(other)
            return other + bytes(self)

    async def chunks(text):
        for at in range(0, len(text), 100):
            yield Chunk(text[at : at + 100])

    text = b"one\n\n" + b"x" * 10_000 + b"\ntwo\n" + b"y" * 250
    found = [whole async for whole in join_lines(chunks(text))]
    assert (found, Chunk.copied) == (text.split(b"\n"), 0)


@pytest.mark.parametrize("end", [line("ADDED", 3)[:20], b""], ids=["in an event", "between two"])
async def test_stream_that_breaks_is_told_from_one_that_ends(api, server, end):
    server.script = [streaming(line("ADDED", 2), end, then_cuts=True)]
    async with watch(api) as events:
        assert (await anext(events)).resource_version == "2"
        with pytest.raises(UnavailableError):
            await anext(events)


async def test_stream_that_falls_silent_is_cut(api, server):
    """Half open: the connection stands and brings nothing."""
    server.script = [streaming(line("ADDED", 2), then_hangs=True)]
    async with watch(api, silence_s=2.0) as events:
        await anext(events)
        with pytest.raises(UnavailableError):
            await anext(events)


async def test_error_inside_the_stream_is_an_error(api, server):
    """So a real server tells that a version has been forgotten."""
    told = {"type": "ERROR", "object": refusal(410, reason="Expired")}
    server.script = [streaming(json.dumps(told).encode() + b"\n")]
    async with watch(api) as events:
        with pytest.raises(ExpiredError):
            await anext(events)


async def test_log_comes_as_it_is_written(api, server):
    server.script = [streaming(b"one\n", b"two\n")]
    async with aclosing(api.log("pod", namespace="n", tail_lines=2, is_followed=True)) as lines:
        assert b"".join([chunk async for chunk in lines]) == b"one\ntwo\n"
    assert server.requests[0].path == "/api/v1/namespaces/n/pods/pod/log"
    assert server.requests[0].query == {"tailLines": "2", "follow": "true"}


@pytest.mark.parametrize("text", ["", "clusters: []", "not: [a, kubeconfig", "current-context: none"])
async def test_kubeconfig_that_is_none_is_said_so(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(PermanentError, match="give a kubeconfig"):
        await connect(path)


async def test_neither_a_pod_nor_a_kubeconfig_is_said_so(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(PermanentError, match="give a kubeconfig"):
        await connect()
