"""The loop on a cluster in virtual time: it starts, shrinks, grows back, and stands still when it must."""

import asyncio
from dataclasses import replace

import pytest

from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.domain import DeletePod, JobState, Policy, Reason
from autoscaler.errors import InvalidViewError, TemporaryError
from autoscaler.loop import BURST_GAP_S, DEBOUNCE_S, JOURNAL_LIMIT, Loop
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node, web


class Schedule(MemoryCluster):
    """Lets events happen at their instants while the loop waits, and ends the loop at the last one."""

    def __init__(self, *args, events=(), end_s=1_100.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.events = sorted(events, key=lambda event: event[0])
        self.end_s = end_s
        self.observed = 0

    async def observe(self):
        self.observed += 1
        return await super().observe()

    def advance(self, seconds):
        """No further than the next instant at which something happens: so a wait ends with its change."""
        instants = [self.now_s + seconds, *(at_s for at_s, _ in self.events), *self.leaves_at_s.values()]
        super().advance(max(0.0, min(instants) - self.now_s))
        while self.events and self.events[0][0] <= self.now_s:
            self.events.pop(0)[1](self)
        self.bind_others()
        self.check_capacity()
        if self.now_s >= self.end_s:
            raise asyncio.CancelledError


async def run(loop):
    with pytest.raises(asyncio.CancelledError):
        await loop.run()


def sizes(cluster):
    return {name: sum(p.job == name and p.role == "trainer" for p in cluster.pods.values()) for name in cluster.jobs}


async def test_jobs_share_a_cluster_give_way_to_the_web_and_take_the_room_back():
    """The web rises and falls: two jobs of weight 2 to 1 fill 16 cpu, 6 web pods come and go."""
    names = [f"w{number}" for number in range(6)]
    events = [
        (1_020.0, lambda c: c.put(*(web(name, created_at_s=1_020.0) for name in names))),
        (1_050.0, lambda c: [c.lose(name) for name in names]),
    ]
    cluster = Schedule(
        [node(f"n{number}") for number in range(4)],
        [job("big", high=16, weight=200), job("small", high=16, weight=100)],
        events=events,
    )
    seen = {}
    loop = Loop(cluster, CALM, listener=lambda step: seen.update({cluster.now_s: sizes(cluster)}))
    await run(loop)
    before = next(sizes_then for at_s, sizes_then in reversed(seen.items()) if at_s < 1_020.0)
    during = next(sizes_then for at_s, sizes_then in reversed(seen.items()) if at_s < 1_050.0)
    assert sum(before.values()) == 16
    assert before["big"] in {10, 11}
    assert sum(during.values()) == 10
    assert during["big"] in {6, 7}
    assert sizes(cluster) == before


async def test_web_pod_waits_for_no_more_than_the_drain():
    """A pod that is judged unschedulable is bound as soon as one trainer, and one only, has left."""
    cluster = Schedule(
        [node("a")],
        [job("j")],
        events=[(1_010.0, lambda c: c.put(web("w", created_at_s=1_010.0)))],
        end_s=1_030.0,
        drain_s=0.5,
    )
    await run(Loop(cluster, CALM))
    deletions = [action for action, _ in cluster.applied if isinstance(action, DeletePod)]
    assert [action.beneficiary for action in deletions] == ["w"]
    assert cluster.pods["w"].node == "a"


async def test_frozen_policy_decides_and_writes_nothing():
    """Observe before trusting."""
    cluster = Schedule([node("a")], [job("j")])
    loop = Loop(cluster, replace(CALM, is_frozen=True))
    step = await loop.run_pass()
    assert step.plan.actions
    assert step.applied == ()
    assert cluster.applied == []


async def test_victim_of_a_pod_that_has_found_its_place_stays():
    """Between plan and write the pod was bound elsewhere: nobody leaves for it (revalidation)."""

    class Moving(MemoryCluster):
        is_moving = False

        async def observe(self):
            view = self.view()
            if self.is_moving:
                self.put(node("b"))
                self.bind_others()
            return view

    cluster = Moving([node("a")], [job("j")])
    loop = Loop(cluster, CALM)
    for _ in range(3):
        await loop.run_pass()
    cluster.put(web("w"))
    cluster.is_moving = True
    step = await loop.run_pass()
    assert any(isinstance(action, DeletePod) for action in step.plan.actions)
    assert step.applied == ()
    assert cluster.pods["w"].node == "b"


async def test_temporary_error_is_waited_out():
    """The loop goes on after the pause that the error asks for."""

    class Flaky(Schedule):
        async def observe(self):
            view = await super().observe()
            if self.observed == 1:
                raise TemporaryError("the API server is away", retry_after_s=2.0)
            return view

    cluster = Flaky([node("a")], [job("j")], end_s=1_010.0)
    await run(Loop(cluster, CALM))
    assert sizes(cluster) == {"j": 4}


async def test_contradictory_view_ends_the_loop_with_its_story():
    """A bug in an adapter is not planned around."""

    class Broken(MemoryCluster):
        async def observe(self):
            return replace(self.view(), nodes=(node("a"), node("a")))

    with pytest.raises(InvalidViewError, match="a appears twice"):
        await Loop(Broken(), CALM).run()


async def test_failed_write_is_tried_again_within_a_second():
    """FAILED changes nothing in the view, so no event would wake the loop."""

    class Failing(Schedule):
        failures = 1

        async def apply(self, action):
            if self.failures:
                self.failures -= 1
                return WriteOutcome(result=WriteResult.FAILED, message="no disk")
            return await super().apply(action)

    cluster = Failing([node("a")], [job("j")], end_s=1_004.0)
    await run(Loop(cluster, CALM))
    assert sizes(cluster) == {"j": 4}


async def test_quiet_cluster_is_planned_once_a_resync():
    """No busy loop: 90 s of nothing are some ten plans."""
    cluster = Schedule([node("a")], [job("j", high=4)])
    await run(Loop(cluster, CALM))
    assert cluster.observed < 30


async def test_journal_keeps_news_only_and_is_bounded():
    """Status shows why a size changed, not that it was looked at again."""
    cluster = Schedule([node("a")], [job("j", high=4)], end_s=1_060.0)
    loop = Loop(cluster, Policy())
    await run(loop)
    reasons = [entry.decision.reason for entry in loop.journal]
    assert reasons[0] is Reason.STARTED
    assert len(reasons) <= 5
    assert loop.journal.maxlen == JOURNAL_LIMIT
    assert loop.last_plan is not None


async def test_job_that_is_over_gives_everything_back():
    """What is left of a finished job leaves, servers and master too."""
    cluster = Schedule(
        [node("a")],
        [job("j", servers=1, master_milli=100)],
        events=[(1_020.0, lambda c: c.put(replace(c.jobs["j"], state=JobState.OVER)))],
        end_s=1_040.0,
    )
    await run(Loop(cluster, CALM))
    assert cluster.pods == {}


async def test_one_event_is_planned_at_once_and_a_burst_as_one():
    """A single event waits for thirty milliseconds of silence; of a burst nobody waits for longer than a tenth."""
    alone, burst_s = 1_010.0, [1_020.0 + 0.02 * number for number in range(8)]
    came = [(at_s, f"n{number}") for number, at_s in enumerate([alone, *burst_s])]
    events = [(at_s, lambda c, name=name: c.put(node(name))) for at_s, name in came]
    cluster = Schedule([node("a")], [job("j", high=2)], events=events, end_s=1_030.0)
    passes_s = []
    await run(Loop(cluster, CALM, listener=lambda _: passes_s.append(cluster.now_s)))
    assert [at_s for at_s in passes_s if alone <= at_s < alone + 1] == pytest.approx([alone + BURST_GAP_S])
    of_burst_s = [at_s for at_s in passes_s if burst_s[0] <= at_s < burst_s[0] + 1]
    assert of_burst_s == pytest.approx([burst_s[0] + DEBOUNCE_S, burst_s[-1] + BURST_GAP_S])
