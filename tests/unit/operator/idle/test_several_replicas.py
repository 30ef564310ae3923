"""GPUs of owners with several replicas given back: only the idle pod leaves, and the declared number stays (A12)."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.kinds import PODS, STATEFUL_SETS
from autoscaler.clusters.kubernetes.objects.labels import DELETION_COST
from autoscaler.errors import ClusterError
from autoscaler.operator.idle.deletion_costs import LOWEST_COST, SETTLES_S
from autoscaler.operator.idle.owner_scaling import LONGEST_TRY_S
from tests.unit.operator.idle.idle_scene import NOTICE_S
from tests.unit.operator.idle.replicas_scene import deployment, replicas_of


async def test_of_a_deployment_the_idle_pod_leaves():
    """Neither the oldest nor the first by name: its deletion cost says so before the scale does."""
    made = await deployment()
    await made.pass_time(2 * NOTICE_S, web_5d9_b=90)
    assert made.left() == ["web-5d9-a", "web-5d9-c"]
    assert [reason for reason, _, _ in made.scene.events.said] == ["IdleGpus", "IdleGpusGivenBack"]
    assert "its Deployment was scaled to 2" in made.scene.events.said[-1][2]
    assert [made.cost(name) for name in made.left()] == [None, None]


@pytest.mark.parametrize(("minimum", "left"), [("0", 1), ("1", 1), ("2", 3)])
async def test_a_deployment_keeps_the_number_that_it_declared(minimum, left):
    """Two are needed: with one to spare none leaves, since it would help nobody."""
    made = await deployment(minimum=minimum, waits=2)
    await made.pass_time(2 * NOTICE_S, web_5d9_a=90, web_5d9_b=80, web_5d9_c=None)
    assert len(made.left()) == left
    assert "web-5d9-c" in made.left()
    assert made.scene.said("IdleGpusGivenBack") == (["web-5d9-a", "web-5d9-b"] if left == 1 else [])


async def test_a_deployment_with_a_pod_that_is_not_ready_is_left_alone_for_a_while():
    """That pod would leave first, and the idle one keep its GPU."""
    made = await deployment()
    await made.ready("web-5d9-c", is_ready=False)
    await made.pass_time(NOTICE_S + LONGEST_TRY_S - 30, web_5d9_b=90)
    assert made.left() == made.names
    assert [made.cost(name) for name in made.names] == [None] * 3
    await made.ready("web-5d9-c")
    await made.pass_time(60, web_5d9_b=90)
    assert made.left() == ["web-5d9-a", "web-5d9-c"]


async def test_a_deployment_that_does_not_settle_blocks_nobody():
    """After some minutes its pod is told that it is kept, and others are asked."""
    made = await deployment()
    await made.ready("web-5d9-c", is_ready=False)
    await made.pass_time(NOTICE_S + LONGEST_TRY_S + 80, web_5d9_b=90)
    assert made.scene.said("IdleGpusKept") == ["web-5d9-b"]
    assert made.scene.use[1][0].after_s is None


@pytest.mark.parametrize("former", [None, "100"])
async def test_a_cost_that_nothing_came_of_is_taken_back(former):
    """The pod works again between the cost and the scale: it stays, with what its owner had written."""
    made = await deployment()
    change = {"metadata": {"annotations": {DELETION_COST: former}}}
    await made.scene.api.patch(PODS, "web-5d9-b", change, namespace="nb")
    await made.pass_time(NOTICE_S, web_5d9_b=90)
    while made.cost("web-5d9-b") != LOWEST_COST:
        await made.pass_time(1, step_s=1.0, web_5d9_b=90)
    assert made.left() == made.names
    await made.pass_time(SETTLES_S + 10, step_s=2.0, web_5d9_b=None)
    assert (made.left(), made.cost("web-5d9-b")) == (made.names, former)


async def test_a_cost_that_cannot_be_taken_back_is_tried_again():
    """The API server's refusal ends nothing."""
    made = await deployment()
    patch, refused = made.scene.api.patch, []

    async def refuse(kind, name, change, **words):
        if change.get("metadata", {}).get("annotations", {}).get(DELETION_COST, "") is None and not refused:
            refused.append(name)
            raise ClusterError("try again")
        return await patch(kind, name, change, **words)

    made.scene.api.patch = refuse
    await made.pass_time(NOTICE_S, web_5d9_b=90)
    while made.cost("web-5d9-b") is None:
        await made.pass_time(1, step_s=1.0, web_5d9_b=90)
    await made.pass_time(10, step_s=1.0, web_5d9_b=None)
    assert (refused, made.cost("web-5d9-b")) == (["web-5d9-b"], None)


async def test_another_pod_that_would_leave_as_well_keeps_the_deployment():
    """Somebody else gave it the lowest cost: nobody knows which of the two would leave."""
    made = await deployment()
    change = {"metadata": {"annotations": {DELETION_COST: LOWEST_COST}}}
    await made.scene.api.patch(PODS, "web-5d9-c", change, namespace="nb")
    await made.pass_time(2 * NOTICE_S, web_5d9_b=90)
    assert made.left() == made.names
    assert made.scene.said("IdleGpusKept") == ["web-5d9-b"]


async def test_a_scale_that_somebody_changed_meanwhile_is_not_written_over():
    """The write carries the version that was read."""
    made = await deployment()
    get = made.scene.api.get

    async def scaled_meanwhile(kind, name, **words):
        found = await get(kind, name, **words)
        if words.get("subresource") is Subresource.SCALE:
            change = {"metadata": {"annotations": {"seen": str(made.scene.now_unix_s)}}}
            await made.scene.api.patch(kind, name, change, namespace="nb")
        return found

    made.scene.api.get = scaled_meanwhile
    await made.pass_time(2 * NOTICE_S, web_5d9_b=90)
    assert made.left() == made.names


@pytest.mark.parametrize(
    ("minutes", "minimum", "waits", "left"),
    [
        ({"web_2": 90}, "0", 1, [0, 1]),
        ({"web_1": 90}, "0", 1, [0, 1, 2]),  # the highest works: it would be the one to leave
        ({"web_2": 60, "web_1": 90}, "0", 1, [0, 1]),
        ({"web_2": 60, "web_1": 90}, "0", 2, [0]),
        ({"web_2": 60, "web_1": 90}, "2", 2, [0, 1, 2]),
        ({"web_2": 20, "web_1": 90}, "0", 1, [0, 1, 2]),  # the highest is not due
    ],
)
async def test_of_a_stateful_set_only_the_highest_leave(minutes, minimum, waits, left):
    """Down to the declared number, and only if those that leave are enough."""
    made = await replicas_of(STATEFUL_SETS, minimum=minimum, waits=waits)
    await made.pass_time(2 * NOTICE_S, **minutes)
    assert made.left() == [f"web-{number}" for number in left]


async def test_a_kept_pod_of_a_stateful_set_keeps_those_below_it():
    """Its controller could not spare them without it."""
    made = await replicas_of(STATEFUL_SETS)
    await made.scene.keep("web-2", 3_600)
    await made.pass_time(2 * NOTICE_S, web_2=90, web_1=90)
    assert made.left() == made.names


async def test_a_stateful_set_that_deletes_volumes_when_scaled_is_told_and_kept():
    """What is given back are GPUs, not somebody's files."""
    retention = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}
    made = await replicas_of(STATEFUL_SETS, **retention)
    await made.pass_time(2 * NOTICE_S, web_2=90)
    assert made.left() == made.names
    assert made.scene.said("IdleReclaimIgnored") == ["web-2"]
    assert "deletes volumes" in made.scene.events.said[0][2]


async def test_idle_pods_are_told_in_the_order_of_the_view():
    """By name, not as they leave: else each view would differ from the one before, and each plan be checked anew."""
    made = await replicas_of(STATEFUL_SETS)
    await made.pass_time(20, web_0=90, web_1=80, web_2=70)
    told = made.scene.use[1]
    assert [one.pod for one in told] == ["nb/web-0", "nb/web-1", "nb/web-2"]
    assert made.scene.view().idle_pods == told
