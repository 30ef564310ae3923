"""What-if questions to the page of a cluster: who may ask, what an answer rests on, and that nobody else plans."""

import asyncio
import json
import time
from contextlib import AsyncExitStack

import pytest

from autoscaler.clusters.kubernetes.api.kinds import PODS
from tests.harness.cluster_page_stage import POLICY, PageStage
from tests.harness.waiting import BUDGET_S


@pytest.fixture
async def stage():
    async with AsyncExitStack() as stack:
        made = PageStage()
        await made.serve(stack, POLICY)
        yield made


async def test_who_may_list_what_a_plan_depends_on_is_answered(stage):
    """As `edl what-if` answers, by the policy of the ConfigMap, which the answer names with what is not known here."""
    _, form = await stage.get("/what-if", "planner")
    assert "<option>n1</option>" in form
    assert ">red/web</option>" in form
    status, text = await stage.get("/api/what-if/what-if?deployment=red/web&replicas=3", "planner")
    answer = json.loads(text)
    assert status == 200
    assert answer["problem"] == ""
    assert answer["answer"]["asked"] == ["3 replicas of red/web"]
    assert [one["name"] for one in answer["answer"]["jobs"]] == ["tj/red/digits"]
    (web,) = answer["answer"]["deployments"]
    assert (web["before"]["wanted"], web["after"]["wanted"]) == (1, 3)
    assert "the policy is that of ConfigMap edl-system/mine-policy" in answer["made_by"]
    assert "windows and pauses cannot be read here" in answer["made_by"]
    _, page = await stage.get("/what-if?remove=n1", "planner")
    assert "Planned from test; " in page


@pytest.mark.parametrize("token", ["admin", "team", "without-policy"])
async def test_who_may_not_list_all_of_it_is_refused(stage, token):
    """Neither the whole cluster without the planner's kinds, nor these with a part of it, nor all but the policy."""
    status, text = await stage.get("/api/what-if/what-if?remove=n1", token)
    assert status == 200
    answer = json.loads(text)
    assert answer["answer"] is None
    assert (answer["nodes"], answer["deployments"]) == ([], [])
    assert "edl what-if ask with your own rights" in answer["problem"]
    assert (await stage.get("/snapshot.json", token))[0] == 403
    assert stage.read == 0


async def test_pages_that_are_looked_at_plan_nothing(stage):
    """A hundred viewers who may plan cost no plan before one of them asks.  A job's page may (ADR 0277)."""
    for path in ("/", "/waiting", "/time", "/decisions"):
        status, _ = await stage.get(path, "planner")
        assert status == 200
    assert stage.read == 0


async def test_many_questions_read_the_cluster_once(stage):
    """Equal ones are one, different ones take turns, and what they rest on is read once for all."""
    before = stage.api.listed[PODS]
    asked = [f"/api/what-if/what-if?deployment=red/web&replicas={n % 3 + 2}" for n in range(9)]
    found = await asyncio.gather(*(stage.get(path, "planner") for path in asked))
    assert {status for status, _ in found} == {200}
    assert len({text for _, text in found}) == 3
    assert stage.api.listed[PODS] == before + 1


async def test_a_page_without_a_policy_plans_for_nobody():
    async with AsyncExitStack() as stack:
        stage = PageStage()
        await stage.serve(stack, None)
        _, text = await stage.get("/api/what-if/what-if?remove=n1", "planner")
        assert json.loads(text)["answer"] is None
        assert stage.read == 0


async def test_the_page_is_ready_once_views_of_all_objects_are_made(stage):
    """The first of its viewers waits for no listing of thousands of pods to be parsed."""
    async with asyncio.timeout(BUDGET_S):
        while not stage.page.is_warm:  # noqa: ASYNC110 - a thread makes them
            await asyncio.sleep(0.01)
    assert stage.page._sampler.rings.samples("hour", now_s=time.time())
