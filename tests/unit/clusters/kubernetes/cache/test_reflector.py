"""Watching keeps the store true through every fault of the stream, and knows how old it is.  In virtual time."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, PODS
from autoscaler.clusters.kubernetes.cache.object_cache import CLUSTER, ObjectCache, key_of
from autoscaler.clusters.kubernetes.cache.reflector import Reflector, WatchPolicy
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.fault_isolation import JobErrors
from tests.harness import virtual_time
from tests.harness.api_faults import EventFault, FaultPlan, PerturbedApi

POLICY = WatchPolicy()


class Stage:
    """A server with a door for a user; a store that is kept fresh through `watched_by(api)`."""

    def __init__(self, plan=None, kinds=(CONFIG_MAPS,), namespaces=()):
        self.server = MemoryServer(now=lambda: 1e9 + virtual_time.now(), namespaces=("n", "m", "other"))
        self.user = MemoryApi(self.server, field_manager="user")
        self.api = PerturbedApi(MemoryApi(self.server), self.server, plan or FaultPlan())
        self.store = ObjectCache(JobErrors(lambda: 0.0), namespaces=dict.fromkeys(kinds, namespaces))
        self.news = 0
        self.kinds = kinds
        self.watching = None

    def _notify(self):
        self.news += 1

    @asynccontextmanager
    async def watched(self, jitter=0.5):
        self.watching = Reflector(
            self.api, self.store, self.kinds, now=virtual_time.now, jitter=lambda: jitter, notify=self._notify
        )
        running = asyncio.create_task(self.watching.run())
        try:
            yield self
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def make(self, *names, namespace="n"):
        for name in names:
            await self.user.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}})

    async def drop(self, name):
        await self.user.delete(CONFIG_MAPS, name, namespace="n")

    @property
    def age_s(self):
        confirmed_at_s = self.store.oldest_confirmed_at_s(self.kinds)
        return None if confirmed_at_s is None else virtual_time.now() - confirmed_at_s

    def check(self):
        truth = {key_of(one): one for one in self.server.all(CONFIG_MAPS)}
        assert dict(self.store.objects(CONFIG_MAPS)) == truth


def names(store):
    return {name for _, name in store.objects(CONFIG_MAPS)}


def test_what_stood_before_and_what_comes_after_is_known():
    async def main():
        stage = Stage()
        await stage.make("before")
        async with stage.watched():
            await asyncio.sleep(0.1)
            assert names(stage.store) == {"before"}
            news = stage.news
            await stage.make("after")
            await stage.drop("before")
            await asyncio.sleep(0.1)
            assert names(stage.store) == {"after"}
            assert stage.news > news

    virtual_time.run(main())


def test_quiet_cluster_is_never_older_than_a_turn():
    """Rule 21 asks for 10 s: without a single event it is heard of 2 s before each end, and at the end."""

    async def main():
        stage = Stage(kinds=(CONFIG_MAPS, PODS))
        async with stage.watched():
            await asyncio.sleep(0.1)
            for _ in range(300):
                await asyncio.sleep(0.7)
                assert stage.age_s <= POLICY.turn_s - 2.0
            assert stage.watching.problems == {}

    virtual_time.run(main())


def test_quiet_cluster_wakes_nobody():
    async def main():
        stage = Stage()
        async with stage.watched():
            await asyncio.sleep(0.1)
            news = stage.news
            await asyncio.sleep(100.0)
            assert stage.news == news

    virtual_time.run(main())


def test_lost_connections_cost_no_listing_and_no_event():
    async def main():
        stage = Stage()
        async with stage.watched():
            await asyncio.sleep(0.1)
            for number in range(20):
                stage.server.history.disconnect_all()
                await stage.make(f"c-{number}")
                await asyncio.sleep(1.0)
                stage.check()
            assert stage.api.listings == 1

    virtual_time.run(main())


def test_forgotten_version_is_answered_by_a_listing():
    async def main():
        stage = Stage()
        await stage.make("gone", "stays")
        async with stage.watched():
            await asyncio.sleep(0.1)
            stage.server.history.disconnect_all()
            await stage.drop("gone")
            await stage.make("come")
            stage.server.history.compact(stage.server.history.version)
            await asyncio.sleep(1.0)
            stage.check()
            assert stage.api.listings == 2

    virtual_time.run(main())


def test_line_that_is_none_is_answered_by_a_listing():
    async def main():
        stage = Stage(FaultPlan(events={1: EventFault.GARBLED}))
        async with stage.watched():
            await asyncio.sleep(0.1)
            await stage.make("heard", "garbled", "after")
            await asyncio.sleep(1.0)
            stage.check()
            assert stage.api.listings == 2
            await asyncio.sleep(POLICY.turn_s)
            assert stage.watching.problems == {}

    virtual_time.run(main())


def test_server_whose_every_line_is_garbled_is_listed_seldom_and_said_to_be_ill():
    async def main():
        stage = Stage(FaultPlan(events=dict.fromkeys(range(1_000), EventFault.GARBLED)))
        async with stage.watched():
            await asyncio.sleep(0.1)
            for number in range(120):
                await stage.make(f"c-{number}")
                await asyncio.sleep(1.0)
            assert 5 <= stage.api.listings <= 30
            assert "unexpected response" in stage.watching.problems[CONFIG_MAPS, CLUSTER]
            await asyncio.sleep(2 * POLICY.longest_pause_s)
            stage.check()

    virtual_time.run(main())


class Away(MemoryApi):
    """Answers no listing, and notes when it was asked."""

    def __init__(self, server):
        super().__init__(server)
        self.requested_at_s = []

    async def list(self, kind, scope):
        self.requested_at_s.append(virtual_time.now())
        raise UnavailableError("list: no answer", may_have_happened=False)


@pytest.mark.parametrize(("jitter", "part"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_pauses_double_up_to_the_longest_and_are_scattered_over_their_second_half(jitter, part):
    """Whoever comes back to a server that was away does not find all kinds and operators there at once."""

    async def main():
        stage = Stage()
        stage.api = Away(stage.server)
        async with stage.watched(jitter):
            await asyncio.sleep(60.0)
        asked = stage.api.requested_at_s
        pauses = [after - before for before, after in itertools.pairwise(asked)]
        wanted = [min(POLICY.first_pause_s * 2.0**number, POLICY.longest_pause_s) for number in range(len(pauses))]
        assert pauses == pytest.approx([part * pause_s for pause_s in wanted])
        assert wanted[-1] == POLICY.longest_pause_s

    virtual_time.run(main())


def test_swallowed_event_shows_after_a_while():
    """A fault of the server that no protocol notices."""

    async def main():
        stage = Stage(FaultPlan(events={0: EventFault.LOST}))
        async with stage.watched():
            await asyncio.sleep(0.1)
            await stage.make("swallowed", "heard")
            await asyncio.sleep(1.0)
            assert names(stage.store) == {"heard"}
            await asyncio.sleep(POLICY.relist_s + POLICY.turn_s)
            stage.check()

    virtual_time.run(main())


def test_server_that_has_travelled_back_is_not_believed():
    """The store keeps what it knows, grows old, and says why; it goes on once the server has caught up."""

    async def main():
        stage = Stage(FaultPlan(lags=dict.fromkeys(range(1, 6), 2)))
        async with stage.watched():
            await asyncio.sleep(0.1)
            await stage.make("a", "b")
            await asyncio.sleep(0.1)
            stage.server.history.disconnect_all()
            stage.server.history.compact(stage.server.history.version - 2)
            stage.api.expire()
            await asyncio.sleep(1.0)
            assert names(stage.store) == {"a", "b"}
            assert "older than what is known" in stage.watching.problems[CONFIG_MAPS, CLUSTER]
            await asyncio.sleep(60.0)
            stage.check()
            assert stage.watching.problems == {}

    virtual_time.run(main())


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("connection refused", may_have_happened=False),
        ForbiddenError("no", RefusedBy.RBAC),
    ],
    ids=["away", "forbidden"],
)
def test_server_away_for_a_minute_is_asked_seldom_and_caught_up_with(error):
    """Also when the right to read was taken and given back."""

    async def main():
        stage = Stage()
        await stage.make("before")
        async with stage.watched():
            await asyncio.sleep(0.1)
            stage.api.away = error
            stage.server.history.disconnect_all()
            await asyncio.sleep(60.0)
            assert stage.age_s >= 60.0 - POLICY.turn_s
            assert str(error) in stage.watching.problems[CONFIG_MAPS, CLUSTER]
            assert stage.api.refused <= 20
            await stage.make("meanwhile")
            stage.api.away = None
            await asyncio.sleep(2 * POLICY.longest_pause_s)
            stage.check()
            assert stage.age_s <= POLICY.turn_s

    virtual_time.run(main())


def test_server_that_ends_every_watch_at_once_is_not_stormed():
    async def main():
        stage = Stage()
        stage.api.ends_at_once = True
        async with stage.watched():
            await asyncio.sleep(60.0)
            assert 5 <= stage.api.watches <= 30

    virtual_time.run(main())


def test_namespaces_are_followed_one_by_one_and_no_other_is_asked_for():
    """One that may no longer be read makes the kind old, and says which it is; what is heard of the others goes on."""

    async def main():
        stage = Stage(namespaces=("n", "m"))
        await stage.make("before", namespace="m")
        async with stage.watched():
            await asyncio.sleep(0.1)
            await stage.make("after", namespace="n")
            await stage.make("unseen", namespace="other")
            await asyncio.sleep(60.0)
            assert names(stage.store) == {"before", "after"}
            assert stage.age_s <= POLICY.turn_s
            stage.api.closed = {"m": ForbiddenError("no", RefusedBy.RBAC)}
            await asyncio.sleep(60.0)
            await stage.make("later", namespace="n")
            await asyncio.sleep(0.1)
            assert names(stage.store) == {"before", "after", "later"}
            assert stage.age_s >= 60.0 - POLICY.turn_s
            assert set(stage.watching.problems) == {(CONFIG_MAPS, "m")}

    virtual_time.run(main())


FAULTS = st.dictionaries(st.integers(0, 12), st.sampled_from(EventFault), max_size=6)
STEPS = st.lists(st.sampled_from(["make", "drop", "cut", "forget", "wait"]), max_size=25)


@given(steps=STEPS, faults=FAULTS)
def test_store_comes_to_the_truth_whatever_happens_to_the_stream(steps, faults):
    async def main():
        stage = Stage(FaultPlan(events=faults))
        async with stage.watched():
            await asyncio.sleep(0.1)
            for number, step in enumerate(steps):
                match step:
                    case "make":
                        await stage.make(f"c-{number}")
                    case "drop":
                        standing = stage.server.all(CONFIG_MAPS)
                        if standing:
                            await stage.drop(standing[0]["metadata"]["name"])
                    case "cut":
                        stage.server.history.disconnect_all()
                    case "forget":
                        stage.server.history.compact(stage.server.history.version)
                    case "wait":
                        await asyncio.sleep(0.3)
            settled_s = POLICY.relist_s + 5 * POLICY.turn_s if EventFault.LOST in faults.values() else 60.0
            await asyncio.sleep(settled_s)
            stage.check()

    virtual_time.run(main())
