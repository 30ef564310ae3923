"""Which nodes a pod may stand on: selectors, required affinity, taints and tolerations, as Kubernetes means them."""

import pytest

from autoscaler.domain import (
    LabelOperator,
    Node,
    NodeName,
    Requirement,
    Resources,
    Shape,
    Taint,
    TaintEffect,
    Toleration,
)

CPU = Resources(cpu_milli=1)
GPU_TAINT = Taint(key="gpu", value="a100")


def node(*taints, **labels):
    return Node(name=NodeName("n1"), allocatable=CPU, labels=frozenset(labels.items()), taints=frozenset(taints))


def needs(key, operator, *values):
    return Requirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        (needs("zone", LabelOperator.IN, "a", "b"), True),
        (needs("zone", LabelOperator.IN, "c"), False),
        (needs("rack", LabelOperator.IN, "a"), False),
        (needs("zone", LabelOperator.NOT_IN, "a"), False),
        (needs("rack", LabelOperator.NOT_IN, "a"), True),
        (needs("zone", LabelOperator.EXISTS), True),
        (needs("rack", LabelOperator.EXISTS), False),
        (needs("rack", LabelOperator.DOES_NOT_EXIST), True),
        (needs("zone", LabelOperator.DOES_NOT_EXIST), False),
        (needs("cores", LabelOperator.GT, "15"), True),
        (needs("cores", LabelOperator.GT, "16"), False),
        (needs("cores", LabelOperator.LT, "17"), True),
        (needs("zone", LabelOperator.LT, "17"), False),
        (needs("cores", LabelOperator.GT), False),
        (needs("cores", LabelOperator.GT, "many"), False),
        (needs("metadata.name", LabelOperator.IN, "n1"), True),
        (needs("metadata.name", LabelOperator.NOT_IN, "n1"), False),
    ],
)
def test_a_requirement_holds_as_in_kubernetes(requirement, matches):
    shape = Shape(requests=CPU, node_terms=((requirement,),))
    assert node(zone="a", cores="16").accepts(shape) is matches


def test_one_term_is_enough_and_all_of_its_requirements_are_needed():
    """An empty term matches nothing."""
    here, there = needs("zone", LabelOperator.IN, "a"), needs("zone", LabelOperator.IN, "b")
    assert node(zone="a").accepts(Shape(requests=CPU, node_terms=((there,), (here,))))
    assert not node(zone="a").accepts(Shape(requests=CPU, node_terms=((there, here),)))
    assert not node(zone="a").accepts(Shape(requests=CPU, node_terms=((),)))


def test_selector_and_affinity_both_count():
    shape = Shape(
        requests=CPU, node_selector=frozenset({("pool", "gpu")}), node_terms=((needs("zone", LabelOperator.EXISTS),),)
    )
    assert node(pool="gpu", zone="a").accepts(shape)
    assert not node(pool="gpu").accepts(shape)
    assert not node(zone="a").accepts(shape)


@pytest.mark.parametrize(
    ("toleration", "matches"),
    [
        (Toleration(key="gpu"), True),
        (Toleration(key="gpu", value="a100"), True),
        (Toleration(key="gpu", value="h100"), False),
        (Toleration(key="gpu", value="a100", effect=TaintEffect.NO_SCHEDULE), True),
        (Toleration(key="gpu", value="a100", effect=TaintEffect.NO_EXECUTE), False),
        (Toleration(), True),
        (Toleration(key="spot"), False),
    ],
)
def test_a_toleration_matches_as_in_kubernetes(toleration, matches):
    assert node(GPU_TAINT).accepts(Shape(requests=CPU, tolerations=frozenset({toleration}))) is matches


def test_every_taint_must_be_tolerated():
    spot = Taint(key="spot", effect=TaintEffect.NO_EXECUTE)
    one = Shape(requests=CPU, tolerations=frozenset({Toleration(key="gpu")}))
    both = Shape(requests=CPU, tolerations=frozenset({Toleration(key="gpu"), Toleration(key="spot")}))
    assert not node(GPU_TAINT, spot).accepts(one)
    assert node(GPU_TAINT, spot).accepts(both)
    assert node().accepts(Shape(requests=CPU))
