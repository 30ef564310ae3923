"""Jobs' pages of a cluster tell what would give a job more: as `edl why` does, and to each what they may read."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from autoscaler.planner.counterfactual import PlanInputs, explain
from autoscaler.views.planning.why import why_content
from tests.harness.cluster_page_stage import POLICY, PageStage
from tests.harness.waiting import BUDGET_S

JOB = "/jobs/red/digits"


@pytest.fixture
async def stage():
    async with AsyncExitStack() as stack:
        made = PageStage()
        await made.serve(stack, POLICY)
        yield made


async def why_of(stage, token):
    async with asyncio.timeout(BUDGET_S):
        while True:
            status, text = await stage.get(f"/api/job{JOB}", token)
            assert status == 200
            found = json.loads(text)["why"]
            if found is None or not found["is_pending"]:
                return found
            await asyncio.sleep(0.01)


async def test_the_answer_is_that_of_the_command_field_by_field(stage):
    """Of the same snapshot: the decision, and the same counterfactuals in the same order."""
    shown = await why_of(stage, "planner")
    snapshot = await stage.kept(stage.api, "test")
    inputs = PlanInputs(view=snapshot.view, policy=snapshot.policy, now_s=snapshot.now_s)
    (job,) = inputs.view.jobs
    assert shown["answer"] == json.loads(json.dumps(why_content(explain(inputs, job.name), job)))
    assert shown["answer"]["answers"], "nothing was compared"
    assert (shown["at_s"], shown["is_part"], shown["problem"]) == (snapshot.now_s, False, "")
    _, page = await stage.get(JOB, "planner")
    for one in shown["answer"]["answers"]:
        assert f"<b>{one['size']} trainers</b> with {one['changes'][0]['words']}" in page
    assert "Planned at <time" in page


async def test_who_reads_the_namespace_alone_is_told_of_the_job_alone(stage):
    """They plan nothing by themselves (`what-if`), and see what would help as far as it tells of nobody else."""
    whole, part = await why_of(stage, "planner"), await why_of(stage, "team")
    assert stage.read == 1
    assert part["is_part"]
    assert part["outlook"] is None
    assert set(part["answer"]["decision"]).isdisjoint({"message", "limit", "share", "held_up_by"})
    assert part["answer"]["decision"]["target"] == whole["answer"]["decision"]["target"]
    assert part["answer"]["answers"] == [one for one in whole["answer"]["answers"] if is_of_the_job(one)]
    status, page = await stage.get(JOB, "team")
    assert status == 200
    assert "you may not read the whole cluster" in page


def is_of_the_job(answer):
    return {one["kind"] for one in answer["changes"]} <= {"Max", "Time", "Weight", "Priority", "Quota", "Efficiency"}


async def test_a_hundred_looks_cost_one_answer(stage):
    found = await asyncio.gather(*(stage.get(JOB, "planner") for _ in range(30)))
    await why_of(stage, "planner")
    await asyncio.gather(*(stage.get(JOB, "admin") for _ in range(30)))
    assert {status for status, _ in found} == {200}
    assert stage.read == 1


async def test_a_page_without_a_policy_explains_nothing():
    async with AsyncExitStack() as stack:
        stage = PageStage()
        await stage.serve(stack, None)
        assert await why_of(stage, "planner") is None
        assert stage.read == 0
