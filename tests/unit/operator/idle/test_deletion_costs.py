"""Deletion costs that EDL lowered: noted on the pod, taken back whoever leads, and never written over (ADR 0293)."""

import asyncio

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.objects.labels import DELETION_COST, FORMER_COST
from autoscaler.operator.idle.deletion_costs import (
    LEFT_BEHIND_S,
    LOWEST_COST,
    MOST_AT_ONCE,
    SETTLES_S,
    SWEEP_EVERY_S,
    DeletionCosts,
)
from autoscaler.operator.idle.departures import LEAVES_WITHIN_S
from autoscaler.operator.idle.pod_pauses import PodPauses
from tests.unit.operator.idle.idle_scene import Cache, IdleScene
from tests.unit.operator.idle.replicas_scene import NOTICE_S, deployment

B = "web-5d9-b"


@pytest.mark.parametrize(
    ("noted", "restored"),
    [("", None), ("100", "100"), ("-2147483648", LOWEST_COST), ("2147483648", None), ("١٢", None), ("x" * 99, None)],
)
async def test_a_cost_that_another_term_left_is_taken_back(noted, restored):
    """Its leader was stopped between cost and scale; what anybody may have noted is no reason to fail."""
    made = await deployment()
    await made.write_cost(B, LOWEST_COST, **{FORMER_COST: noted})
    await made.pass_time(LEFT_BEHIND_S, step_s=10.0)
    assert made.cost(B) == LOWEST_COST  # its pod may be leaving by that term's scale
    await made.pass_time(SWEEP_EVERY_S, step_s=10.0)
    assert (made.cost(B), made.note(B)) == (restored, None)


async def test_a_low_cost_without_a_note_is_somebody_elses():
    """EDL takes back what it wrote and nothing else."""
    made = await deployment()
    await made.write_cost(B, LOWEST_COST)
    await made.pass_time(LEFT_BEHIND_S + 2 * SWEEP_EVERY_S, step_s=10.0)
    assert made.cost(B) == LOWEST_COST


async def test_a_sweep_writes_little_at_once_and_comes_to_all():
    """Some each minute."""
    scene = IdleScene()
    names = [f"p{number:02}" for number in range(2 * MOST_AT_ONCE)]
    for name in names:
        await scene.add(name, {DELETION_COST: LOWEST_COST, FORMER_COST: ""})
    costs = DeletionCosts(scene.api, Cache(scene.server), clock=lambda: scene.now_unix_s)
    left = []
    for _ in range(4):
        await costs.sweep()
        pods = scene.server.all(PODS)
        left.append(sum(FORMER_COST in raw["metadata"].get("annotations", {}) for raw in pods))
        scene.now_unix_s += SWEEP_EVERY_S
    assert left == [2 * MOST_AT_ONCE, MOST_AT_ONCE, 0, 0]


async def test_the_end_of_a_term_takes_its_cost_back():
    """`run` is cancelled between cost and scale: at a rollout, say."""
    made = await deployment()
    await made.write_cost(B, "7")
    await made.until_lowered(B, web_5d9_b=90)
    assert (made.cost(B), made.note(B)) == (LOWEST_COST, "7")
    running = asyncio.ensure_future(made.scene.reclaimer.run())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (made.left(), made.cost(B), made.note(B)) == (made.names, "7", None)


async def test_a_cost_that_somebody_else_has_written_meanwhile_is_theirs():
    """The Deployment keeps all its pods, that pod is told, and only EDL's note goes."""
    made = await deployment()
    await made.until_lowered(B, web_5d9_b=90)
    await made.write_cost(B, "500")
    await made.pass_time(SETTLES_S + 3, step_s=1.0, web_5d9_b=90)
    assert (made.left(), made.cost(B), made.note(B)) == (made.names, "500", None)
    assert made.scene.said("IdleGpusKept") == [B]


async def test_a_cost_that_is_written_at_the_instant_of_its_return_is_theirs():
    """The write back carries the version that was read, and is tried again."""
    made = await deployment()
    await made.until_lowered(B, web_5d9_b=90)
    get, raced = made.scene.api.get, []

    async def written_meanwhile(kind, name, **words):
        found = await get(kind, name, **words)
        if kind == PODS and not raced:
            raced.append(name)
            await made.write_cost(name, "500")
        return found

    made.scene.api.get = written_meanwhile
    await made.pass_time(3, step_s=1.0, web_5d9_b=None)
    assert (raced, made.cost(B), made.note(B)) == ([B], "500", None)


async def test_a_pod_in_whose_place_another_left_is_not_counted_and_gets_its_cost_back():
    """A sibling was deleted by hand amid the scale: the idle pod stays, and is not the next to leave."""
    made = await deployment()
    await made.until_lowered(B, web_5d9_b=90)
    while (await made.scene.api.get(DEPLOYMENTS, "web", namespace="nb"))["spec"]["replicas"] == 3:
        made.scene.report(**{B: 90})
        await made.scene.tick(1.0)
    await made.scene.api.delete(PODS, "web-5d9-c", namespace="nb", grace_s=0)
    await made.pass_time(LEAVES_WITHIN_S - 5, step_s=5.0, web_5d9_b=90)
    assert (made.cost(B), made.scene.said("IdleGpusKept")) == (LOWEST_COST, [])
    await made.pass_time(10, step_s=5.0, web_5d9_b=90)
    assert (made.left(), made.cost(B), made.note(B)) == (["web-5d9-a", B], None, None)
    assert (made.scene.said("IdleGpusKept"), made.scene.said("IdleGpusGivenBack")) == ([B], [])
    pages = made.scene.metrics.render().decode()
    assert not any(
        line.startswith("edl_idle_gpus_given_back_total") and float(line.split()[-1]) for line in pages.splitlines()
    )


async def test_a_deployment_that_does_not_settle_costs_few_calls():
    """Its pods are looked at by the watch alone."""
    made = await deployment()
    await made.ready("web-5d9-c", is_ready=False)
    await made.pass_time(NOTICE_S, web_5d9_b=90, web_5d9_a=90)
    get, asked = made.scene.api.get, []

    async def counted(kind, name, **words):
        asked.append(name)
        return await get(kind, name, **words)

    made.scene.api.get = counted
    for _ in range(40):
        made.scene.report(**{B: 90, "web-5d9-a": 90})
        await made.scene.tick(1.0)
    assert asked == []


def test_each_refusal_doubles_the_pause_up_to_a_bound():
    """What is refused for ever costs one try in 80 minutes; a pause of another pod is its own."""
    now_s, lasted = [0.0], []
    pauses = PodPauses(clock=lambda: now_s[0])
    for _ in range(5):
        pauses.add_refused("u")
        start_s = now_s[0]
        while "u" in pauses:
            now_s[0] += 60.0
            pauses.drop_ended()
        lasted.append((now_s[0] - start_s) / 60.0)
    assert lasted == [10, 20, 40, 80, 80]
    pauses.add_refused("v")
    now_s[0] += 600.0
    pauses.drop_ended()
    assert "v" not in pauses
