"""A plan with a memo is the plan without one, whatever happened in between (A5)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Node, PodPhase, Resources, Shape
from autoscaler.planner import Memo, plan, still_valid
from autoscaler.planner.working_copy.view_index import ViewIndex
from tests.property.planner_cases import Driver, happen, web
from tests.property.planner_draws import clusters, gated_policies, jobs, numbers, open_policies, shapes, stories
from tests.property.snapshot_twins import check_alike
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, job, node

ODD = ("cordon", "drain", "edit", "gone", "kill", "label", "leave", "licence", "node", "over", "stay", "unready")

odd_events = st.lists(
    st.one_of(
        st.tuples(st.just("web"), shapes),
        st.tuples(st.just("submit"), jobs("late")),
        st.tuples(
            st.sampled_from(ODD),
            numbers,
        ),
    ),
    max_size=8,
)


class Twins(Driver):
    """Plans twice each time: with the memo it keeps, and from nothing."""

    def __init__(self, cluster, policy):
        super().__init__(cluster, policy)
        self.memo = Memo()

    def plan(self):
        view = self.cluster.view(history=self.history)
        kept = plan(view, self.policy, self.cluster.now(), memo=self.memo)
        assert kept == plan(view, self.policy, self.cluster.now())
        if self.memo._index is not None:
            check_alike(self.memo._index, ViewIndex(view, fairness=self.policy.fairness))
        return kept


@given(clusters(), stories(), odd_events, st.one_of(gated_policies, open_policies))
def test_plan_with_a_memo_is_the_plan_without_one(cluster, story, events, policy):
    """Every kind of change, those that force a new start too; revalidation in between uses the same memo."""
    twins = Twins(cluster, policy)
    for event in [*story, *events]:
        befall(cluster, event)
        cluster.bind_others()
        decided = twins.plan()
        fresh = replace(cluster.view(), revision=-1)
        assert still_valid(decided, fresh, policy, memo=twins.memo) == still_valid(decided, fresh, policy)
        twins.apply(decided, decided.actions)
        twins.plan()
        cluster.advance(0.7)


def befall(cluster, event):
    """More than `happen` knows: nodes that change in every way, jobs that end, resources that nobody had."""
    kind, what = event
    name = sorted(cluster.nodes)[what % len(cluster.nodes)] if isinstance(what, int) else ""
    match kind:
        case "node":
            cluster.put(Node(name=f"m{what}", allocatable=Resources(cpu_milli=what * 500, memory_bytes=what << 28)))
        case "unready":
            cluster.put(replace(cluster.nodes[name], is_ready=not cluster.nodes[name].is_ready))
        case "label":
            cluster.put(replace(cluster.nodes[name], labels=frozenset({("zone", str(what % 2))})))
        case "gone" if len(cluster.nodes) > 1 and not any(pod.node == name for pod in cluster.pods.values()):
            del cluster.nodes[name]
            cluster.touch()
        case "licence":
            wanted = Resources(cpu_milli=500, extended=(("licence", 1),))
            node = cluster.nodes[name]
            held = cluster.occupied_on(name).amount("licence")
            more = replace(node.allocatable, extended=(("licence", max(held, what % 3)),))
            cluster.put(replace(node, allocatable=more), web(what + 900, Shape(requests=wanted)))
        case "leave" | "stay" if cluster.pods:
            pod = cluster.pods[sorted(cluster.pods)[what % len(cluster.pods)]]
            is_leaving = pod.phase is PodPhase.TERMINATING
            if kind == "leave" and pod.node is not None and not is_leaving:  # for longer than the next few plans
                cluster.put(replace(pod, phase=PodPhase.TERMINATING))
                cluster.leaves_at_s[pod.name] = cluster.now() + what % 4
            elif kind == "stay" and is_leaving:  # what was expected to be deleted was not
                cluster.put(replace(pod, phase=PodPhase.READY))
                del cluster.leaves_at_s[pod.name]
        case "gone" | "leave" | "stay":
            pass
        case _:
            happen(cluster, event)


def test_memo_survives_an_error_in_a_plan():
    """A plan that fails costs the memo, not the next answer."""
    cluster = MemoryCluster([node("a")], [job("j")])
    cluster.put(replace(web(1, Shape(requests=Resources(cpu_milli=1))), node="a", phase=PodPhase.READY))
    twins = Twins(cluster, CALM)
    twins.plan()
    broken = replace(twins.policy, headroom=(None,))
    with pytest.raises(AttributeError):
        plan(cluster.view(), broken, cluster.now(), memo=twins.memo)
    twins.settle()
