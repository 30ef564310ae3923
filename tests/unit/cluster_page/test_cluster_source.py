"""What the page's source says of data that stopped, and of kinds that it may not list.  In virtual time."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from autoscaler.cluster_page.cluster_source import ClusterSource
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, NotFoundError, RefusedBy, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.views.documents import WITHHELD, Rights
from autoscaler.views.namespace_presence import NAMESPACE_KEPT_S
from tests.harness import page_cluster, virtual_time
from tests.harness.virtual_time import now

START_S = 1e9
AWAY = UnavailableError("watch: no route to host", may_have_happened=False)
FORBIDDEN = ForbiddenError("list: User ann cannot list", RefusedBy.RBAC)


class ClosableApi(MemoryApi):
    """Raises what `closed` has for a kind, in lists and at the start and within watches."""

    def __init__(self, server):
        super().__init__(server)
        self.server = server
        self.closed = {}

    async def list(self, kind, *args, **options):
        self._check(kind)
        return await super().list(kind, *args, **options)

    async def watch(self, kind, *args, **options):
        self._check(kind)
        async for event in super().watch(kind, *args, **options):
            self._check(kind)
            yield event

    def _check(self, kind):
        if kind in self.closed:
            raise self.closed[kind]


class TalkativeApi(ClosableApi):
    """Whose pods have written lines without an end."""

    read, pieces = 0, 0

    async def log(self, pod, **_how):
        self.read += 1
        yield b"first line\n"
        while True:
            self.pieces += 1
            await asyncio.sleep(0)
            yield b"x" * 65_536


class Stage:
    def __init__(self, closed=(), make_api=ClosableApi):
        self.api = make_api(MemoryServer(now=unix_now, namespaces=("red", "blue")))
        self.api.closed.update(closed)
        self.source = ClusterSource(
            self.api, title="test", read_snapshot=None, clock=virtual_time.now, unix_clock=unix_now
        )

    @asynccontextmanager
    async def watched(self):
        running = asyncio.create_task(self.source.run())
        try:
            await asyncio.sleep(1.0)
            yield self
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def unix_now():
    return START_S + now()


def on_a_stage(body, closed=(), **how):
    async def main():
        async with Stage(closed, **how).watched() as stage:
            await body(stage)

    virtual_time.run(main())


def test_data_that_stopped_is_as_of_the_last_confirmation_and_says_why():
    async def body(stage):
        await asyncio.sleep(60.0)
        assert stage.source.documents().is_current
        assert stage.source.problem == ""
        cut_s = unix_now()
        stage.api.closed = dict.fromkeys((TRAINING_JOBS, PODS, NODES, DEPLOYMENTS), AWAY)
        await asyncio.sleep(300.0)
        old = stage.source.documents()
        assert not old.is_current
        assert cut_s - 10.0 <= old.now_s <= cut_s + 10.0
        assert "no route" in old.problem
        assert old.unlisted == frozenset()
        stage.api.closed = {}
        await asyncio.sleep(30.0)
        assert stage.source.documents().is_current
        assert stage.source.documents().now_s == pytest.approx(unix_now())
        assert stage.source.documents().problem == ""

    on_a_stage(body)


def test_nothing_is_shown_as_long_as_a_first_list_fails():
    """A failure that passes is no refusal: else the page would show zeros."""

    async def body(stage):
        await asyncio.sleep(30.0)
        assert stage.source.documents() is None
        assert "no route" in stage.source.problem
        stage.api.closed = {}
        await asyncio.sleep(30.0)
        assert stage.source.documents().problem == ""

    on_a_stage(body, {TRAINING_JOBS: AWAY})


@pytest.mark.parametrize("error", [FORBIDDEN, NotFoundError("list trainingjobs: no such kind")])
def test_kind_that_is_refused_is_unlisted_and_the_rest_is_shown(error):
    async def body(stage):
        assert not stage.source.has_jobs
        found = stage.source.documents()
        assert found.is_current
        assert found.unlisted == {"trainingjobs"}
        assert found.problem == str(error)
        stage.api.closed = {TRAINING_JOBS: AWAY}  # while it is away it stays one that is not listed
        await asyncio.sleep(30.0)
        assert stage.source.documents().unlisted == {"trainingjobs"}

    on_a_stage(body, {TRAINING_JOBS: error})


def test_nodes_that_are_refused_are_not_called_none():
    """The picture says that they may not be seen; nothing is known to be free."""

    async def body(stage):
        found = stage.source.documents()
        assert not found.is_complete
        assert found.problem == ""

    on_a_stage(body, {NODES: FORBIDDEN})


def test_viewer_of_a_part_is_told_no_word_of_the_reason():
    """It may name a namespace of others."""

    async def body(stage):
        rights = Rights(namespaces=frozenset({"red"}), can_read_nodes=False, can_plan=False)
        assert stage.source.documents().readable(rights).problem == WITHHELD

    on_a_stage(body, {TRAINING_JOBS: FORBIDDEN})


def test_log_is_read_once_for_all_who_look_and_no_further_than_needed():
    """Fifty viewers of a job in trouble are one request in some seconds, of a bounded size."""

    async def body(stage):
        async with asyncio.TaskGroup() as tasks:
            tails = [tasks.create_task(stage.source.log_tail("red", "pod", 20)) for _ in range(50)]
        assert stage.api.read == 1
        assert stage.api.pieces <= 5
        assert {0 < sum(map(len, one.result())) <= 16 * 1024 for one in tails} == {True}
        await stage.source.log_tail("red", "pod", 20)
        assert stage.api.read == 1
        await asyncio.sleep(6.0)
        await stage.source.log_tail("red", "pod", 20)
        assert stage.api.read == 2

    on_a_stage(body, make_api=TalkativeApi)


def test_few_logs_are_read_at_a_time():
    async def body(stage):
        async with asyncio.TaskGroup() as tasks:
            for number in range(100):
                tasks.create_task(stage.source.log_tail("red", f"pod-{number}", 20))
        assert stage.api.read <= 10

    on_a_stage(body, make_api=TalkativeApi)


def test_lines_of_a_namespace_that_ended_are_forgotten():
    """Not those of one that stands, nor while it is not known what stands in them."""

    async def body(stage):
        for namespace in ("red", "blue"):
            put(stage.api, TRAINING_JOBS, page_cluster.job("digits", namespace=namespace))
            put(stage.api, EVENTS, {"metadata": {"name": "e", "namespace": namespace}, "regarding": REGARDING})
        await asyncio.sleep(1.0)
        stage.source.documents()
        await stage.api.delete(TRAINING_JOBS, "digits", namespace="red")
        await asyncio.sleep(1.0)
        stage.source.documents()
        stage.api.closed = dict.fromkeys((TRAINING_JOBS, PODS), AWAY)
        await asyncio.sleep(NAMESPACE_KEPT_S)
        stage.source.documents()
        assert {line.namespace for line in stage.source.journal()} == {"red", "blue"}
        stage.api.closed = {}
        await asyncio.sleep(60.0)
        stage.source.documents()
        assert {line.namespace for line in stage.source.journal()} == {"blue"}

    on_a_stage(body)


REGARDING = {"kind": "TrainingJob", "name": "digits"}


def put(api, kind, body):
    metadata = {key: value for key, value in body["metadata"].items() if key != "creationTimestamp"}
    api.server.create(kind, {**body, "metadata": metadata}, FieldOwner("test", is_apply=False))
