"""The page of a cluster on an API server in memory: what each viewer is shown, and what nobody is told."""

import asyncio
import json
import socket
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import aiohttp
import pytest

from autoscaler.cluster_page.cluster_access import ClusterAccess
from autoscaler.cluster_page.cluster_source import ClusterSource
from autoscaler.cluster_page.viewer_access import AccessLimits, ViewerAccess
from autoscaler.clusters.kubernetes.api.errors import UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.page.access.request_checks import LOOPBACK_HOSTS
from autoscaler.page.live import live_answers
from autoscaler.page.page_app import PageApp, PageSettings
from autoscaler.page.page_server import serving
from tests.harness import page_cluster
from tests.harness.memory_users import MemoryUsers
from tests.harness.waiting import BUDGET_S

OWNER = FieldOwner("test", is_apply=False)
AWAY = UnavailableError("create tokenreviews: connection refused", may_have_happened=False)
PAGES = ("/", "/waiting", "/decisions", "/time", "/what-if", "/api/now", "/api/waiting/waiting", "/api/time/time")
SHOWING = ("/", "/decisions", "/api/now", "/api/decisions/decisions")
KEPT_S = 0.2
VIEW = ("trainingjobs", "pods", "pods/log", "deployments", "events")


class Stage:
    """Teams `red` and `blue` on one node, with a job, a web service and an event each, and a user for each."""

    def __init__(self, clock):
        self.server = MemoryServer(now=lambda: page_cluster.NOW_S, namespaces=("red", "blue"))
        self.users = MemoryUsers(self.server)
        self.api = MemoryApi(self.server)
        self.put(NODES, page_cluster.node("shared-node", cpu="16"))
        for team in ("red", "blue"):
            self.put(TRAINING_JOBS, page_cluster.job(f"{team}-digits", namespace=team, message=f"{team} waits"))
            self.put(PODS, page_cluster.pod(f"{team}-digits-trainer-0", job=f"{team}-digits", namespace=team))
            self.put(PODS, page_cluster.pod(f"{team}-web-abc-1", deployment=f"{team}-web", namespace=team))
            self.put(DEPLOYMENTS, page_cluster.deployment(f"{team}-web", replicas=1, namespace=team))
            self.put(EVENTS, event(team))
            self.users.tokens[f"of-{team}"] = team
            for plural in VIEW:
                self.users.give(team, plural, team)
        self.users.tokens |= {"of-admin": "admin", "of-nobody": "nobody"}
        for plural in (*VIEW, "nodes"):
            self.users.give("admin", plural)
        limits = AccessLimits(yes_kept_s=KEPT_S, bad_token_kept_s=KEPT_S, pause_after_failure_s=0.01)
        self.viewers = ViewerAccess(self.api, clock=clock, limits=limits)
        self.source = ClusterSource(self.api, title="test", read_snapshot=refuse)
        self.base = ""

    def put(self, kind, body):
        """Store it with its status, on the node."""
        body = json.loads(json.dumps(body))
        metadata = {key: value for key, value in body["metadata"].items() if key != "creationTimestamp"}
        self.server.create(kind, body | {"metadata": metadata}, OWNER)
        found = self.server.get(kind, metadata.get("namespace"), metadata["name"])
        status = {"status": body["status"]} if "status" in body else {}
        spec = {"spec": {**found["spec"], "nodeName": "shared-node"}} if kind == PODS else {}
        running = {"status": {"phase": "Running"}} if kind == PODS else status
        self.server.rewrite(kind, found, found | spec | running)

    @asynccontextmanager
    async def serving(self):
        page = PageApp(self.source, ClusterAccess(self.viewers), PageSettings(hosts=LOOPBACK_HOSTS))
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.viewers)
            watching = asyncio.create_task(self.source.run())
            stack.push_async_callback(cancel, watching)
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            await stack.enter_async_context(serving(page, listening))
            self.base = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with asyncio.timeout(BUDGET_S):
                while self.source.documents() is None or len(self.source.journal()) < 2:  # noqa: ASYNC110 - two watches
                    await asyncio.sleep(0.01)
            yield

    async def get(self, path, token="of-red", **headers):
        """Status and text of an answer."""
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client,
            client.get(self.base + path, headers=headers) as answer,
        ):
            return answer.status, await answer.text()


async def refuse(api, title):
    raise AssertionError("nobody may plan here")


async def cancel(task):
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def event(team):
    return {
        "metadata": {"name": f"{team}-event", "namespace": team},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reason": "Started",
        "note": f"{team} began",
        "type": "Normal",
        "regarding": {"kind": "TrainingJob", "name": f"{team}-digits", "namespace": team},
    }


@pytest.fixture
async def stage():
    made = Stage(asyncio.get_running_loop().time)
    async with made.serving():
        yield made


@pytest.mark.parametrize("path", [*SHOWING, "/jobs/red/red-digits", "/api/job/jobs/red/red-digits"])
async def test_viewer_sees_their_own_namespace_and_no_word_of_the_other(stage, path):
    """In no page, no JSON.  Where their own pods are they may know, as by `kubectl get pods -o wide`."""
    status, text = await stage.get(path)
    assert status == 200
    assert "red-" in text
    assert "blue" not in text


@pytest.mark.parametrize("path", PAGES)
async def test_no_page_has_a_word_of_the_other_namespace(stage, path):
    status, text = await stage.get(path)
    assert status == 200
    for word in ("blue", "shared-node"):
        assert word not in text


async def test_history_has_no_sum_of_what_others_hold(stage):
    """Samples of all that is there; the viewer of one namespace gets that namespace's jobs, and of the rest nothing."""
    async with asyncio.timeout(BUDGET_S):
        while not (told := json.loads((await stage.get("/api/time/time", "of-admin"))[1]))["capacity"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert any(told["capacity"])
    own = json.loads((await stage.get("/api/time/time"))[1])
    assert not any((*own["capacity"], *own["placeable"], *own["web_wanted"], *own["web"]["amounts"]))
    assert {None} == {*own["capacity"], *own["placeable"], *own["web_wanted"], *own["web"]["amounts"]}
    assert {layer["owner"] for layer in own["jobs"]} <= {"red/red-digits"}


async def test_viewer_sees_both_in_turn_by_their_token(stage):
    for team, other in (("red", "blue"), ("blue", "red")):
        _, text = await stage.get("/api/now", f"of-{team}")
        assert f"{team}-digits" in text
        assert f"{other}-" not in text


@pytest.mark.parametrize("path", ["/jobs/blue/blue-digits", "/jobs/blue/none"])
async def test_job_of_another_namespace_is_as_one_that_does_not_exist(stage, path):
    """Nobody learns by the answer which names others use."""
    status, text = await stage.get(path)
    assert status == 404
    assert text == (await stage.get("/jobs/blue/nor-this"))[1].replace("nor-this", path.rpartition("/")[2])


async def test_stream_of_a_viewer_never_tells_of_the_other_namespace(stage):
    """Through a change in each of the namespaces, until that of the viewer's own has come."""
    headers = {"Authorization": "Bearer of-red"}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.get(f"{stage.base}/live/now") as stream,
        asyncio.timeout(BUDGET_S),
    ):
        received = await stream.content.readuntil(b"\n\n")
        for team in ("blue", "red"):
            stage.put(TRAINING_JOBS, page_cluster.job(f"{team}-second", namespace=team))
        while b"red-second" not in received:
            received += await stream.content.readany()
    assert b"blue" not in received


async def test_admin_sees_all(stage):
    _, text = await stage.get("/api/now", "of-admin")
    for word in ("red-digits", "blue-digits", "shared-node"):
        assert word in text


@pytest.mark.parametrize("path", PAGES)
async def test_user_without_rights_sees_nothing(stage, path):
    status, text = await stage.get(path, "of-nobody")
    assert status == 200
    for word in ("red-", "blue-", "shared-node"):
        assert word not in text


@pytest.mark.parametrize("path", [*PAGES, "/live/now", "/snapshot.json", "/jobs/red/red-digits"])
@pytest.mark.parametrize("token", ["", "of-a-stranger", "of-red,", "of-red x"])
async def test_without_a_valid_token_nothing_is_shown(stage, path, token):
    status, text = await stage.get(path, token)
    assert status == 401
    assert "red-" not in text
    assert "kubectl edl page" in text


async def test_headers_of_a_proxy_make_nobody_a_user(stage):
    named = {"X-Remote-User": "admin", "X-Forwarded-User": "admin", "Impersonate-User": "admin"}
    status, _ = await stage.get("/", "", **named)
    assert status == 401
    _, text = await stage.get("/api/now", "of-red", **named)
    assert "blue" not in text


async def test_part_of_the_rights_is_not_enough(stage):
    """A namespace is shown with all rights that its page needs, or not at all."""
    stage.users.rights.discard(("red", "pods", "red"))
    _, text = await stage.get("/api/now")
    assert "red-" not in text


async def test_revoked_token_is_refused_within_the_time_that_a_yes_is_kept(stage):
    assert (await stage.get("/"))[0] == 200
    del stage.users.tokens["of-red"]
    async with asyncio.timeout(BUDGET_S):
        while (await stage.get("/"))[0] != 401:  # noqa: ASYNC110 - time has to pass
            await asyncio.sleep(KEPT_S / 4)


async def test_stream_of_a_viewer_who_is_not_known_any_more_ends_whole(stage, monkeypatch):
    """No second answer stands in the middle of it, which a proxy would take for a fault of the page."""
    monkeypatch.setattr(live_answers, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(live_answers, "RIGHTS_KEPT_S", 0.0)
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer of-red"}) as client,
        client.get(f"{stage.base}/live/now") as stream,
        asyncio.timeout(BUDGET_S),
    ):
        await stream.content.readuntil(b"\n\n")
        del stage.users.tokens["of-red"]
        assert b"HTTP/1.1" not in await stream.content.read()


async def test_api_server_that_is_away_means_503_and_nothing_shown(stage):
    stage.users.problem = AWAY
    for path in PAGES:
        status, text = await stage.get(path)
        assert status == 503
        assert "red-" not in text


async def test_nobody_may_have_a_snapshot_of_the_whole_cluster(stage):
    for token in ("of-red", "of-admin"):
        status, text = await stage.get("/snapshot.json", token)
        assert status == 403
        assert "digits" not in text
