"""Pod shapes: what a pod requires of a node, by the same function for a pod's spec and for a template.

A shape leaves out on purpose: taints and tolerations `not-ready` and `unreachable` (admission adds the tolerations to
every pod, and a node's readiness is its condition), and preferences.  An operator unknown to this version is a
requirement that no node meets (`is_understood`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import EMPTY, Raw, part, parts, text
from autoscaler.clusters.kubernetes.objects.size_limits import TOO_LONG
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.domain import LabelOperator, NodeName, NodeSelectorTerm, Requirement, Shape, TaintEffect, Toleration
from autoscaler.domain.eligibility import NODE_NAME

READINESS_TAINTS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})

NO_NODE: Final[NodeSelectorTerm] = (Requirement(key="", operator=LabelOperator.IN),)
"""A requirement that no node meets: the label must be one of no values."""

_EFFECTS: Final = {effect.value: effect for effect in TaintEffect}
_OPERATORS: Final = {operator.value: operator for operator in LabelOperator}


def shape_of_template(template: Raw) -> Shape:
    """Return the shape of pods from a PodTemplateSpec."""
    return shape_of_spec(part(template, "spec"))


def shape_of_spec(spec: Raw, status: Raw = EMPTY) -> Shape:
    """Return the shape of a pod.  Equal shapes are one object."""
    return _one(
        Shape(
            requests=pod_request(spec, status),
            node_selector=frozenset((k, v) for k, v in part(spec, "nodeSelector").items() if isinstance(v, str)),
            node_terms=(NO_NODE,) if TOO_LONG in spec else _terms(spec),
            tolerations=frozenset(_tolerations(spec)),
        )
    )


def occupied_shape(spec: Raw, status: Raw = EMPTY) -> Shape:
    """Return what a bound pod occupies; its other requirements no longer matter."""
    return _one(Shape(requests=pod_request(spec, status)))


def split_node_pin(shape: Shape) -> tuple[Shape, NodeName | None]:
    """Return the shape without the node that every term ends with, and that node; None for a pod without one.

    `objects.node_affinity` ties EDL's pods to their nodes by the last requirement of each term.
    """
    last = {term[-1] for term in shape.node_terms if term}
    if len(last) != 1 or not all(shape.node_terms):
        return shape, None
    pin = last.pop()
    if pin.key != NODE_NAME or pin.operator is not LabelOperator.IN or len(pin.values) != 1:
        return shape, None
    terms = tuple(term[:-1] for term in shape.node_terms)
    free = Shape(
        requests=shape.requests,
        node_selector=shape.node_selector,
        node_terms=terms if all(terms) else (),  # without the pin an empty term would accept every node
        tolerations=shape.tolerations,
    )
    return _one(free), NodeName(pin.values[0])


def is_understood(spec: Raw) -> bool:
    """True if this version knows all operators of the node affinity and tolerations, and nothing was trimmed."""
    return (
        TOO_LONG not in spec
        and all(
            line.get("operator") in _OPERATORS
            for term in _required_terms(spec)
            for line in (*parts(term, "matchExpressions"), *parts(term, "matchFields"))
        )
        and all(line.get("operator", "Equal") in {"Equal", "Exists", ""} for line in parts(spec, "tolerations"))
    )


def _terms(spec: Raw) -> tuple[NodeSelectorTerm, ...]:
    """Return the alternatives.  An empty term matches no node, so it is dropped unless it is the only one."""
    found = [_term_of(term) for term in _required_terms(spec)]
    return tuple(term for term in found if term) or tuple(found[:1])


def _required_terms(spec: Raw) -> Iterator[Raw]:
    yield from parts(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
    )


def _term_of(term: Raw) -> NodeSelectorTerm:
    expressions = [_requirement(text(line, "key"), line) for line in parts(term, "matchExpressions")]
    fields = [
        _requirement(NODE_NAME if line.get("key") == "metadata.name" else "", line)
        for line in parts(term, "matchFields")
    ]
    return (*expressions, *fields)


def _requirement(key: str, line: Raw) -> Requirement:
    listed = line.get("values")
    values = tuple(str(value) for value in listed) if isinstance(listed, list) else ()
    operator = _OPERATORS.get(text(line, "operator"))
    if operator is None or not key:
        return Requirement(key=key, operator=LabelOperator.IN)  # no value can match: no node
    return Requirement(key=key, operator=operator, values=values)


def _tolerations(spec: Raw) -> Iterator[Toleration]:
    for line in parts(spec, "tolerations"):
        key, effect, operator = text(line, "key"), text(line, "effect"), text(line, "operator") or "Equal"
        if key in READINESS_TAINTS or operator not in {"Equal", "Exists"} or (effect and effect not in _EFFECTS):
            continue
        yield Toleration(
            key=key,
            value=None if operator == "Exists" else text(line, "value"),
            effect=_EFFECTS.get(effect),
        )


@lru_cache(maxsize=8192)
def _one(shape: Shape) -> Shape:
    """Return one object for equal shapes: the planner numbers shapes by identity."""
    return shape
