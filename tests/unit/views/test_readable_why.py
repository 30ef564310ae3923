"""What a viewer may read of the planner's answer: nothing that names or measures what others have (ADR 0286)."""

import json
from dataclasses import replace

import pytest

from autoscaler.domain import Policy
from autoscaler.planner.counterfactual import ChangeKind, PlanInputs, explain
from autoscaler.views.documents import EVERYTHING, WITHHELD, Rights
from autoscaler.views.pages.job_page_view import Outlook, WhyView
from autoscaler.views.planning.readable_why import OF_NODES, OF_THE_JOB, readable_why
from autoscaler.views.planning.why import why_content
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node

SECRET = "secret/hidden"
OWN = Rights(namespaces=frozenset({"team"}), can_read_nodes=False, can_plan=False)
OWN_AND_NODES = replace(OWN, can_read_nodes=True)
ALL_BUT_PLANS = Rights(namespaces=None, can_read_nodes=True, can_plan=False)


@pytest.fixture(scope="module")
def whole():
    """Two jobs share two nodes; what would help one of them names the other, and the nodes."""
    cluster = MemoryCluster(
        [node("rack-7", 4_000), node("rack-8", 2_500)], [job("team/a", high=9), job(SECRET, high=9)]
    )
    driver = Driver(cluster, Policy())
    driver.settle()
    inputs = PlanInputs(view=cluster.view(history=driver.history), policy=driver.policy, now_s=cluster.now())
    found = explain(inputs, "team/a")
    outlook = Outlook(bottleneck="FairShare", message=f"the fair share of {SECRET}", target=2, wait_s=None)
    return WhyView(answer=why_content(found, inputs.job("team/a")), outlook=outlook, at_s=inputs.now_s)


def text_of(why):
    return json.dumps([why.answer, why.problem, None if why.outlook is None else why.outlook.message])


def kinds_of(why):
    return {change["kind"] for one in why.answer["answers"] for change in one["changes"]}


def test_the_whole_answer_names_others(whole):
    """Else the other tests would prove nothing."""
    assert "secret" in text_of(whole)
    assert "rack-8" in text_of(whole)
    assert kinds_of(whole) >= {ChangeKind.RESOURCE, ChangeKind.NODES, ChangeKind.WEIGHT}
    assert readable_why(whole, EVERYTHING) is whole


def test_who_reads_one_namespace_finds_no_name_of_another(whole):
    found = readable_why(whole, OWN)
    assert "secret" not in text_of(found)
    assert "rack-" not in text_of(found)
    assert kinds_of(found) == kinds_of(whole) & OF_THE_JOB
    assert found.is_part


def test_who_may_list_nodes_is_told_of_nodes_and_not_of_what_is_on_them(whole):
    found = readable_why(whole, OWN_AND_NODES)
    assert "secret" not in text_of(found)
    assert kinds_of(found) == kinds_of(whole) & (OF_THE_JOB | OF_NODES)


def test_who_reads_everything_but_the_policy_is_told_all_but_it(whole):
    found = readable_why(whole, ALL_BUT_PLANS)
    assert found.answer["decision"] == whole.answer["decision"]
    assert kinds_of(found) == kinds_of(whole) - {ChangeKind.HEADROOM}


def test_why_there_is_no_answer_may_name_others_too():
    found = readable_why(WhyView(answer=None, problem=f"{SECRET} cannot be read"), OWN)
    assert found == WhyView(answer=None, problem=WITHHELD)


def test_every_kind_of_change_is_decided():
    """A new kind is told to nobody but those who may plan, until it stands in one of the sets."""
    undecided = set(ChangeKind) - OF_THE_JOB - OF_NODES
    assert undecided == {ChangeKind.RESOURCE, ChangeKind.HEADROOM}
