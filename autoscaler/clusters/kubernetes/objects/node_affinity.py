"""Required and preferred nodes of EDL's pods, added to the affinity of the user's template.

The terms of a node affinity are alternatives, so a requirement is added to every term.  An empty term matches no node
and stays empty.  Requirements: the node has not opted out; the job's pods do not keep failing there; and last, for a
pod that is tied to a node, that node (`parsing.pod_shapes.split_node_pin` removes it again).  The API server lets a
gated pod's affinity be narrowed in just this way: by requirements at the end of a term's lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, part, parts
from autoscaler.clusters.kubernetes.objects.labels import OPT_OUT
from autoscaler.domain import NodeName

MOST_AVOIDED: Final = 32
"""Most nodes to avoid at once: a job that fails on more is broken itself, and its node affinity stays short."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def require_allowed_nodes(spec: Raw, *, avoid: Iterable[NodeName] = ()) -> dict[str, Any]:
    """Return the pod's spec, for nodes that have not opted out and are not among `avoid`."""
    willing = {"key": OPT_OUT, "operator": "DoesNotExist"}
    elsewhere = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(avoid)]
    return _with_requirements(spec, expressions=[willing], fields=elsewhere)


def tie_to_node(spec: Raw, node: NodeName) -> dict[str, Any]:
    """Return the pod's spec, for this node alone.  Unlike `nodeName` it is checked by the scheduler."""
    return _with_requirements(
        spec, expressions=[], fields=[{"key": "metadata.name", "operator": "In", "values": [node]}]
    )


def prefer_spread(spec: Raw, labels: Raw) -> dict[str, Any]:
    """Return the pod's spec, with a preference for nodes and zones without another pod of these labels."""
    preferences = [
        {
            "weight": weight,
            "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": dict(labels)}},
        }
        for key, weight in (("kubernetes.io/hostname", 100), ("topology.kubernetes.io/zone", 50))
    ]
    return _with_preferences(spec, "podAntiAffinity", preferences)


def prefer_nodes(spec: Raw, nodes: Iterable[NodeName]) -> dict[str, Any]:
    """Return the pod's spec, with the strongest preference for these nodes; other nodes stay possible."""
    preferences = [
        {
            "weight": 100,
            "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
        }
        for node in nodes
    ]
    return _with_preferences(spec, "nodeAffinity", preferences)


def _with_preferences(spec: Raw, kind: str, preferences: Sequence[Raw]) -> dict[str, Any]:
    affinity = part(spec, "affinity")
    before = part(affinity, kind)
    merged = {**before, _PREFERRED: [*parts(before, _PREFERRED), *preferences]}
    return {**spec, "affinity": {**affinity, kind: merged}}


def _with_requirements(spec: Raw, *, expressions: Sequence[Raw], fields: Sequence[Raw]) -> dict[str, Any]:
    affinity = part(spec, "affinity")
    node_affinity = part(affinity, "nodeAffinity")
    required = part(node_affinity, _REQUIRED)
    terms = [_narrowed(term, expressions, fields) for term in parts(required, "nodeSelectorTerms")]
    if not required:
        terms = [_extended({}, expressions, fields)]
    merged = {**node_affinity, _REQUIRED: {**required, "nodeSelectorTerms": terms}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": merged}}


def _narrowed(term: Raw, expressions: Sequence[Raw], fields: Sequence[Raw]) -> dict[str, Any]:
    if not parts(term, "matchExpressions") and not parts(term, "matchFields"):
        return dict(term)
    return _extended(term, expressions, fields)


def _extended(term: Raw, expressions: Sequence[Raw], fields: Sequence[Raw]) -> dict[str, Any]:
    lists = {
        "matchExpressions": [*parts(term, "matchExpressions"), *expressions],
        "matchFields": [*parts(term, "matchFields"), *fields],
    }
    return {**term, **{name: lines for name, lines in lists.items() if lines}}
