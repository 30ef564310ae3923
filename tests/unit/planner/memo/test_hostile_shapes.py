"""What a pod names costs what it names, whoever wrote it: no walk for each term, no row as long as it (A11)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import (
    Bottleneck,
    LabelOperator,
    PodPhase,
    Requirement,
    Resources,
    Shape,
    Taint,
    TaintEffect,
    Toleration,
)
from autoscaler.domain.eligibility import NODE_NAME
from autoscaler.planner import plan
from autoscaler.planner.working_copy import eligible_nodes
from autoscaler.planner.working_copy.eligible_nodes import EligibleNodes
from autoscaler.planner.working_copy.view_index import ViewIndex
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.memo.test_memo import Kept
from tests.unit.planner.setups import CALM, decision, job, node, web

KEYS = st.sampled_from(["zone", "disk", "rank"])
VALUES = st.sampled_from(["a", "b", "1", "7", "-3", "9" * 30, "9" * 5_000, ""])
REQUIREMENTS = st.builds(
    Requirement,
    key=st.sampled_from(["zone", "disk", "rank", "", NODE_NAME]),
    operator=st.sampled_from(LabelOperator),
    values=st.lists(st.one_of(VALUES, st.sampled_from(["n0", "n1"])), max_size=2).map(tuple),
)
SHAPES = st.builds(
    Shape,
    requests=st.just(Resources(cpu_milli=1)),
    node_selector=st.frozensets(st.tuples(KEYS, VALUES), max_size=2),
    node_terms=st.lists(st.lists(REQUIREMENTS, max_size=3).map(tuple), max_size=3).map(tuple),
    tolerations=st.frozensets(
        st.builds(
            Toleration,
            key=st.sampled_from(["", "gpu"]),
            value=st.sampled_from([None, "", "x"]),
            effect=st.sampled_from([None, *TaintEffect]),
        ),
        max_size=2,
    ),
)
LABELS = st.dictionaries(KEYS, VALUES, max_size=3).map(lambda found: frozenset(found.items()))
TAINTS = st.frozensets(
    st.builds(Taint, key=st.just("gpu"), value=st.sampled_from(["", "x"]), effect=st.sampled_from(TaintEffect)),
    max_size=2,
)


@given(places=st.lists(st.tuples(LABELS, TAINTS), max_size=4), shape=SHAPES)
def test_all_nodes_at_once_accept_what_each_accepts(places, shape):
    nodes = [node(f"n{number}", labels=labels, taints=taints) for number, (labels, taints) in enumerate(places)]
    assert EligibleNodes(nodes).accepting(shape).tolist() == [one.accepts(shape) for one in nodes]


HOSTNAME = "kubernetes.io/hostname"


def three_hundred(operator, key, *values):
    """As many terms, each another one by a second requirement that all nodes fulfil."""
    wanted = Requirement(key=key, operator=operator, values=values)
    return tuple(
        (wanted, Requirement(key=f"no{number}", operator=LabelOperator.DOES_NOT_EXIST)) for number in range(300)
    )


@pytest.mark.parametrize(
    "terms",
    [
        three_hundred(LabelOperator.EXISTS, HOSTNAME),
        three_hundred(LabelOperator.DOES_NOT_EXIST, HOSTNAME),
        three_hundred(LabelOperator.IN, "zone", *["a", "b"] * 300),
        three_hundred(LabelOperator.NOT_IN, "zone", "a", "b"),
        three_hundred(LabelOperator.GT, "rank", "5000"),
        ((Requirement(key=HOSTNAME, operator=LabelOperator.EXISTS),) * 300,) * 300,
    ],
    ids=["exists", "does-not-exist", "in", "not-in", "gt", "the-same"],
)
def test_three_hundred_terms_look_at_each_node_once(monkeypatch, terms):
    """What many nodes share is put together once, however often a pod names it (A11)."""
    looked_at = []

    def counted(places, count):
        places = [*places]
        looked_at.extend(places)
        return real(places, count)

    real = eligible_nodes.mask_of
    monkeypatch.setattr(eligible_nodes, "mask_of", counted)
    nodes = [
        node(f"n{at}", labels=frozenset({(HOSTNAME, f"n{at}"), ("zone", "abc"[at % 3]), ("rank", str(at))}))
        for at in range(600)
    ]
    wanted = Shape(requests=Resources(cpu_milli=1), node_terms=terms)
    accepted = EligibleNodes(nodes).accepting(wanted).tolist()
    assert len(looked_at) <= len(nodes)
    assert accepted == [one.accepts(wanted) for one in nodes]


def test_values_that_few_nodes_have_are_found_among_those_that_many_have():
    nodes = [node(f"n{at}", labels=frozenset({("zone", "abc"[at % 3] if at > 3 else str(at))})) for at in range(60)]
    for values in (("a",), ("1",), ("1", "2"), ("a", "2"), ("a", "b", "x"), ()):
        for operator in (LabelOperator.IN, LabelOperator.NOT_IN):
            wanted = Requirement(key="zone", operator=operator, values=values)
            one = Shape(requests=Resources(cpu_milli=1), node_terms=((wanted,),))
            assert EligibleNodes(nodes).accepting(one).tolist() == [place.accepts(one) for place in nodes]


def asking(pod, *names):
    extended = tuple((name, 1) for name in names)
    return replace(pod, shape=Shape(requests=Resources(cpu_milli=1, extended=extended)))


def test_ten_thousand_resources_that_no_node_has_make_one_row():
    """One pod of them took seconds a plan and hundreds of megabytes on 500 nodes."""
    names = [f"example.com/{number}" for number in range(10_000)]
    cluster = MemoryCluster([node("a")], [job("j")])
    cluster.put(asking(web("forged"), *names))
    cluster.put(asking(replace(web("bound"), node="a", phase=PodPhase.READY), *reversed(names)))
    view = cluster.view()
    assert len(ViewIndex(view).shapes.columns) == 4
    assert decision(plan(view, CALM, cluster.now()), "j").target == 3


def test_job_that_asks_for_what_no_node_has_starts_once_one_has_it():
    """The room of a device that comes is seen by a memo that was made without it."""
    spec = job("j", high=1)
    trainer = replace(spec.trainer, shape=Shape(requests=Resources(cpu_milli=1_000, extended=(("tpu", 1),))))
    kept = Kept([node("a")], replace(spec, trainer=trainer))
    assert decision(kept.plan(), "j").bottleneck is Bottleneck.NEVER_FITS
    kept.cluster.put(replace(node("a"), allocatable=Resources(cpu_milli=4_000, extended=(("tpu", 2),))))
    assert decision(kept.plan(), "j").target == 1
