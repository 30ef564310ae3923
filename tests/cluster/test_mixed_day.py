"""A web service and training jobs on twenty nodes under the real kube-scheduler, in both modes of reclaim.

No test here knows which pod was the victim: the scheduler chooses, and the rules hold.  How fast all of it is stands in
`docs/reports/beside-the-scheduler.json` (`python -m tests.cluster.measure`).
"""

import pytest

from autoscaler.domain import Headroom, Reclaim, Resources, Shape
from tests.cluster.kwok_nodes import NodeShape
from tests.cluster.mixed_day import MixedDay, brisk
from tests.cluster.workloads import installed

NODES, CPU = 20, 8
JOBS, MAXIMUM, WEB = 4, 40, 20
CORE = 2 * JOBS  # a server and a master each
FULL = NODES * CPU - WEB - CORE
CLASS_WIDTH = MAXIMUM // 8
"""Trainers of one class: between them the scheduler sees no difference."""

HEADROOM = Headroom(
    shape=Shape(requests=Resources(cpu_milli=1_000, memory_bytes=2**27, extended=(("pods", 1),))), count=10
)


@pytest.fixture
def day_of(control_plane, api, namespace, nodes):
    """`day_of(policy)` is a day on twenty nodes."""
    with installed(control_plane, api):
        names = nodes(*[NodeShape(cpu=str(CPU), memory="64Gi")] * NODES)
        yield lambda policy: MixedDay(control_plane.kubeconfig, namespace, dict.fromkeys(names, CPU * 1_000), policy)


async def check(day, rise):
    """What holds after any rise; how long trainers wait for a node is measured, not promised."""
    assert rise.lost <= rise.pods, "two trainers were lost for one web pod"
    assert day.timeline.excess == []
    await day.wait("every trainer has a node", lambda: not day.timeline.without_node())


@pytest.mark.parametrize("reclaim", list(Reclaim))
async def test_the_web_rises_and_falls_and_training_gives_way_and_grows(day_of, reclaim):
    async with day_of(brisk(reclaim)) as day:
        await day.begin(jobs=JOBS, maximum=MAXIMUM, web=WEB, full=FULL)
        for pods in (1, 20):
            rise = await day.rise(pods)
            await check(day, rise)
            widest = 1 if reclaim is Reclaim.PLANNER else CLASS_WIDTH + 1
            await day.wait(
                f"the rest is training's, spread over {widest} at most",
                lambda left=FULL - pods, widest=widest: day.standing() == left and day.spread() <= widest,
            )  # one may be moving
            await day.fall(pods)
        await day.end()


@pytest.mark.parametrize("reclaim", list(Reclaim))
async def test_with_headroom_as_large_as_the_rise_nobody_waits(day_of, reclaim):
    async with day_of(brisk(reclaim, headroom=(HEADROOM,))) as day:
        await day.begin(jobs=JOBS, maximum=MAXIMUM, web=WEB, full=FULL - HEADROOM.count)
        rise = await day.rise(HEADROOM.count)
        await check(day, rise)
        assert (rise.first_verdict_s, rise.lost) == (None, 0)
        await day.wait("headroom is there again", lambda: day.standing() == FULL - 2 * HEADROOM.count)
        await day.end()


async def test_with_edl_stopped_the_scheduler_serves_the_web_from_the_largest_share(day_of):
    """The fail-safe of `reclaim: scheduler`: graded classes alone keep jobs of equal weight level."""
    async with day_of(brisk(Reclaim.SCHEDULER)) as day:
        await day.begin(jobs=JOBS, maximum=MAXIMUM, web=WEB, full=FULL)
        await day.stop_edl()
        for pods in (20, 5):
            rise = await day.rise(pods)
            await check(day, rise)
            assert rise.spread <= CLASS_WIDTH + 1
        taken = [pod for pod in day.timeline.told_since(0.0) if pod.is_preempted]
        left = [pod for pod in day.timeline.pods.values() if pod.role == "trainer" and pod.stands]
        assert all(pod.is_surplus for pod in taken)
        assert max(pod.priority for pod in taken) <= min(pod.priority for pod in left if pod.is_surplus) + 1
        await day.end()
