"""Two operators and one Lease on an API server in memory; one of them stops and goes on."""

import asyncio

import pytest

from autoscaler.clusters.kubernetes.api.decorators import FencedApi
from autoscaler.clusters.kubernetes.api.errors import NotLeadingError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, LEASES
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.operator.leadership.candidate import LeaseTiming
from autoscaler.operator.leadership.lease import LeaseHolder

TIMING = LeaseTiming(duration_s=8, renew_deadline_s=6.0, retry_s=2.0)
BODY = {"metadata": {"name": "x", "namespace": "edl"}}


class World:
    """Two candidates; each looks at the Lease when it is told to, on a clock of its own."""

    def __init__(self):
        self.now_s = 1_000.0
        self.server = MemoryServer(now=lambda: self.now_s, namespaces=("edl",))
        self.paused = {}
        self.apis = {name: Flaky(self.server) for name in "ab"}
        self.leases = {name: self.lease(name) for name in "ab"}

    def lease(self, name):
        return LeaseHolder(
            self.apis[name],
            namespace="edl",
            name="edl",
            identity=name,
            timing=TIMING,
            clock=lambda: self.paused.get(name, self.now_s),
            wall_s=lambda: self.now_s,
        )

    async def turn(self, *names):
        for name in names or "ab":
            await self.leases[name]._campaign_once()

    def leaders(self):
        return {name for name, lease in self.leases.items() if lease.may_write()}

    def holder(self):
        return self.server.get(LEASES, "edl", "edl")["spec"]["holderIdentity"]


class Flaky(MemoryApi):
    """An API server that can be away, or lose its answers."""

    def __init__(self, server):
        super().__init__(server)
        self.is_away = self.loses_answers = False

    async def create(self, kind, body):
        return self._answer(self._check() or await super().create(kind, body))

    async def patch(self, *args, **kwargs):
        return self._answer(self._check() or await super().patch(*args, **kwargs))

    async def get(self, *args, **kwargs):
        return self._check() or await super().get(*args, **kwargs)

    def _check(self):
        if self.is_away:
            raise UnavailableError("away", may_have_happened=True)

    def _answer(self, obj):
        if self.loses_answers:
            raise UnavailableError("lost", may_have_happened=True)
        return obj


@pytest.fixture
def world():
    return World()


async def test_one_leads_and_keeps_on_leading(world):
    for _ in range(20):
        await world.turn()
        assert world.leaders() == {"a"}
        world.now_s += 2
    assert world.holder() == "a"


async def test_a_leader_that_is_away_is_followed_and_never_beside_another(world):
    await world.turn()
    world.apis["a"].is_away = True
    followed = False
    for _ in range(40):
        world.now_s += 0.5
        await world.turn()
        assert len(world.leaders()) <= 1
        followed = followed or world.leaders() == {"b"}
    assert followed
    world.apis["a"].is_away = False
    await world.turn("a")
    assert world.leaders() == {"b"}


async def test_a_stopped_leader_that_goes_on_may_not_write(world):
    """SIGSTOP and SIGCONT: its first write after that is refused, before it has looked at anything."""
    await world.turn()
    fenced = FencedApi(world.apis["a"], world.leases["a"].may_write)
    await fenced.create(CONFIG_MAPS, BODY)
    for _ in range(8):
        world.now_s += 2
        await world.turn("b")
    assert world.leaders() == {"b"}
    with pytest.raises(NotLeadingError):
        await fenced.delete(CONFIG_MAPS, "x", namespace="edl")
    await world.turn("a")
    assert world.leaders() == {"b"}


async def test_an_answer_that_was_lost_is_found_again(world):
    world.apis["a"].loses_answers = True
    await world.turn("a")
    assert world.leaders() == set()
    world.apis["a"].loses_answers = False
    await world.turn("a")
    assert world.leaders() == {"a"}


async def test_who_leaves_gives_the_lease_back(world):
    running = asyncio.create_task(world.leases["a"].run())
    await world.leases["a"].wait_won()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert world.leaders() == set()
    assert world.holder() == ""
    await world.turn("b")
    assert world.leaders() == {"b"}


async def test_a_lease_that_somebody_deletes_is_lost(world):
    await world.turn()
    await MemoryApi(world.server).delete(LEASES, "edl", namespace="edl")
    world.now_s += 2
    await world.turn("b")
    await world.turn("a")
    assert world.leaders() <= {"b"}
    assert world.holder() == "b"


async def test_losing_is_noticed(world):
    await world.turn("a")
    world.now_s += 100
    await world.leases["a"].wait_lost()
    assert world.leaders() == set()
