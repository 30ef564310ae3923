"""An operator that dies at any of its writes: the next one comes to the same end (ADR 0152).

A job whose trainers fail again and again: it fails after two real failures, or after one more when the crash has
forgotten one; never after fewer.  At its end nothing of it runs.
"""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from tests.harness.api_faults import FaultPlan, Killed, PerturbedApi, WriteFault
from tests.unit.operator.term import Term

LIMIT = 2
MOST_STEPS = 60
CALM_STEPS = 3  # between two failures


class Failing:
    """The story, with one fault at one write."""

    def __init__(self, plan):
        self.term = Term(
            spec={"runPolicy": {"backoffLimit": LIMIT}},
            around=lambda bench: PerturbedApi(bench.api, bench.server, plan),
        )
        self.failures = 0
        self.crashes = 0

    async def run(self):
        for number in range(MOST_STEPS):
            try:
                await self.term.step()
            except Killed:
                self.crashes += 1
                self.term.api.revive()
                self.term.lead()
            if number % CALM_STEPS == 0:
                self.fail_one()
            if self.is_over():
                return

    def fail_one(self):
        if self.term.told("Failed")[0] == "True" or self.term.told("Ready")[0] != "True":
            return
        for pod in self.term.server.all(PODS):
            name, metadata = pod["metadata"]["name"], pod["metadata"]
            if "-trainer-" in name and pod["status"].get("phase") == "Running" and "deletionTimestamp" not in metadata:
                self.term.bench.rest.end("team-a", name, code=1)
                self.failures += 1
                return

    def is_over(self):
        failed = self.term.told("Failed")[0] == "True"
        return failed and not self.term.server.all(PODS) and not self.term.server.all(DEPLOYMENTS)


async def whole_story():
    story = Failing(FaultPlan())
    await story.run()
    return story


async def test_without_a_fault_it_fails_after_as_many_failures_as_the_user_allows():
    story = await whole_story()
    assert story.is_over()
    assert story.failures == LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("fault", [WriteFault.KILLED_BEFORE, WriteFault.KILLED_AFTER, WriteFault.REPLY_LOST])
async def test_a_fault_at_any_write_changes_nothing_of_the_end(fault):
    writes = len((await whole_story()).term.api.writes)
    for number in range(writes):
        story = Failing(FaultPlan(writes={number: fault}))
        await story.run()
        told = (fault, number, story.term.api.writes[number], story.failures, story.term.status())
        assert story.is_over(), told
        assert LIMIT <= story.failures <= LIMIT + story.crashes, told
