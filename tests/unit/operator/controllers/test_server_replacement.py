"""A server that moves to another node under an operator: the new one first, then the old one leaves (ADR 0118)."""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.gangs.start_backoff import BIND_LIMIT_S
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.objects.labels import REPLACES
from autoscaler.domain import Policy, Reclaim, Role
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S
from tests.unit.clusters.kubernetes.raw_objects import raw_pod, template
from tests.unit.operator.bench import JOB
from tests.unit.operator.fake_master import StandInMaster
from tests.unit.operator.term import Term

CALM = Policy(
    reclaim=Reclaim.SCHEDULER,
    quiet_window_s=0.0,
    burst_window_s=0.0,
    up_window_s=0.0,
    down_window_s=3.0,
    payoff_s=0.0,
    victim_age_s=0.0,
    refused_after_s=0.0,
)
OLD, NEW = "digits-server-0", "digits-server-1"
LIMIT_S = int(CALM.shortfall_limit_s)


class Scene(Term):
    """Two nodes of 8 cores: server (2) and trainer (3.9) on n1, and the web load (5.9) on n2 beside a pod (2).

    Where the web load was there is room for trainer and server; n1 without its server holds another trainer.
    """

    def __init__(self, **more):
        job = {
            "trainer": {"minReplicas": 1, "maxReplicas": 9, "template": template(cpu="3900m")},
            "parameterServer": {"minReplicas": 1, "maxReplicas": 1, "template": template(cpu="2")},
            "master": {"template": template(cpu="50m")},
        }
        super().__init__(policy=CALM, elastic_servers=True, job=job, **({"moves_servers": True} | more))
        self.master = StandInMaster(self, count=1)
        self.follow()
        self.web("stays", "2")
        self.web("web-load", "5900m")

    def follow(self):
        self.leading.masters.poll, self.leading.masters.set_servers = self.master.poll, self.master.set_servers

    def web(self, name, cpu, *, node="n2"):
        body = raw_pod(name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
        body["spec"]["priority"] = 0
        if node is not None:
            body["spec"]["nodeName"] = node
        self.server.create(PODS, body, FieldOwner("kubectl", is_apply=False))

    async def live(self, times=1):
        for _ in range(times):
            await self.step()
            await self.leading.poller.poll(self.leading.store.objects.jobs[JOB])

    async def another_leader(self):
        self.lead()
        self.follow()
        await self.watch()

    @property
    def servers(self):
        pods = self.server.all(PODS)
        named = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods}
        return {name: node for name, node in named.items() if name.startswith("digits-server-")}

    @property
    def trainers(self):
        return len(self.bench.pods(Role.TRAINER))


async def after_the_tide(**more):
    """Until a new server stands on the better node; its share of the model is on its way."""
    scene = Scene(**more)
    await scene.live(8)
    assert (scene.servers, scene.trainers) == ({OLD: "n1"}, 1)
    scene.master.moving = 3
    scene.server.finish("team-a", "web-load")
    return scene


async def moving(**more):
    scene = await after_the_tide(**more)
    await scene.live(4)
    assert (scene.servers, scene.trainers) == ({OLD: "n1", NEW: "n2"}, 2)
    return scene


def moves(scene, outcome):
    text = scene.metrics.render().decode()
    found = [line for line in text.splitlines() if line.startswith(f'edl_server_moves_total{{outcome="{outcome}"}}')]
    return float(found[0].split()[-1]) if found else 0.0


async def test_the_new_one_gets_its_share_before_the_old_one_goes():
    scene = await moving()
    old, new = (scene.server.get(PODS, "team-a", name) for name in (OLD, NEW))
    assert new["metadata"]["annotations"][REPLACES] == f"{OLD}/{old['metadata']['uid']}"
    assert scene.master.told == [2]
    await scene.live(2 * LIMIT_S)
    assert scene.servers == {OLD: "n1", NEW: "n2"}, "it has the time that its share takes"
    scene.master.moving = 0
    await scene.live(8)
    assert (scene.servers, scene.trainers) == ({NEW: "n2"}, 3)
    assert scene.master.told == [2], "a number that is free stays free"
    assert "Moved" in scene.reasons()
    assert "ServerLost" not in scene.reasons()
    changes = [(one["role"], one["from"], one["to"], one["cause"]) for one in scene.status()["resizes"]]
    assert {("server", 1, 2, "Defragmentation"), ("server", 2, 1, "Defragmentation")} <= set(changes)
    assert (moves(scene, "begun"), moves(scene, "done"), moves(scene, "given up")) == (1, 1, 0)
    await scene.live(30)
    assert scene.servers == {NEW: "n2"}


async def test_where_it_is_switched_off_nothing_moves():
    scene = await after_the_tide(moves_servers=False)
    await scene.live(20)
    assert (scene.servers, scene.trainers) == ({OLD: "n1"}, 2)


async def test_one_that_the_master_does_not_take_leaves_again():
    """Its pod is ready, and it never gets a bucket."""
    scene = await after_the_tide()
    scene.master.refuses = "is 2: no"
    await scene.live(8)
    assert scene.servers == {OLD: "n1", NEW: "n2"}
    await scene.live(3 * LIMIT_S)
    assert scene.servers == {OLD: "n1"}
    assert moves(scene, "given up") == 1


async def test_while_the_master_is_silent_both_stay():
    """Nobody can say what either of them holds, and nobody could take it."""
    scene = await moving()
    scene.master.is_silent = True
    await scene.live(int(SILENCE_LIMIT_S) + 2 * LIMIT_S)
    assert scene.servers == {OLD: "n1", NEW: "n2"}
    scene.master.is_silent, scene.master.moving = False, 0
    await scene.live(6)
    assert scene.servers == {NEW: "n2"}


async def test_another_leader_goes_on_with_the_move():
    scene = await moving()
    await scene.another_leader()
    await scene.live(10)
    assert scene.servers == {OLD: "n1", NEW: "n2"}
    assert scene.master.told == [2]
    scene.master.moving = 0
    await scene.live(6)
    assert scene.servers == {NEW: "n2"}


@pytest.mark.parametrize("after_s", range(10))
async def test_another_leader_at_any_moment_brings_it_to_its_end(after_s):
    """Before it begins, while one waits for its node, its share, the other one's leave, and after it."""
    scene = await after_the_tide()
    scene.bench.rest.holds_back = {NEW}
    for second in range(12):
        if second == after_s:
            await scene.another_leader()
        if second == 3:
            scene.bench.rest.holds_back = set()
        if second == 6:
            scene.master.moving = 0
        await scene.live()
        assert len(scene.servers) <= 2, "a third server"
    await scene.live(6)
    assert (scene.servers, scene.trainers) == ({NEW: "n2"}, 3)
    assert not {"ServerLost", "ServerFailed"} & set(scene.reasons())


async def test_a_leader_that_moves_nothing_finishes_what_was_begun():
    """The switch is turned off meanwhile."""
    scene = await moving()
    scene.moves_servers = False
    await scene.another_leader()
    scene.master.moving = 0
    await scene.live(6)
    assert scene.servers == {NEW: "n2"}


async def test_one_that_the_scheduler_does_not_place_is_given_up():
    scene = await after_the_tide()
    scene.bench.rest.holds_back = {NEW}
    await scene.live(4)
    assert scene.servers == {OLD: "n1", NEW: None}
    await scene.live(int(BIND_LIMIT_S))
    assert scene.servers == {OLD: "n1"}
    assert scene.master.told[-1] == 1
    await scene.live(2 * LIMIT_S)
    assert scene.servers == {OLD: "n1"}, "not tried again, for minutes"
    assert (moves(scene, "begun"), moves(scene, "given up")) == (1, 1)


async def test_one_that_waits_for_its_node_makes_way_for_the_web():
    scene = await after_the_tide()
    scene.bench.rest.holds_back = {NEW}
    await scene.live(4)
    scene.web("wave", "7900m", node=None)
    await scene.live(3)
    assert scene.servers == {OLD: "n1"}
    assert "gives up moving team-a/digits-server-0" in message_of(scene, "Moved")
    assert moves(scene, "given up") == 1


@pytest.mark.parametrize("lost", [OLD, NEW])
async def test_one_of_the_two_dies(lost):
    """The other one serves, or a new one comes for the one that was new: one server in the end."""
    scene = await moving()
    scene.bench.rest.end("team-a", lost, code=137)
    scene.master.moving = 0
    await scene.live(40)
    assert len(scene.servers) == 1
    assert "ServerFailed" in scene.reasons()


def message_of(scene, reason):
    return " ".join(event["note"] for event in scene.bench.events() if event["reason"] == reason)
