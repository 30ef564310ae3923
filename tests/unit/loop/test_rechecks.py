"""The loop asks again at the moment of its writes: what arrives while it plans or writes counts (ADR 0160)."""

import asyncio
from dataclasses import replace

from autoscaler.domain import DeletePod, PodPhase
from autoscaler.loop import CONCURRENT_WRITES, Loop
from tests.harness import virtual_time
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node, web

WRITE_S = 0.1


class Arriving(MemoryCluster):
    """What `meanwhile` does arrives as bytes do: turns of the event loop after the view was taken."""

    meanwhile = None

    async def observe(self):
        view = await super().observe()
        if self.meanwhile is not None:
            work, self.meanwhile = self.meanwhile, None
            self.arriving = asyncio.create_task(self._arrive(work))
        return view

    async def _arrive(self, work):
        for _ in range(3):
            await asyncio.sleep(0)
        work()

    async def apply(self, action):
        await asyncio.sleep(WRITE_S)
        return await super().apply(action)


async def grown(nodes, count):
    """A job has filled the nodes, and the web wants `count` pods of one CPU."""
    cluster = Arriving([node(f"n{number}") for number in range(nodes)], [job("j", high=4 * nodes)])
    loop = Loop(cluster, CALM)
    while len(cluster.pods) < 4 * nodes + 1:
        await loop.run_pass()
        cluster.advance(20.0)
    cluster.put(*(web(f"w{number:02}", created_at_s=cluster.now_s) for number in range(count)))
    return cluster, loop


def place(cluster, names):
    for name in names:
        cluster.put(replace(cluster.pods[name], nominated_node="elsewhere"))


def leaving(cluster):
    return sum(pod.phase is PodPhase.TERMINATING for pod in cluster.pods.values())


def test_what_arrives_while_a_plan_is_made_counts_before_the_first_write():
    """Planning blocks the event loop: the view that stood before it is not asked a second time."""

    async def main():
        cluster, loop = await grown(1, 2)
        cluster.meanwhile = lambda: place(cluster, ["w00", "w01"])
        step = await loop.run_pass()
        return cluster, step

    cluster, step = virtual_time.run(main())
    assert sum(isinstance(action, DeletePod) for action in step.plan.actions) == 2
    assert (step.applied, leaving(cluster)) == ((), 0)


def test_what_arrives_between_two_rows_of_writes_counts_for_the_later_ones():
    """Thirty web pods are placed while the first sixteen trainers are told to leave: the others stay."""

    async def main():
        cluster, loop = await grown(8, 30)
        asyncio.get_running_loop().call_later(
            WRITE_S / 2, lambda: place(cluster, [name for name in list(cluster.pods) if name.startswith("w")])
        )
        step = await loop.run_pass()
        return cluster, step

    cluster, step = virtual_time.run(main())
    assert sum(isinstance(action, DeletePod) for action in step.plan.actions) == 30
    assert leaving(cluster) == len(step.applied) == CONCURRENT_WRITES
