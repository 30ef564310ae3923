"""What the next plan holds, as the page shows it."""

from autoscaler.page.content.planner_questions import outlook_of
from autoscaler.planner import plan
from autoscaler.planner.counterfactual import PlanInputs
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node


def test_jobs_wait_in_the_order_of_the_plan():
    jobs = [job("b", low=6, submitted_at_s=1.0), job("a", low=5, submitted_at_s=2.0)]
    view = MemoryCluster([node("n")], jobs).view()
    inputs = PlanInputs(view=view, policy=CALM, now_s=view.observed_at_s)
    found = outlook_of(inputs)
    assert found.queue == plan(view, CALM, inputs.now_s).queue
    assert sorted(found.queue) == ["a", "b"]
