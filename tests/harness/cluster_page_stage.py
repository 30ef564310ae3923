"""The page of a cluster on an API server in memory, with users who may read different things, for tests over HTTP."""

import asyncio
import json
import socket
from collections import Counter
from contextlib import suppress

import aiohttp

from autoscaler.cli.kubernetes.kept_snapshot import KeptSnapshot
from autoscaler.cluster_page.cluster_access import TO_PLAN, ClusterAccess
from autoscaler.cluster_page.cluster_source import ClusterSource
from autoscaler.cluster_page.viewer_access import ViewerAccess
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, DEPLOYMENTS, NODES, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.page.access.request_checks import LOOPBACK_HOSTS
from autoscaler.page.page_app import PageApp, PageSettings
from autoscaler.page.page_server import serving
from tests.harness import page_cluster
from tests.harness.memory_users import MemoryUsers
from tests.harness.waiting import BUDGET_S

POLICY = ("edl-system", "mine-policy")
VIEW = ("trainingjobs", "pods", "pods/log", "deployments", "events", "nodes")
CORE = {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}]}


def make_server():
    """One node of four cores with a job of at most three trainers, which has one, and a web service."""
    server = MemoryServer(now=lambda: page_cluster.NOW_S, namespaces=("red", POLICY[0]))

    def put(kind, body, **rest):
        made = server.create(kind, json.loads(json.dumps(body)), FieldOwner("test", is_apply=False))
        server.rewrite(kind, made, made | rest)

    shown = page_cluster.node("n1")
    put(NODES, {"metadata": {"name": "n1"}, "spec": {}}, status=shown["status"])
    trainer = {"minReplicas": 1, "maxReplicas": 3, "template": {"spec": CORE}}
    spec = {"trainer": trainer, "checkpoint": {"uri": "file:///checkpoints"}}
    put(TRAINING_JOBS, {"metadata": {"name": "digits", "namespace": "red"}, "spec": spec})
    template = {"metadata": {"labels": {"app": "web"}}, "spec": CORE}
    web = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    put(
        DEPLOYMENTS,
        {"metadata": {"name": "web", "namespace": "red"}, "spec": web},
        status={"observedGeneration": 1, "replicas": 1},
    )
    policy = {"policy.yaml": "{}", "elasticServers": "true", "moveServers": "false"}
    put(CONFIG_MAPS, {"metadata": {"name": POLICY[1], "namespace": POLICY[0]}, "data": policy})
    return server


class CountedApi(MemoryApi):
    """Counts listings by kind."""

    def __init__(self, server):
        super().__init__(server)
        self.listed = Counter()

    async def list(self, kind, *rest, **options):
        self.listed[kind] += 1
        return await super().list(kind, *rest, **options)


class PageStage:
    """The page, and how often `read` was asked what plans depend on.  The user `planner` may list all of that."""

    def __init__(self):
        self.server = make_server()
        self.api = CountedApi(self.server)
        users = MemoryUsers(self.server)
        users.tokens |= {name: name for name in ("planner", "admin", "team", "without-policy")}
        for name in ("planner", "admin", "without-policy"):
            for plural in VIEW:
                users.give(name, plural)
        for right in TO_PLAN:
            users.give("planner", right.kind.plural)
            users.give("without-policy", right.kind.plural)
            users.give("team", right.kind.plural)
        users.give("planner", f"get {CONFIG_MAPS.plural}", POLICY[0])
        users.give("team", f"get {CONFIG_MAPS.plural}", POLICY[0])
        for plural in VIEW:
            users.give("team", plural, "red")
        self.base, self.read = "", 0
        self.kept = KeptSnapshot(POLICY)

    async def snapshot(self, api, title):
        self.read += 1
        return await self.kept(api, title)

    async def serve(self, stack, policy):
        api = self.api
        viewers = await stack.enter_async_context(ViewerAccess(api, clock=asyncio.get_running_loop().time))
        source = ClusterSource(api, title="test", read_snapshot=self.snapshot)
        watching = asyncio.create_task(source.run())
        stack.push_async_callback(cancel, watching)
        settings = PageSettings(hosts=LOOPBACK_HOSTS, plans_unasked=False, explains_jobs=policy is not None)
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.page = PageApp(source, ClusterAccess(viewers, policy=policy), settings)
        await stack.enter_async_context(serving(self.page, listening))
        self.base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with asyncio.timeout(BUDGET_S):
            while source.documents() is None:  # noqa: ASYNC110 - two watches
                await asyncio.sleep(0.01)

    async def get(self, path, token):
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(headers=headers) as client, client.get(self.base + path) as answer:
            return answer.status, await answer.text()


async def cancel(task):
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
