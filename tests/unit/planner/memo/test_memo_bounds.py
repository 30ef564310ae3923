"""What a memo keeps is bounded by the cluster, however long it is kept."""

from dataclasses import replace

from autoscaler.domain import ClusterView, PodPhase
from autoscaler.planner import Memo, plan
from tests.unit.planner.setups import CALM, job, node, web

FEW = 2_000  # shapes or touches: more than a memo of one node keeps


def test_shapes_of_pods_that_are_gone_are_forgotten():
    """Every pod asks for something else, as where an autoscaler sets requests."""
    memo, seen = Memo(), []
    view = ClusterView(revision=0, observed_at_s=0.0, nodes=(node("a"),))
    for number in range(1, FEW, 100):
        pods = [web(f"w{extra}", number + extra) for extra in range(100)]
        view = view.evolve(pods=pods, gone_pods=[pod.name for pod in view.pods])
        plan(view, CALM, 0.0, memo=memo)
        draft = memo.begin(view, CALM, 0.0)
        seen.append(len(draft.shapes))
        memo.end(draft)
    assert 100 <= max(seen) < FEW / 2


def test_questions_to_an_empty_cluster_leave_nothing_behind():
    """A gang that waits asks it in every plan."""
    memo = Memo()
    waiting, others = job("j", low=3, high=3), replace(web("w"), node="a", phase=PodPhase.READY)
    view = ClusterView(revision=0, observed_at_s=0.0, nodes=(node("a", 3_000),), jobs=(waiting,), pods=(others,))
    for _ in range(FEW // 2):
        plan(view, CALM, 0.0, memo=memo)
    draft = memo.begin(view, CALM, 0.0)
    assert 0 < len(draft.capacity.emptied().touched) < FEW
    memo.end(draft)
