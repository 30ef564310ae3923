"""`python -m bench.planner.revalidation`: how many trainers stay since their beneficiary is checked again (ADR 0160).

Scenarios of the experiments, in the simulator, where a plan takes `PLAN_S` and each row of writes `ROW_S`; and one
more, `flaps`, in which every second rise of the web is taken back `FLAP_S` later.  Once the loop sees at its rechecks
what has happened meanwhile, once it sees what it has planned on, as it was before.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from functools import partial
from typing import Final

from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.clusters.simulated import SimDeployment, SimulatedCluster, run_loop
from autoscaler.domain import (
    Action,
    ClusterView,
    DeletePod,
    Job,
    JobName,
    MasterSpec,
    Node,
    NodeName,
    Policy,
    Resources,
    Shape,
    TrainerSpec,
)
from autoscaler.loop import Loop, LoopPass
from experiments.arms.ours import make_policy
from experiments.arms.pass_setup import PassSetup
from experiments.running.tasks import Selection, list_tasks
from experiments.scenarios.loading import find_scenario
from experiments.scenarios.node_mixes import read_mixes

FLAPS: Final = "flaps"
SCENARIOS: Final = (FLAPS, "web-spike", "square-wave", "three-priorities", "node-loss")
FLAP_S: Final = 0.2
RISES: Final = 40
PASSES: Final = 3
PLAN_S: Final = 0.3  # of 10,000 nodes and 1,000 jobs; of a busy machine with fewer
ROW_S: Final = 0.1


class Late:
    """`clusters.port.Cluster` around the simulated one: time passes while a plan is made and written."""

    def __init__(self, inner: SimulatedCluster, *, is_asked_again: bool) -> None:
        self._inner = inner
        self._is_asked_again = is_asked_again
        self._planned_on: ClusterView | None = None

    def now(self) -> float:
        return self._inner.now()

    async def observe(self) -> ClusterView:
        if self._planned_on is None:
            self._planned_on = await self._inner.observe()
            self._next_s = PLAN_S
            return self._planned_on
        self._inner.run_until(self._inner.now() + self._next_s)
        self._next_s = ROW_S
        return await self._inner.observe() if self._is_asked_again else self._planned_on

    async def apply(self, action: Action) -> WriteOutcome:
        return await self._inner.apply(action)

    async def changed(self, timeout_s: float) -> bool:
        self._planned_on = None
        return await self._inner.changed(timeout_s)


def flap(number: int, *, is_asked_again: bool) -> Counter[str]:
    """Trainers that were told to leave while a web rises forty times, and every second time falls back at once."""
    nodes = [
        Node(name=NodeName(f"n{at}"), allocatable=Resources(cpu_milli=16_000, memory_bytes=2**36)) for at in range(20)
    ]
    cluster = SimulatedCluster(nodes, seed=number)
    cluster.add_deployment(SimDeployment(name="web", shape=shape_of(2_000), replicas=4))
    for at in range(4):
        trainer = TrainerSpec(shape=shape_of(1_000), min_replicas=1, max_replicas=200)
        cluster.submit(Job(name=JobName(f"j{at}"), trainer=trainer, master=MasterSpec(shape=shape_of(100))))
    for rise in range(RISES):
        at_s = 200.0 + 20.0 * rise + 0.37 * number
        cluster.at(at_s, partial(cluster.scale, "web", 14))
        cluster.at(at_s + (FLAP_S if rise % 2 else 10.0), partial(cluster.scale, "web", 4))
    return tell(cluster, Policy(), 200.0 + 20.0 * RISES, is_asked_again=is_asked_again)


def play(name: str, number: int, *, is_asked_again: bool) -> Counter[str]:
    """Trainers and servers that were told to leave, by cause, in one pass."""
    scenario = find_scenario(name)
    selection = Selection(arm="ours-planner", mix=None, passes=number, seed=1)
    task = list_tasks(scenario, read_mixes(), selection)[number - 1]
    stage = PassSetup(task.setting)
    for submission in stage.submissions:
        stage.at(submission.at_s, partial(stage.cluster.submit, submission.job, submission.work))
    return tell(stage.cluster, make_policy(task.setting), stage.end_s, is_asked_again=is_asked_again)


def tell(cluster: SimulatedCluster, policy: Policy, until_s: float, *, is_asked_again: bool) -> Counter[str]:
    """Run the loop to the end and return by cause how many pods it told to leave."""
    told: Counter[str] = Counter()

    def note(step: LoopPass) -> None:
        for action, outcome in step.applied:
            if isinstance(action, DeletePod) and outcome.result is WriteResult.DONE:
                told[action.cause.value] += 1

    loop = Loop(Late(cluster, is_asked_again=is_asked_again), policy, listener=note)
    asyncio.run(run_loop(loop, cluster, until_s))
    return told


def shape_of(cpu_milli: int) -> Shape:
    return Shape(requests=Resources(cpu_milli=cpu_milli, memory_bytes=2**28))


def main() -> None:
    for name in sys.argv[1:] or SCENARIOS:
        for is_asked_again in (False, True):
            told: Counter[str] = Counter()
            for number in range(1, PASSES + 1):
                one = partial(flap) if name == FLAPS else partial(play, name)
                told += one(number, is_asked_again=is_asked_again)
            found = {"scenario": name, "asked_again": is_asked_again, "told_to_leave": told.total(), "by_cause": told}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
