"""A job is suspended by an operator that dies at any of its writes: who needs whom is still there until the end.

Trainers finish their batches at servers that stand, servers commit with a master that stands, and the master goes last.
"""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from tests.harness.api_faults import FaultPlan, Killed, PerturbedApi, WriteFault
from tests.unit.operator.term import Term

START_STEPS = 12
MOST_STEPS = 40


class Suspended:
    """The story, with one fault at one write."""

    def __init__(self, plan):
        self.term = Term(around=lambda bench: PerturbedApi(bench.api, bench.server, plan))

    async def run(self):
        """The numbers of the first write of the suspension and of the first one after it."""
        for _ in range(START_STEPS):
            await self.step()
        first = len(self.term.api.writes)
        self.term.bench.edit(runPolicy={"suspend": True})
        await self.step_until(self.has_left)
        after = len(self.term.api.writes)
        self.term.bench.edit(runPolicy={"suspend": False})
        await self.step_until(lambda: self.term.told("Ready")[0] == "True")
        return first, after

    async def step_until(self, condition):
        for _ in range(MOST_STEPS):
            await self.step()
            if condition():
                return
        raise AssertionError(f"not within {MOST_STEPS} steps: {self.term.status()}")

    async def step(self):
        try:
            await self.term.step()
        except Killed:
            self.term.api.revive()
            self.term.lead()

    def has_left(self):
        """What the order of the suspension is, is true after each of its steps."""
        servers, masters = self.pods("server"), self.term.server.all(DEPLOYMENTS)
        assert not (self.pods("trainer") and any("deletionTimestamp" in pod["metadata"] for pod in servers))
        assert masters or not servers
        return self.term.told("Suspended")[0] == "True" and not (self.term.server.all(PODS) or masters)

    def pods(self, role):
        return [pod for pod in self.term.server.all(PODS) if f"-{role}-" in pod["metadata"]["name"]]


async def test_all_pods_leave_in_their_order_and_the_job_comes_back():
    assert await Suspended(FaultPlan()).run()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [WriteFault.KILLED_BEFORE, WriteFault.KILLED_AFTER, WriteFault.REPLY_LOST])
async def test_a_fault_at_any_write_changes_nothing_of_the_order(fault):
    first, after = await Suspended(FaultPlan()).run()
    for number in range(first, after):
        story = Suspended(FaultPlan(writes={number: fault}))
        assert await story.run(), (fault, number, story.term.api.writes[number])
